"""Small federations with known images, and a way to run the loop on exact float inputs and given weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedrela_bench.config import TrialConfig, deep_merge, parse
from fedrela_bench.data.federated import FederatedDataset
from fedrela_bench.data.transforms import Pipeline
from fedrela_bench.models import Backbone, register_model
from fedrela_bench.simulation import RoundResult, Simulation


def hash_fill(start: int, count: int) -> np.ndarray:
    """v(i) of the golden figures, for i = start .. start + count - 1."""
    x = (np.arange(start, start + count, dtype=np.uint64) * np.uint64(2654435761)) & np.uint64(0xFFFFFFFF)
    x = ((x ^ (x >> np.uint64(15))) * np.uint64(2246822519)) & np.uint64(0xFFFFFFFF)
    x ^= x >> np.uint64(13)
    return 2.0 * (x.astype(np.float64) / 2.0**32) - 1.0


def dataset(
    labels: Sequence[int] | np.ndarray,
    clients: Sequence[Sequence[int]],
    num_classes: int,
    images: np.ndarray | None = None,
    test_per_class: int = 4,
    minority: tuple[int, ...] = (),
) -> FederatedDataset:
    """8x8 grey images in which each class has its own bright row, with noise."""
    labels = np.asarray(labels, dtype=np.int64)
    test_labels = np.repeat(np.arange(num_classes), test_per_class)
    return FederatedDataset(
        name="toy",
        train_images=class_images(labels, seed=1) if images is None else images,
        subset=np.arange(len(labels)),
        labels=labels,
        clients=tuple(np.asarray(rows, dtype=np.int64) for rows in clients),
        test_images=class_images(test_labels, seed=2),
        test_labels=test_labels,
        class_names=tuple(str(c) for c in range(num_classes)),
        normalization=None,
        augment="none",
        minority=minority,
        notes=(),
        digest="toy",
    )


def class_images(labels: np.ndarray, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).integers(0, 120, (len(labels), 8, 8, 1))
    for index, label in enumerate(labels):
        noise[index, label % 8, :, 0] += 100
    return noise.astype(np.uint8)


def skewed(num_classes: int = 4, clients: int = 3, seed: int = 0, largest: int = 40) -> FederatedDataset:
    """A long-tailed toy set dealt unevenly to the clients."""
    counts = [max(3, int(largest * 0.5**c)) for c in range(num_classes)]
    labels = np.repeat(np.arange(num_classes), counts)
    owner = np.random.default_rng(seed).integers(0, clients, len(labels))
    return dataset(labels, [np.flatnonzero(owner == k) for k in range(clients)], num_classes)


def config(**sections: Mapping[str, Any]) -> TrialConfig:
    """Small defaults; sections are merged in."""
    base = {
        "federation": {"clients": 3, "rounds": 4},
        "training": {"model": "toy_net", "local_epochs": 2, "batch_size": 8, "lr": 0.05, "dtype": "float64"},
        "seed": 3,
    }
    return parse(deep_merge(base, sections))


def run(trial: TrialConfig, data: FederatedDataset) -> tuple[Simulation, list[RoundResult]]:
    simulation = Simulation(trial, data)
    return simulation, list(simulation)


def same_model(first: Simulation, second: Simulation) -> bool:
    """Whether global parameters, running statistics and labels are equal bit for bit."""
    a, b = first.state, second.state
    pairs = [(a.server.params, b.server.params), (a.server.buffers, b.server.buffers), (a.labels, b.labels)]
    return all(torch.equal(left, right) for left, right in pairs)


def figures(results: Sequence[RoundResult]) -> list[tuple[int, dict[str, float]]]:
    """Rounds and metrics without the clock."""
    return [(r.round, {k: v for k, v in r.metrics.items() if not k.startswith("time/")}) for r in results]


@register_model("toy_net")
class ToyNet(Backbone):
    """conv - batch norm - ReLU - mean: 6 features."""

    def __init__(self, input_shape: tuple[int, int, int], norm: str) -> None:
        super().__init__(feature_dim=48)
        self.conv = nn.Conv2d(input_shape[0], 6, 3, padding=1)
        self.bn = nn.BatchNorm2d(6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.bn(self.conv(x))).mean(dim=3).flatten(1)


@register_model("golden_net")
class GoldenNet(Backbone):
    """The network of the golden run."""

    def __init__(self, input_shape: tuple[int, int, int], norm: str) -> None:
        super().__init__(feature_dim=16)
        self.conv1 = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(16)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))).mean(dim=(2, 3))


@register_model("identity_net")
class IdentityNet(Backbone):
    """The pixels themselves are the features."""

    def __init__(self, input_shape: tuple[int, int, int], norm: str) -> None:
        super().__init__(feature_dim=int(np.prod(input_shape)))

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)


class FloatPipeline(Pipeline):
    """Passes float images through."""

    def plain(self, images: Tensor) -> Tensor:
        return images.permute(0, 3, 1, 2)


def with_floats(simulation: Simulation, images: Tensor, test_images: Tensor) -> None:
    """Replace the resident images by (n, C, H, W) floats."""
    resident = dataclasses.replace(
        simulation.data,
        images=images.permute(0, 2, 3, 1).contiguous(),
        test_images=test_images.permute(0, 2, 3, 1).contiguous(),
        pipeline=FloatPipeline(None, "none", images.dtype),
    )
    simulation.data = simulation._trainer.data = resident
    evaluator = simulation._trainer.evaluator
    evaluator.images, evaluator.pipeline = resident.test_images, resident.pipeline


def set_weights(simulation: Simulation, values: Mapping[str, Tensor]) -> None:
    """Set global parameters and buffers by name."""
    server = simulation.state.server
    named = simulation.model.named(server.params, server.buffers)
    for name, value in values.items():
        named[name].copy_(value)
