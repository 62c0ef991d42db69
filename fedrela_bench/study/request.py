"""What a user asks of a study, and what it settles before anything starts."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from fedrela_bench.config import TrialConfig
from fedrela_bench.errors import ConfigError
from fedrela_bench.faults import unknown_name
from fedrela_bench.nested import Json
from fedrela_bench.plugins import Plugin, active
from fedrela_bench.study.controls import Control
from fedrela_bench.study.engine import Engine
from fedrela_bench.study.futility import Futility
from fedrela_bench.study.samplers import check_sampler, check_storage
from fedrela_bench.study.simulator import SimulationEngine
from fedrela_bench.study.space import Space
from fedrela_bench.study.spacefile import MOST_SEEDS, SEED_END
from fedrela_bench.study.spaceplugs import plug_faults
from fedrela_bench.tracking.ui import check_uri, default_uri

ProgressMode = Literal["auto", "live", "lines", "json", "quiet"]
STAGES = ("trunks", "search", "confirm", "report")
BASE = "base"
CONFIRM_TOP = 3
LOG_MODELS = ("best", "none")
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
    points: tuple[Json, ...] | None = None
    """Relabelled configurations that the confirm stage computes beside the baselines; nothing is searched then, and
    without images to select on the whole test set reports."""
    trials: int | None = None
    """Configurations in the study in total, finished ones included; by default the space's."""
    seeds: tuple[int, ...] | None = None
    stages: tuple[str, ...] = STAGES
    """Which of `STAGES` to run, or ``("base",)``: tune the base algorithms alone."""
    confirm_seeds: tuple[int, ...] | None = None
    """Seeds of the confirm stage; by default those of the search (all of them in a race)."""
    confirm_top: int | None = None
    """Configurations of each algorithm that are confirmed; by default `CONFIRM_TOP`."""
    lr_drop: float | None = None
    """Adds arms with this factor on the learning rate from T on: without relabelling (the control), and with it."""
    control: Control | None = None
    """Adds to every relabelled configuration of the confirm stage one with this relabeler."""
    race: bool = False
    """Search with the first seed; the best third gets three, their front all."""
    futility: Futility | None = None
    max_failures: int = 0
    """With more failed configurations than this the exit code is 1."""
    log_models: str = "best"
    """Whose scored models MLflow gets: those of the ``best`` configurations, or ``none``."""
    optuna_storage: str | None = None
    """URL of an SQLite or PostgreSQL database; by default a journal file in the study folder."""
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
    plugins: tuple[Plugin, ...] = field(default_factory=active)
    """Code of one's own, which trials load before they start."""

    @property
    def target(self) -> int:
        """Configurations that the study shall hold."""
        if self.points is not None:
            return len(self.points)
        return self.trials if self.trials is not None else self.space.trials

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """Seeds over which every number is a mean."""
        return self.seeds or self.space.seeds

    @property
    def best_confirmed(self) -> int:
        """How many configurations of each algorithm are confirmed."""
        return CONFIRM_TOP if self.confirm_top is None else self.confirm_top

    @property
    def search_seeds(self) -> tuple[int, ...]:
        """Seeds behind the values that the sampler is told."""
        return self.all_seeds[:1] if self.race else self.all_seeds

    @property
    def final_seeds(self) -> tuple[int, ...]:
        """Seeds of the confirm stage."""
        return self.confirm_seeds or self.all_seeds

    @property
    def every_seed(self) -> tuple[int, ...]:
        """Seeds of any stage that runs."""
        confirming = self.final_seeds if "confirm" in self.stages else ()
        return tuple(dict.fromkeys((*self.search_seeds, *confirming)))

    @property
    def trunk_seeds(self) -> tuple[int, ...]:
        """Seeds of the baselines that are computed to their end."""
        if self.base_only:
            return ()
        first = self.search_seeds if "trunks" in self.stages else ()
        return tuple(dict.fromkeys((*first, *(self.final_seeds if "confirm" in self.stages else ()))))

    @property
    def base_only(self) -> bool:
        """Whether the base algorithms are tuned alone."""
        return self.stages == (BASE,)

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
        return self.command or shlex.join([*plain, *self.sources])

    @property
    def sources(self) -> tuple[str, ...]:
        """Words of a command that say where data and code of the user's own are."""
        given = [plugin.given for plugin in self.plugins if not plugin.distribution]
        data = () if self.data_dir is None else ("--data-dir", str(self.data_dir))
        return (*data, *(word for name in given for word in ("--plugin", name)))

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
        """The bases that are there, with images to select on; without relabelling where they are tuned alone."""
        there = {name: self.bases[name] for name in self.space.algorithms if name in self.bases}
        bases = {name: base.base() for name, base in there.items()} if self.base_only else there
        if self.points is not None:
            return bases
        return {name: _selecting(base) for name, base in bases.items()}

    def faults(self) -> list[str]:
        """What is wrong with the request itself, before machine, paths and data are looked at."""
        faults = [*self._budget_faults(), *seed_faults(self.all_seeds), *self._objective_faults()]
        faults += [*self._stage_faults(), *(seed_faults(self.confirm_seeds) if self.confirm_seeds is not None else ())]
        faults += plug_faults(self.space.parameters, self.bases)
        missing = [name for name in self.space.algorithms if name not in self.bases]
        faults += [
            f"no base configuration for algorithm {name}; give one for every algorithm of the space" for name in missing
        ]
        checks: list[Callable[[], object]] = [
            lambda: check_sampler(self.sampler, self.space),
            lambda: check_uri(self.uri),
        ]
        if self.optuna_storage is not None:
            checks.append(partial(check_storage, self.optuna_storage))
        for check in checks:
            try:
                check()
            except ConfigError as error:
                faults += error.faults
        return faults

    def _budget_faults(self) -> list[str]:
        counts = {
            "trials": 1 if self.points is not None else self.target,
            "max-concurrent": self.max_concurrent,
            "cpus-per-trial": self.cpus_per_trial,
        }
        counts |= {"confirm-top": self.confirm_top, "snapshot-rounds": self.rolling_rounds}
        given = {name: count for name, count in counts.items() if count is not None}
        faults = [f"--{name} {n} must be at least 1" for name, n in given.items() if n < 1]
        faults += [f"--{name} {n} must be at most {MOST}" for name, n in given.items() if n > MOST]
        if self.max_failures < 0:
            faults.append(f"--max-failures {self.max_failures} must be at least 0")
        if not 0 <= self.search_seed < SEED_END:
            faults.append(f"--seed {self.search_seed} must be a whole number from 0 to {SEED_END - 1}")
        return faults

    def _stage_faults(self) -> list[str]:
        known = (*STAGES, BASE)
        faults = [unknown_name("stage", f"--stage {name}", name, known) for name in self.stages if name not in known]
        if not self.stages:
            faults.append(f"no stages; give --stage with some of {', '.join(STAGES)}, or {BASE}")
        if BASE in self.stages and not self.base_only:
            faults.append(f"--stage {BASE} tunes without relabelling; run it alone, and the others in another --out")
        searched = [parameter.name for parameter in self.space.parameters if parameter.name.startswith("relabel.")]
        if self.base_only and searched:
            faults.append(
                f"--stage {BASE} tunes without relabelling, but the space searches {', '.join(searched)}; give --space "
                "with an algorithm's name, such as fedprox (`fedrela-bench spaces list`), or a file without relabel.*"
            )
        faults += self._relabelled_only() if self.base_only else []
        if self.race and len(self.all_seeds) < 2:
            faults.append("--race needs more than one seed; give --seeds 3")
        if self.lr_drop is not None and not 0 < self.lr_drop < 1:
            faults.append(f"--lr-drop {self.lr_drop:g} must be above 0 and below 1, such as 0.1")
        if self.log_models not in LOG_MODELS:
            faults.append(unknown_name("choice", f"--log-models {self.log_models}", self.log_models, LOG_MODELS))
        return faults

    def _relabelled_only(self) -> list[str]:
        """Options without a meaning where nothing is relabelled or confirmed."""
        given = {"race": self.race, "futility": self.futility is not None, "lr-drop": self.lr_drop is not None}
        given |= {"control": self.control is not None}
        given |= {"confirm-seeds": self.confirm_seeds is not None, "confirm-top": self.confirm_top is not None}
        names = [f"--{name}" for name, is_given in given.items() if is_given]
        why = f"--stage {BASE} has no relabelled runs and confirms nothing"
        return [f"{why}; leave out {', '.join(names)}"] if names else []

    @property
    def objective_names(self) -> tuple[str, ...]:
        """Objectives without their slice, such as ``("overall", "tail")``."""
        step = any(base.data.profile == "step" for base in self.bases.values())
        return self.space.objectives or (("overall", "minority") if step else ("overall", "tail"))

    @property
    def objectives(self) -> tuple[str, ...]:
        """Metric names to maximise: ``val/...``, or ``test/...`` when the test set selects."""
        selecting = {base.evaluation.selection for base in self.bases.values()}
        reported = "oracle" in selecting or (self.points is not None and "none" in selecting)
        return tuple(f"{'test' if reported else 'val'}/{name}" for name in self.objective_names)

    @property
    def periods(self) -> tuple[int, ...] | None:
        """The periods that trials may have, or None when all have the same one."""
        if self.points is None:
            return self.space.periods()
        found = tuple(sorted({int(point.get("relabel.period", 0)) for point in self.points}))
        return found if len(found) > 1 else None

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
    return base.replace({"data.source": f"{kind}:{Path(path).expanduser().resolve()}"}) if colon else base


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
