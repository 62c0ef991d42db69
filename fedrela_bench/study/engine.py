"""What a study asks of a simulator, and the environment in which one process runs trunks and cells."""

from __future__ import annotations

import base64
import gc
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedrela_bench.config import Json, TrialConfig
from fedrela_bench.errors import BenchError
from fedrela_bench.study.futility import Futility
from fedrela_bench.study.keys import Fingerprint, cell_key, numerics, trunk_key
from fedrela_bench.study.lineage import Segment
from fedrela_bench.study.store import Entry, Store

EXAMPLE_BYTES = 8192
"""Largest image that a study's record holds."""
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
    def partition(self, config: TrialConfig, dataset: Any) -> dict[str, np.ndarray]: ...
    def state_bytes(self, config: TrialConfig, dataset: Any) -> tuple[int, int]: ...
    def posterior_bytes(self, config: TrialConfig, dataset: Any) -> int: ...
    def facts(self, config: TrialConfig, dataset: Any) -> Json: ...
    def simulation(self, config: TrialConfig, dataset: Any, device: str, kept: Path | None = None) -> Run: ...
    def save_model(self, path: Path, run: Any) -> None: ...
    def save(self, path: Path, snapshot: Any) -> None: ...
    def load(self, path: Path) -> Any: ...
    def branch(self, snapshot: Any, config: TrialConfig) -> Any: ...
    def process(self, threads: int, gpu_share: float) -> AbstractContextManager[None]: ...
    def peak_memory(self) -> Mapping[str, int]: ...


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

    def partition(self, config: TrialConfig, dataset: Any) -> dict[str, np.ndarray]:
        """What reports say about the training set: names (C,), groups (C,) and client_counts (K, C) of its classes."""
        from fedrela_bench.simulation.setup import group_names

        return {
            "names": np.array(dataset.class_names, dtype=np.str_),
            "groups": np.array(group_names(config, dataset), dtype=np.str_),
            "client_counts": dataset.client_counts.astype(np.int32),
        }

    def state_bytes(self, config: TrialConfig, dataset: Any) -> tuple[int, int]:
        """Bytes of a snapshot once every client has taken part, and of a scored model.

        A scored model is the global model and what the server keeps; a snapshot also has labels, and what clients keep.
        """
        import torch

        from fedrela_bench.simulation.setup import make_model

        model, algorithm, server = make_model(config, dataset, torch.device("cpu"))
        tensors = [server.params, server.buffers, *server.state.values(), *model.counters]
        scored = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        size = model.size(model.net.backbone.feature_dim, dataset.num_classes)
        kept = algorithm.client_state_floats(size) * len(dataset.clients) * server.params.element_size()
        labels = len(dataset.labels) * torch.int64.itemsize
        return scored + labels + kept, scored

    def facts(self, config: TrialConfig, dataset: Any) -> Json:
        """What a reader should know of a dataset; plain values."""
        from fedrela_bench.simulation.setup import class_groups

        return {
            "name": dataset.name,
            "image_shape": list(dataset.train_images.shape[1:]),
            "image_type": str(dataset.train_images.dtype),
            "class_names": list(dataset.class_names),
            "train_counts": dataset.class_counts.tolist(),
            "test_counts": np.bincount(dataset.test_labels, minlength=dataset.num_classes).tolist(),
            "client_sizes": [len(rows) for rows in dataset.clients],
            "example": _first_image(dataset.test_images),
            "groups": {name: list(classes) for name, classes in class_groups(config, dataset).items()},
        }

    def posterior_bytes(self, config: TrialConfig, dataset: Any) -> int:
        """Bytes that a trunk keeps for every first relabelling pass, at most."""
        from fedrela_bench.simulation.firstpass import LARGEST_BYTES

        values = len(dataset.labels) * int(dataset.num_classes) * 8
        return values + len(dataset.clients) * ARRAY_BYTES if values <= LARGEST_BYTES else 0

    def simulation(self, config: TrialConfig, dataset: Any, device: str, kept: Path | None = None) -> Run:
        """A simulation before its first round; `kept` is where forks of a trunk share posteriors of the pass at T."""
        from fedrela_bench.simulation import PosteriorFolder, Simulation

        return Simulation(config, dataset, device, posteriors=None if kept is None else PosteriorFolder(kept))

    def save_model(self, path: Path, run: Any) -> None:
        """Write the scored model of a run atomically."""
        from fedrela_bench.simulation.served import save_model, scored_model

        save_model(path, scored_model(run))

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

    @contextmanager
    def process(self, threads: int, gpu_share: float) -> Iterator[None]:
        """This process as a run needs it: threads by its CPU request, and its share of GPU memory; both given back.

        Raises:
            RunError: the run wanted more GPU memory than its share.
        """
        import torch

        from fedrela_bench.simulation.devices import memory_share

        torch.set_num_threads(threads)
        on_gpu = gpu_share > 0 and torch.cuda.is_available()
        cap = memory_share(min(1.0, gpu_share), torch.device("cuda")) if on_gpu else nullcontext()
        try:
            with cap:
                if on_gpu:
                    torch.cuda.reset_peak_memory_stats()
                yield
        finally:
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def peak_memory(self) -> Mapping[str, int]:
        """GPU memory since the process was prepared: ``peak_bytes`` of ``total_bytes``; nothing without a GPU."""
        from fedrela_bench.simulation.devices import peak_memory

        return peak_memory()


def _first_image(images: np.ndarray) -> str:
    """The pixels of one image as base64 text; nothing where they are many."""
    pixels = np.ascontiguousarray(images[:1]).tobytes()
    return base64.b64encode(pixels).decode() if len(pixels) <= EXAMPLE_BYTES else ""


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
        """Rounds after which this run keeps a state: a trunk for forks, a run that relabels once for periodic ones."""
        if not config.relabel.active(config.federation.rounds):
            rounds = {config.replace({"relabel.start": start}).relabel_round for start in self.starts}
        elif config.relabelling()["period"]:
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
