"""Residual networks: the CIFAR form (3x3 stem with stride 1, no max-pool), for large images ImageNet's stem.

Source: He et al., Deep Residual Learning, arXiv 1512.03385; ResNet-8 as used by CReFF and FedYoYo (three stages).
`resnet50` has ImageNet's stem (7x7 with stride 2, then 3x3 max-pool with stride 2) where images have `LARGE` pixels a
side or more, and the CIFAR stem below; the others always have the CIFAR stem. The stride of a bottleneck is in its 3x3
convolution, as in torchvision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedrela_bench.errors import ConfigError
from fedrela_bench.models.base import Backbone
from fedrela_bench.models.conv import Conv2d

WIDTHS = (64, 128, 256, 512)
DEPTHS = {"resnet8": (1, 1, 1), "resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3)}
MAX_GROUPS = 32
LARGE = 64
"""Pixels of the smaller side from which `resnet50` has ImageNet's stem: with the CIFAR stem, 64 of them would cost more
than the published network at 224."""

NormLayer = Callable[[int], nn.Module]


def group_norm(channels: int) -> nn.GroupNorm:
    """GroupNorm with as many groups as divide the channels, 32 at most."""
    groups = max(count for count in range(1, MAX_GROUPS + 1) if channels % count == 0)
    return nn.GroupNorm(groups, channels)


NORMS: dict[str, NormLayer] = {"batch": nn.BatchNorm2d, "group": group_norm}


def conv3x3(fan_in: int, fan_out: int, stride: int = 1) -> nn.Conv2d:
    """A 3x3 convolution that keeps the size (or divides it by the stride), without bias."""
    return Conv2d(fan_in, fan_out, 3, stride=stride, padding=1, bias=False)


def projection(fan_in: int, fan_out: int, stride: int, norm: NormLayer) -> nn.Sequential:
    """What a block adds to its output: its input, by a 1x1 convolution where the shape changes."""
    if stride == 1 and fan_in == fan_out:
        return nn.Sequential()
    return nn.Sequential(nn.Conv2d(fan_in, fan_out, 1, stride=stride, bias=False), norm(fan_out))


class Block(nn.Module):
    """Two 3x3 convolutions around which the input is added."""

    growth: ClassVar[int] = 1
    """Channels of the output in widths of the stage."""

    def __init__(self, fan_in: int, fan_out: int, stride: int, norm: NormLayer) -> None:
        super().__init__()
        self.conv1 = conv3x3(fan_in, fan_out, stride)
        self.bn1 = norm(fan_out)
        self.conv2 = conv3x3(fan_out, fan_out)
        self.bn2 = norm(fan_out)
        self.shortcut = projection(fan_in, fan_out, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        """(B, fan_in, H, W) -> (B, fan_out, H / stride, W / stride)."""
        out = functional.relu_(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return functional.relu_(out)


class Bottleneck(nn.Module):
    """Convolutions 1x1 to the stage's width, 3x3, and 1x1 to four widths, around which the input is added."""

    growth: ClassVar[int] = 4

    def __init__(self, fan_in: int, width: int, stride: int, norm: NormLayer) -> None:
        super().__init__()
        fan_out = self.growth * width
        self.conv1 = nn.Conv2d(fan_in, width, 1, bias=False)
        self.bn1 = norm(width)
        self.conv2 = conv3x3(width, width, stride)
        self.bn2 = norm(width)
        self.conv3 = nn.Conv2d(width, fan_out, 1, bias=False)
        self.bn3 = norm(fan_out)
        self.shortcut = projection(fan_in, fan_out, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        """(B, fan_in, H, W) -> (B, 4 * width, H / stride, W / stride)."""
        out = functional.relu_(self.bn1(self.conv1(x)))
        out = functional.relu_(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += self.shortcut(x)
        return functional.relu_(out)


class ResNet(Backbone):
    """Stem, stages of blocks with strides 1, 2, 2, 2, and the mean over all positions.

    Args:
        channels: of the images.
        depths: blocks of each stage.
        norm: makes a normalisation layer.
        block: kind of the blocks.
        large: ImageNet's stem instead of the CIFAR stem.
    """

    def __init__(
        self,
        channels: int,
        depths: tuple[int, ...],
        norm: NormLayer,
        block: type[Block | Bottleneck] = Block,
        large: bool = False,
    ) -> None:
        super().__init__(block.growth * WIDTHS[len(depths) - 1])
        stem = nn.Conv2d(channels, WIDTHS[0], 7, stride=2, padding=3, bias=False)
        self.conv1 = stem if large else conv3x3(channels, WIDTHS[0])
        self.bn1 = norm(WIDTHS[0])
        self.large = large
        fan_in = WIDTHS[0]
        for stage, (depth, width) in enumerate(zip(depths, WIDTHS, strict=False), 1):
            strides = [1 if stage == 1 else 2] + [1] * (depth - 1)
            fans = [fan_in] + [block.growth * width] * (depth - 1)
            blocks = (block(fan, width, stride, norm) for fan, stride in zip(fans, strides, strict=True))
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))
            fan_in = block.growth * width
        self.stages = len(depths)

    def forward(self, images: Tensor) -> Tensor:
        """(B, channels, H, W) -> (B, feature_dim)."""
        x = functional.relu_(self.bn1(self.conv1(images)))
        if self.large:
            x = functional.max_pool2d(x, 3, stride=2, padding=1)
        for stage in range(1, self.stages + 1):
            x = self.get_submodule(f"layer{stage}")(x)
        return x.mean(dim=(2, 3))


def build_resnet(name: str, input_shape: tuple[int, int, int], norm: str) -> ResNet:
    """resnet8, resnet18, resnet34 or resnet50 for images of shape (channels, H, W) of any size.

    Raises:
        ConfigError: unknown norm.
    """
    if norm not in NORMS:
        raise ConfigError(f"unknown norm {norm!r}; valid: {', '.join(NORMS)}")
    deep = name == "resnet50"
    block, large = (Bottleneck, min(input_shape[1:]) >= LARGE) if deep else (Block, False)
    with torch.device("meta"):
        return ResNet(input_shape[0], DEPTHS[name], NORMS[norm], block, large)
