"""What a study asks of a simulator, and the environment in which one process runs trunks and cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from fedrela_bench.config import TrialConfig
from fedrela_bench.errors import BenchError
from fedrela_bench.study.futility import Futility
from fedrela_bench.study.keys import Fingerprint, cell_key, numerics, trunk_key
from fedrela_bench.study.lineage import Segment
from fedrela_bench.study.store import Entry, Store

ARRAY_BYTES = 256
"""Names and header of an array in an npz file."""


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
    def snapshot_bytes(self, config: TrialConfig, dataset: Any) -> int: ...
    def posterior_bytes(self, config: TrialConfig, dataset: Any) -> int: ...
    def simulation(self, config: TrialConfig, dataset: Any, device: str, kept: Path | None = None) -> Run: ...
    def save(self, path: Path, snapshot: Any) -> None: ...
    def load(self, path: Path) -> Any: ...
    def branch(self, snapshot: Any, config: TrialConfig) -> Any: ...
    def prepare(self, threads: int, gpu_share: float) -> None: ...
    def release(self) -> None: ...


class SimulationEngine:
    """The package's own simulator, imported on first use."""

    @property
    def version(self) -> str:
        """Part of every key."""
        from fedrela_bench.simulation import SIMULATION_VERSION

        return str(SIMULATION_VERSION)

    def dataset(self, config: TrialConfig, data_dir: Path | None, cache_dir: Path | None) -> Any:
        """The federated dataset of a configuration."""
        from fedrela_bench.data import load_dataset

        return load_dataset(config, data_dir, cache_dir)

    def check(self, config: TrialConfig, dataset: Any) -> None:
        """Build algorithm and network without memory.

        Raises:
            ConfigError: this model, these options or this head do not suit the dataset.
        """
        from fedrela_bench.simulation.setup import build_network

        build_network(config, dataset)

    def measured(self, config: TrialConfig, dataset: Any) -> set[str]:
        """The accuracies that this dataset has: overall, and the groups that hold classes."""
        from fedrela_bench.simulation.setup import class_groups

        return {"overall", *(name for name, classes in class_groups(config, dataset).items() if classes)}

    def snapshot_bytes(self, config: TrialConfig, dataset: Any) -> int:
        """Bytes of a snapshot once every client has taken part: model, server, labels, and what clients keep."""
        import torch

        from fedrela_bench.simulation.setup import make_model

        model, algorithm, server = make_model(config, dataset, torch.device("cpu"))
        tensors = [server.params, server.buffers, *server.state.values(), *model.counters]
        size = model.size(model.net.backbone.feature_dim, dataset.num_classes)
        kept = algorithm.client_state_floats(size) * config.federation.clients * server.params.element_size()
        labels = len(dataset.labels) * torch.int64.itemsize
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors) + labels + kept

    def posterior_bytes(self, config: TrialConfig, dataset: Any) -> int:
        """Bytes that a trunk keeps for every first relabelling pass, at most."""
        from fedrela_bench.simulation.firstpass import LARGEST_BYTES

        values = len(dataset.labels) * int(dataset.num_classes) * 8
        return values + config.federation.clients * ARRAY_BYTES if values <= LARGEST_BYTES else 0

    def simulation(self, config: TrialConfig, dataset: Any, device: str, kept: Path | None = None) -> Run:
        """A simulation before its first round; `kept` is where forks of a trunk share posteriors of the pass at T."""
        from fedrela_bench.simulation import PosteriorFolder, Simulation

        return Simulation(config, dataset, device, posteriors=None if kept is None else PosteriorFolder(kept))

    def save(self, path: Path, snapshot: Any) -> None:
        """Write a snapshot atomically."""
        from fedrela_bench.simulation import save_snapshot

        save_snapshot(path, snapshot)

    def load(self, path: Path) -> Any:
        """Read a snapshot; StoreError when it is damaged."""
        from fedrela_bench.simulation import load_snapshot

        return load_snapshot(path)

    def branch(self, snapshot: Any, config: TrialConfig) -> Any:
        """A state of a run that relabels once, for one that has done nothing else so far but will relabel again."""
        from fedrela_bench.simulation.snapshot import Snapshot

        known: Snapshot = snapshot
        return known if known.relabel is None else replace(known, relabel=config.relabelling())

    def prepare(self, threads: int, gpu_share: float) -> None:
        """Set this process's threads to its CPU request, and its share of GPU memory where devices are shared."""
        import torch

        torch.set_num_threads(threads)
        if 0 < gpu_share < 1 and torch.cuda.is_available():
            torch.cuda.set_per_process_memory_fraction(gpu_share)

    def release(self) -> None:
        """Give memory back before the process is used again."""
        import gc

        import torch

        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


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
    futility: Futility | None = None
    meter: Meter = field(default_factory=Meter, compare=False)

    def fingerprint(self, config: TrialConfig, data_digest: str) -> Fingerprint:
        """What keys hold besides the configuration."""
        arithmetic = numerics(config, self.device_class, self.threads)
        return Fingerprint(data_digest, arithmetic, self.engine.version)

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

        Until its second relabelling a periodic run is the run that relabels once; it shares those rounds with it, and
        through it with every other period.
        """
        rounds, fork = config.federation.rounds, config.relabel_round
        trunk, entry = self.trunk(config, data_digest), self.entry(config, data_digest)
        if entry.kind == "trunk":
            return [Segment(trunk, config.base(), 1, rounds)]
        segments, period = [Segment(trunk, config.base(), 1, fork)], config.relabelling()["period"]
        if period and self.periods is not None:
            once = config.replace({"relabel.period": 0})
            segments.append(Segment(self.entry(once, data_digest), once, fork + 1, fork + period))
        return [*segments, Segment(entry, config, segments[-1].last + 1, rounds)]

    def branch_rounds(self, config: TrialConfig) -> tuple[int, ...]:
        """Rounds after which this run keeps a state for periodic runs to branch off."""
        if config.relabelling()["period"] or not config.relabel.active(config.federation.rounds):
            return ()
        rounds = (config.relabel_round + period for period in self.periods or () if period)
        return tuple(round_ for round_ in sorted(set(rounds)) if round_ < config.federation.rounds)

    def require_going_on(self) -> None:
        """Raise Stopped once the study was asked to stop."""
        if self.stopping():
            raise Stopped

    def stopping(self) -> bool:
        """Whether the study was asked to stop."""
        return self.stop_file is not None and self.stop_file.exists()
