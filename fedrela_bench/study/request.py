"""What a user asks of a study, and what it settles before anything starts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from fedrela_bench.config import TrialConfig
from fedrela_bench.errors import ConfigError
from fedrela_bench.study.engine import Engine, SimulationEngine
from fedrela_bench.study.samplers import check_sampler
from fedrela_bench.study.space import Space
from fedrela_bench.study.spacefile import MOST_SEEDS, SEED_END
from fedrela_bench.tracking.ui import check_uri, default_uri

ProgressMode = Literal["auto", "live", "lines", "json", "quiet"]
MOST = 1_000_000
"""No count of trials or processes is larger."""


@dataclass(frozen=True)
class TuneRequest:
    """One call of ``fedrela-bench tune``."""

    bases: Mapping[str, TrialConfig]
    """Algorithm name to the configuration that its trials start from; relabel fields of the space replace theirs."""
    space: Space
    out: Path
    dataset: str
    data_dir: Path | None = None
    cache_dir: Path | None = None
    trials: int | None = None
    """Configurations in the study in total, finished ones included; by default the space's."""
    seeds: tuple[int, ...] | None = None
    sampler: str = "tpe"
    search_seed: int = 0
    max_concurrent: int | None = None
    cpus_per_trial: int = 1
    gpus_per_trial: float | None = None
    ray_address: str | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    tracking_uri: str | None = None
    store: Path | None = None
    progress: ProgressMode = "auto"
    command: str | None = None
    """Continues the study; printed when it is interrupted."""
    rolling_seconds: float = 60.0
    """A killed run repeats at most the rounds of so many seconds ..."""
    rolling_rounds: int | None = None
    """... and at most so many rounds."""
    engine: Engine = field(default_factory=SimulationEngine)

    @property
    def target(self) -> int:
        """Configurations that the study shall hold."""
        return self.trials if self.trials is not None else self.space.trials

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """Seeds over which every number is a mean."""
        return self.seeds or self.space.seeds

    @property
    def uri(self) -> str:
        """Where MLflow writes."""
        return self.tracking_uri if self.tracking_uri is not None else default_uri(self.out)

    @property
    def store_dir(self) -> Path:
        """Where trunks and cells are kept."""
        return (self.store or self.out / "store").resolve()

    @property
    def resume_command(self) -> str:
        """What to type to go on."""
        plain = ["fedrela-bench", "tune", "--dataset", self.dataset, "--out", str(self.out)]
        return self.command or shlex.join(plain)

    def rooted(self) -> TuneRequest:
        """The same request with paths that hold in any working directory; `out` stays as the user wrote it."""
        bases = {name: _rooted(base) for name, base in self.bases.items()}
        data_dir, cache_dir = (path and path.resolve() for path in (self.data_dir, self.cache_dir))
        return replace(self, bases=bases, data_dir=data_dir, cache_dir=cache_dir)

    def settled(self) -> dict[str, TrialConfig]:
        """The bases as trials use them: relabelling within reach and images to select on.

        Raises:
            ConfigError: everything about the request that cannot work, in one message.
        """
        faults = self.faults()
        if faults:
            raise ConfigError(faults)
        return self.selecting()

    def selecting(self) -> dict[str, TrialConfig]:
        """The bases that are there, with images to select on."""
        return {name: _selecting(self.bases[name]) for name in self.space.algorithms if name in self.bases}

    def faults(self) -> list[str]:
        """What is wrong with the request itself, before machine, paths and data are looked at."""
        faults = [*self._budget_faults(), *seed_faults(self.all_seeds), *self._objective_faults()]
        missing = [name for name in self.space.algorithms if name not in self.bases]
        faults += [
            f"no base configuration for algorithm {name}; give one for every algorithm of the space" for name in missing
        ]
        for fault in (lambda: check_sampler(self.sampler, self.space), lambda: check_uri(self.uri)):
            try:
                fault()
            except ConfigError as error:
                faults += error.faults
        return faults

    def _budget_faults(self) -> list[str]:
        counts = {"trials": self.target, "max-concurrent": self.max_concurrent, "cpus-per-trial": self.cpus_per_trial}
        given = {name: count for name, count in counts.items() if count is not None}
        faults = [f"--{name} {n} must be at least 1" for name, n in given.items() if n < 1]
        faults += [f"--{name} {n} must be at most {MOST}" for name, n in given.items() if n > MOST]
        if not 0 <= self.search_seed < SEED_END:
            faults.append(f"--seed {self.search_seed} must be a whole number from 0 to {SEED_END - 1}")
        return faults

    @property
    def objective_names(self) -> tuple[str, ...]:
        """Objectives without their slice, such as ``("overall", "tail")``."""
        step = any(base.data.profile == "step" for base in self.bases.values())
        return self.space.objectives or (("overall", "minority") if step else ("overall", "tail"))

    @property
    def objectives(self) -> tuple[str, ...]:
        """Metric names to maximise: ``val/...``, or ``test/...`` when the test set selects."""
        oracle = any(base.evaluation.selection == "oracle" for base in self.bases.values())
        return tuple(f"{'test' if oracle else 'val'}/{name}" for name in self.objective_names)

    def _objective_faults(self) -> list[str]:
        profiles = {base.data.profile for base in self.bases.values()}
        selections = {base.evaluation.selection for base in self.bases.values()}
        faults = ["all base configurations need the same data profile"] if len(profiles) > 1 else []
        if "oracle" in selections and len(selections) > 1:
            faults.append("all base configurations need the same evaluation.selection; set it once on the command line")
        valid = ("overall", "majority", "minority") if profiles == {"step"} else ("overall", "head", "medium", "tail")
        wrong = [name for name in self.objective_names if name not in valid]
        return faults + [f"objective {name} is not measured here; valid: {', '.join(valid)}" for name in wrong]


def _rooted(base: TrialConfig) -> TrialConfig:
    kind, colon, path = base.data.source.partition(":")
    return base.replace({"data.source": f"{kind}:{Path(path).resolve()}"}) if colon else base


def _selecting(base: TrialConfig) -> TrialConfig:
    if base.evaluation.selection != "none":
        return base
    return base.replace({"evaluation.selection": "test_slice"})


def seed_faults(seeds: Sequence[int]) -> list[str]:
    """Why these seeds cannot be averaged over."""
    if not seeds:
        return ["no seeds; give --seeds N with N at least 1"]
    if len(seeds) > MOST_SEEDS:
        return [
            f"{len(seeds)} seeds are more than {MOST_SEEDS}, and every configuration runs once for each; give fewer"
        ]
    wrong = [seed for seed in seeds if not 0 <= seed < SEED_END]
    faults = [f"seed {seed} must be a whole number from 0 to {SEED_END - 1}" for seed in wrong]
    twice = sorted({seed for seed in seeds if list(seeds).count(seed) > 1})
    return faults + [f"seed {seed} is listed twice; list it once" for seed in twice]
