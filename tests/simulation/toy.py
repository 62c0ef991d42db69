"""Small federations with known images, and a way to run the loop on exact float inputs and given weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedrela_bench.config import TrialConfig
from fedrela_bench.data.transforms import Pipeline
from fedrela_bench.models import Backbone, register_model
from fedrela_bench.simulation import Simulation
from fedrela_bench.testing import toys
from fedrela_bench.testing.toys import class_images, dataset, figures, run, same_model, skewed

__all__ = [
    "FloatPipeline",
    "GoldenNet",
    "class_images",
    "config",
    "dataset",
    "figures",
    "hash_fill",
    "run",
    "same_model",
    "set_weights",
    "skewed",
    "with_floats",
]


def hash_fill(start: int, count: int) -> np.ndarray:
    """v(i) of the golden figures, for i = start .. start + count - 1."""
    x = (np.arange(start, start + count, dtype=np.uint64) * np.uint64(2654435761)) & np.uint64(0xFFFFFFFF)
    x = ((x ^ (x >> np.uint64(15))) * np.uint64(2246822519)) & np.uint64(0xFFFFFFFF)
    x ^= x >> np.uint64(13)
    return 2.0 * (x.astype(np.float64) / 2.0**32) - 1.0


def config(**sections: Mapping[str, Any]) -> TrialConfig:
    """Small defaults; sections are merged in."""
    return toys.config(**sections)


register_model("toy_net")(toys.KitNet)
register_model("identity_net")(toys.Pixels)


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
