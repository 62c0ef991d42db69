"""What a study asks of a simulator, and the environment in which one process runs trunks and cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedrela_bench.config import FIXED, TrialConfig
from fedrela_bench.errors import BenchError
from fedrela_bench.nested import Json
from fedrela_bench.plugins import code_of, provided
from fedrela_bench.plugins.active import Code
from fedrela_bench.schedules import build_schedule
from fedrela_bench.study.futility import Futility
from fedrela_bench.study.keys import Fingerprint, cell_key, numerics, trunk_key
from fedrela_bench.study.lineage import Segment
from fedrela_bench.study.store import Entry, Store


class Stopped(BenchError):  # noqa: N818 - not an error, the end of a request
    """The study was asked to stop; the state so far is in the store."""

    def __init__(self) -> None:
        super().__init__("stopped on request; the same command continues")


class Run(Protocol):
    """A simulation under way, as `fedrela_bench.Simulation` is."""

    @property
    def completed_rounds(self) -> int: ...
    @property
    def status(self) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def snapshot(self) -> Any: ...
    def restore(self, snapshot: Any) -> None: ...
    @property
    def communication(self) -> Mapping[str, int]: ...


class Engine(Protocol):
    """Makes datasets, simulations and snapshots."""

    @property
    def version(self) -> str: ...
    def dataset(self, config: TrialConfig, data_dir: Path | None, cache_dir: Path | None) -> Any: ...
    def check(self, config: TrialConfig, dataset: Any) -> None: ...
    def measured(self, config: TrialConfig, dataset: Any) -> set[str]: ...
    def partition(self, config: TrialConfig, dataset: Any) -> dict[str, np.ndarray]: ...
    def state_bytes(self, config: TrialConfig, dataset: Any) -> tuple[int, int]: ...
    def posterior_bytes(self, config: TrialConfig, dataset: Any) -> int: ...
    def facts(self, config: TrialConfig, dataset: Any) -> Json: ...
    def costs(self, config: TrialConfig, dataset: Any, rounds: int) -> Json: ...
    def simulation(self, config: TrialConfig, dataset: Any, device: str, kept: Path | None = None) -> Run: ...
    def save_model(self, path: Path, run: Any) -> None: ...
    def save(self, path: Path, snapshot: Any) -> None: ...
    def load(self, path: Path) -> Any: ...
    def branch(self, snapshot: Any, config: TrialConfig) -> Any: ...
    def process(self, threads: int, gpu_share: float) -> AbstractContextManager[None]: ...
    def peak_memory(self) -> Mapping[str, int]: ...


@dataclass
class Meter:
    """What one process really computed, rounds that were there before included."""

    rounds: int = 0


@dataclass(frozen=True)
class Runtime:
    """Where and how one process computes; the same values on the driver give the same keys."""

    store: Store
    engine: Engine
    device: str = "cpu"
    device_class: str = "cpu"
    threads: int = 1
    rolling_seconds: float = 60.0
    """At most this much work of a cell or trunk is repeated after a kill ..."""
    rolling_rounds: int | None = None
    """... and at most so many rounds, where this is given."""
    stop_file: Path | None = None
    """Exists once the study is to stop."""
    periods: tuple[int, ...] | None = None
    """Periods for which runs that relabel once keep a state to branch off; None: periodic runs fork from the trunk."""
    starts: tuple[float, ...] = ()
    """Values of `relabel.start` at which the study's runs fork: a trunk keeps a state wherever it passes one."""
    futility: Futility | None = None
    model_seed: int | None = None
    """Finished runs of this seed keep their scored model."""
    code: Code = field(default_factory=provided)
    """Names that plugins register, and digests of their sources."""
    meter: Meter = field(default_factory=Meter, compare=False)

    def fingerprint(self, config: TrialConfig, data_digest: str) -> Fingerprint:
        """What keys hold besides the configuration."""
        arithmetic = numerics(config, self.device_class, self.threads)
        if not self.code:
            return Fingerprint(data_digest, arithmetic, self.engine.version)
        values = config.model_dump(mode="json")
        relabel = code_of(self.code, values.pop("relabel"))
        return Fingerprint(data_digest, arithmetic, self.engine.version, code_of(self.code, values), relabel)

    def trunk(self, config: TrialConfig, data_digest: str) -> Entry:
        """The store entry of a configuration's base run."""
        return self.store.entry("trunk", trunk_key(config, self.fingerprint(config, data_digest)))

    def entry(self, config: TrialConfig, data_digest: str) -> Entry:
        """The store entry of a configuration: a cell, or its trunk when relabelling changes nothing."""
        if not config.relabel.active(config.federation.rounds):
            return self.trunk(config, data_digest)
        return self.store.entry("cell", cell_key(config, self.fingerprint(config, data_digest)))

    def lineage(self, config: TrialConfig, data_digest: str) -> list[Segment]:
        """Where the rounds of a run are: in its trunk up to T, then in itself.

        Until its second relabelling a run that relabels again is the run that relabels once with the budget of its
        first; it shares those rounds with it, and through it with every other period.
        """
        rounds, fork = config.federation.rounds, config.relabel_round
        trunk, entry = self.trunk(config, data_digest), self.entry(config, data_digest)
        if entry.kind == "trunk":
            return [Segment(trunk, config.base(), 1, rounds)]
        segments, once = [Segment(trunk, config.base(), 1, fork)], self._once(config)
        if once is not None and self.periods is not None:
            segments.append(Segment(self.entry(once[0], data_digest), once[0], fork + 1, once[1]))
        return [*segments, Segment(entry, config, segments[-1].last + 1, rounds)]

    def _once(self, config: TrialConfig) -> tuple[TrialConfig, int] | None:
        """The run that relabels once and is this one up to its second relabelling, and the rounds before that."""
        schedule = build_schedule(config)
        if len(schedule.refreshes) < 2 or schedule.budget(0) == 0:
            return None
        plain = {"relabel.schedule": FIXED, "relabel.period": 0, "relabel.tau": schedule.budget(0)}
        return config.replace(plain), schedule.refreshes[1]

    def branch_rounds(self, config: TrialConfig) -> tuple[int, ...]:
        """Rounds after which this run keeps a state: a trunk for forks, a run that relabels once for periodic ones."""
        if not config.relabel.active(config.federation.rounds):
            rounds = {config.replace({"relabel.start": start}).relabel_round for start in self.starts}
        elif self._once(config) is not None:
            return ()
        else:
            rounds = {config.relabel_round + period for period in self.periods or () if period}
        return tuple(round_ for round_ in sorted(rounds) if round_ < config.federation.rounds)

    def keep_model(self, config: TrialConfig, entry: Entry, run: Run) -> None:
        """Write the scored model of a finished run beside it, where models of its seed are kept."""
        if config.seed == self.model_seed and run.status != "diverged":
            self.engine.save_model(entry.model, run)

    def require_going_on(self) -> None:
        """Raise Stopped once the study was asked to stop."""
        if self.stopping():
            raise Stopped

    def stopping(self) -> bool:
        """Whether the study was asked to stop."""
        return self.stop_file is not None and self.stop_file.exists()
