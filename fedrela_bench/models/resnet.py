"""Residual networks in the CIFAR form: 3x3 stem with stride 1, no max-pool, global average pool.

Source: He et al., Deep Residual Learning, arXiv 1512.03385; ResNet-8 as used by CReFF and FedYoYo (three stages).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedrela_bench.errors import ConfigError
from fedrela_bench.models.base import Backbone
from fedrela_bench.models.conv import Conv2d

WIDTHS = (64, 128, 256, 512)
DEPTHS = {"resnet8": (1, 1, 1), "resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}
MAX_GROUPS = 32

NormLayer = Callable[[int], nn.Module]


def group_norm(channels: int) -> nn.GroupNorm:
    """GroupNorm with as many groups as divide the channels, 32 at most."""
    groups = max(count for count in range(1, MAX_GROUPS + 1) if channels % count == 0)
    return nn.GroupNorm(groups, channels)


NORMS: dict[str, NormLayer] = {"batch": nn.BatchNorm2d, "group": group_norm}


def conv3x3(fan_in: int, fan_out: int, stride: int = 1) -> nn.Conv2d:
    """A 3x3 convolution that keeps the size (or divides it by the stride), without bias."""
    return Conv2d(fan_in, fan_out, 3, stride=stride, padding=1, bias=False)


class Block(nn.Module):
    """Two 3x3 convolutions around which the input is added; a 1x1 projection where the shape changes."""

    def __init__(self, fan_in: int, fan_out: int, stride: int, norm: NormLayer) -> None:
        super().__init__()
        self.conv1 = conv3x3(fan_in, fan_out, stride)
        self.bn1 = norm(fan_out)
        self.conv2 = conv3x3(fan_out, fan_out)
        self.bn2 = norm(fan_out)
        self.shortcut = nn.Sequential()
        if stride != 1 or fan_in != fan_out:
            self.shortcut.append(nn.Conv2d(fan_in, fan_out, 1, stride=stride, bias=False)).append(norm(fan_out))

    def forward(self, x: Tensor) -> Tensor:
        """(B, fan_in, H, W) -> (B, fan_out, H / stride, W / stride)."""
        out = functional.relu_(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return functional.relu_(out)


class ResNet(Backbone):
    """Stem, stages of blocks with strides 1, 2, 2, 2, and the mean over all positions."""

    def __init__(self, channels: int, depths: tuple[int, ...], norm: NormLayer) -> None:
        super().__init__(WIDTHS[len(depths) - 1])
        self.conv1 = conv3x3(channels, WIDTHS[0])
        self.bn1 = norm(WIDTHS[0])
        fan_in = WIDTHS[0]
        for stage, (depth, width) in enumerate(zip(depths, WIDTHS, strict=False), 1):
            strides = [1 if stage == 1 else 2] + [1] * (depth - 1)
            fans = [fan_in] + [width] * (depth - 1)
            blocks = (Block(fan, width, stride, norm) for fan, stride in zip(fans, strides, strict=True))
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))
            fan_in = width
        self.stages = len(depths)

    def forward(self, images: Tensor) -> Tensor:
        """(B, channels, H, W) -> (B, feature_dim)."""
        x = functional.relu_(self.bn1(self.conv1(images)))
        for stage in range(1, self.stages + 1):
            x = self.get_submodule(f"layer{stage}")(x)
        return x.mean(dim=(2, 3))


def build_resnet(name: str, input_shape: tuple[int, int, int], norm: str) -> ResNet:
    """resnet8, resnet18 or resnet34 for images of shape (channels, H, W) of any size.

    Raises:
        ConfigError: unknown norm.
    """
    if norm not in NORMS:
        raise ConfigError(f"unknown norm {norm!r}; valid: {', '.join(NORMS)}")
    with torch.device("meta"):
        return ResNet(input_shape[0], DEPTHS[name], NORMS[norm])
