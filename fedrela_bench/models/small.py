"""Small convolutional networks for CPU-size experiments.

Pooling comes before the activation: the two commute for monotone activations, and the activation then has a quarter of
the values to work on.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedrela_bench.errors import ConfigError
from fedrela_bench.models.base import Backbone
from fedrela_bench.models.conv import Conv2d


class Conv(NamedTuple):
    """One convolution: output channels, side of the kernel, zero padding, whether a 2x2 max-pool follows."""

    channels: int
    kernel: int
    padding: int
    pool: bool

    def out_side(self, side: int) -> int:
        """Side length after the layer, 0 or less if the input is too small."""
        side = side + 2 * self.padding - self.kernel + 1
        return side // 2 if self.pool else side


class Plan(NamedTuple):
    """Convolutions, widths of the fully connected layers, and the slope of the activation below zero."""

    convs: tuple[Conv, ...]
    widths: tuple[int, ...]
    slope: float = 0.0

    def out_side(self, side: int) -> int:
        """Side length of the maps that enter the first fully connected layer."""
        for conv in self.convs:
            side = conv.out_side(side)
        return side


PLANS = {
    # For scikit-learn's 8x8 digits.
    "digits": Plan((Conv(16, 3, 1, False), Conv(32, 3, 1, True)), (64,)),
    # LeNet as in the code of MOON and NIID-Bench.
    "lenet": Plan((Conv(6, 5, 0, True), Conv(16, 5, 0, True)), (120, 84)),
    # The same with more channels, and with enough features for a simplex of 100 classes.
    "lenet_wide": Plan((Conv(16, 5, 0, True), Conv(32, 5, 0, True)), (256, 128)),
    # The 64-64 network of CLIMB.
    "cnn": Plan((Conv(64, 5, 0, True), Conv(64, 5, 0, True)), (384, 192), slope=0.01),
    # The network of the first FedAvg paper, without padding.
    "fmcnn": Plan((Conv(32, 5, 0, True), Conv(64, 5, 0, True)), (512,)),
    # For the rows of tables: no convolutions, 128 features.
    "mlp": Plan((), (256, 128)),
}


class ConvNet(Backbone):
    """Convolutions, then fully connected layers; features are the activated output of the last of them."""

    def __init__(self, plan: Plan, input_shape: tuple[int, int, int]) -> None:
        super().__init__(plan.widths[-1])
        channels, height, width = input_shape
        sizes = [channels, *(conv.channels for conv in plan.convs)]
        layers = zip(sizes, plan.convs, strict=False)
        self.convs = nn.ModuleList(
            Conv2d(fan_in, conv.channels, conv.kernel, padding=conv.padding) for fan_in, conv in layers
        )
        flat = sizes[-1] * plan.out_side(height) * plan.out_side(width)
        self.linears = linear_stack((flat, *plan.widths))
        self.pools = [conv.pool for conv in plan.convs]
        self.slope = plan.slope

    def forward(self, images: Tensor) -> Tensor:
        """(B, channels, H, W) -> (B, feature_dim)."""
        x = images
        for conv, pool in zip(self.convs, self.pools, strict=True):
            x = conv(x)
            x = self.activate(functional.max_pool2d(x, 2) if pool else x)
        x = x.flatten(1)
        for linear in self.linears:
            x = self.activate(linear(x))
        return x

    def activate(self, x: Tensor) -> Tensor:
        """(Leaky) ReLU in place: pooling, convolution and linear layers do not need their output for the gradient."""
        return functional.leaky_relu_(x, self.slope) if self.slope else functional.relu_(x)


def linear_stack(sizes: Sequence[int]) -> nn.ModuleList:
    """Linear layers between consecutive sizes."""
    return nn.ModuleList(nn.Linear(fan_in, fan_out) for fan_in, fan_out in pairwise(sizes))


def build_small(name: str, input_shape: tuple[int, int, int], norm: str = "batch") -> ConvNet:
    """One of the planned networks for images of shape (channels, H, W); they have no layers that ``norm`` concerns.

    Raises:
        ConfigError: the images are too small for the convolutions.
    """
    plan = PLANS[name]
    if min(plan.out_side(side) for side in input_shape[1:]) < 1:
        smallest = next(side for side in range(1, 1024) if plan.out_side(side) >= 1)
        raise ConfigError(
            f"model {name} needs images of at least {smallest}x{smallest} pixels, these have "
            f"{input_shape[1]}x{input_shape[2]}; use model {'mlp' if min(input_shape[1:]) == 1 else 'digits'} or a "
            "larger data.image_size"
        )
    with torch.device("meta"):
        return ConvNet(plan, input_shape)
