"""Small federations with known images, and small networks, for the kit's checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedrela_bench.config import TrialConfig, parse
from fedrela_bench.data.federated import FederatedDataset
from fedrela_bench.models import Backbone, register_model
from fedrela_bench.nested import deep_merge
from fedrela_bench.simulation import RoundResult, Simulation


def dataset(
    labels: Sequence[int] | np.ndarray,
    clients: Sequence[Sequence[int] | np.ndarray],
    num_classes: int,
    images: np.ndarray | None = None,
    test_per_class: int = 4,
    minority: tuple[int, ...] = (),
    test_images: np.ndarray | None = None,
) -> FederatedDataset:
    """8x8 grey images in which each class has its own bright row, with noise; or images that are given.

    Args:
        labels: (n,) class ids.
        clients: rows of each client.
        num_classes: C.
        images: (n, H, W, channels) uint8.
        test_per_class: test images of each class.
        minority: classes of the step profile's minority.
        test_images: (C, H, W, channels) uint8, one of each class.
    """
    labels = np.asarray(labels, dtype=np.int64)
    test_labels = np.repeat(np.arange(num_classes), test_per_class if test_images is None else 1)
    return FederatedDataset(
        name="toy",
        train_images=class_images(labels, seed=1) if images is None else images,
        subset=np.arange(len(labels)),
        labels=labels,
        clients=tuple(np.asarray(rows, dtype=np.int64) for rows in clients),
        test_images=class_images(test_labels, seed=2) if test_images is None else test_images,
        test_labels=test_labels,
        class_names=tuple(str(c) for c in range(num_classes)),
        normalization=None,
        augment="none",
        minority=minority,
        notes=(),
        digest="toy",
    )


def class_images(labels: np.ndarray, seed: int) -> np.ndarray:
    """(n, 8, 8, 1) uint8: noise, and the bright row of each label."""
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
    """A small trial on `KitNet` in float64; sections are merged in."""
    base = {
        "federation": {"clients": 3, "rounds": 4},
        "training": {"model": "kit_net", "local_epochs": 2, "batch_size": 8, "lr": 0.05, "dtype": "float64"},
        "seed": 3,
    }
    return parse(deep_merge(base, sections))


def run(trial: TrialConfig, data: FederatedDataset) -> tuple[Simulation, list[RoundResult]]:
    """A whole run and what its rounds reported."""
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


def four_clients() -> FederatedDataset:
    """A long-tailed set of 4 classes dealt unevenly to 4 clients."""
    return skewed(clients=4)


def equal_clients() -> FederatedDataset:
    """Four clients of 9 samples, all with the class counts (5, 3, 1): uniform and sample weights agree."""
    labels = np.array([0, 0, 0, 0, 0, 1, 1, 1, 2] * 4)
    return dataset(labels, [range(9 * k, 9 * k + 9) for k in range(4)], 3)


def odd_clients() -> FederatedDataset:
    """An empty client, one with one sample, one with one class, one with two; class 3 is nowhere."""
    labels = [0] * 9 + [1] * 5 + [2] * 3
    return dataset(labels, [[], [16], range(9), range(9, 16)], 4)


def single_client() -> FederatedDataset:
    """All data on one client."""
    return dataset([0, 1, 2, 0, 1, 0, 2, 0, 1, 0, 0], [range(11)], 3)


@register_model("kit_net")
class KitNet(Backbone):
    """conv - batch norm - ReLU - mean over columns: 48 features of 8x8 images."""

    def __init__(self, input_shape: tuple[int, int, int], norm: str) -> None:
        super().__init__(feature_dim=48)
        self.conv = nn.Conv2d(input_shape[0], 6, 3, padding=1)
        self.bn = nn.BatchNorm2d(6)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, 8, 8) -> (B, 48)."""
        return torch.relu(self.bn(self.conv(x))).mean(dim=3).flatten(1)


@register_model("kit_pixels")
class Pixels(Backbone):
    """The pixels themselves are the features."""

    def __init__(self, input_shape: tuple[int, int, int], norm: str) -> None:
        super().__init__(feature_dim=int(np.prod(input_shape)))

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C H W)."""
        return x.flatten(1)


@register_model("kit_mlp")
class Perceptron(Backbone):
    """One hidden layer of 64: it learns digits in a few dozen steps."""

    def __init__(self, input_shape: tuple[int, int, int], norm: str) -> None:
        super().__init__(feature_dim=64)
        self.linear = nn.Linear(int(np.prod(input_shape)), 64)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, 64)."""
        return torch.relu(self.linear(x.flatten(1)))
