"""The package's own simulator, as studies use it."""

from __future__ import annotations

import base64
import gc
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedrela_bench.config import TrialConfig
from fedrela_bench.errors import ConfigError
from fedrela_bench.nested import Json
from fedrela_bench.study.engine import Run

EXAMPLE_BYTES = 8192
"""Largest image that a study's record holds."""
ARRAY_BYTES = 256
"""Names and header of an array in an npz file."""


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

        Raises:
            ConfigError: the server starts from a state that is no tensors.
        """
        import torch

        from fedrela_bench.simulation.kept import tensor_faults
        from fedrela_bench.simulation.setup import make_model

        model, algorithm, server = make_model(config, dataset, torch.device("cpu"))
        faults = tensor_faults(algorithm.name, "initial_server_state", server.state)
        if faults:
            raise ConfigError(faults)
        tensors = [server.params, server.buffers, *server.state.values(), *model.counters]
        scored = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        scored += algorithm.shared_once(server, math.prod(dataset.input_shape)) * server.params.element_size()
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

    def costs(self, config: TrialConfig, dataset: Any, rounds: int) -> Json:
        """What a run of so many rounds sends and, with privacy on, what it guarantees; plain values."""
        from fedrela_bench.simulation.cost import costs

        return costs(config, dataset, rounds)

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
