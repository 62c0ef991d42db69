"""The shape of every model, and how parameters get their first values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from fedrela_bench.errors import ConfigError


class Outputs(NamedTuple):
    """Features (B, d) and logits (B, C) of one forward pass."""

    features: Tensor
    logits: Tensor


@runtime_checkable
class Resettable(Protocol):
    """A module that fills its own parameters and buffers."""

    def reset(self, rng: np.random.Generator) -> None:
        """Fill them in place."""


@runtime_checkable
class Filled(Protocol):
    """A module that fills everything below it, too."""

    def reset_all(self, rng: np.random.Generator) -> None:
        """Fill its own and its children's parameters and buffers in place."""


class Backbone(nn.Module):
    """Images (B, channels, H, W) -> features (B, feature_dim); `forward` is the subclass's."""

    feature_dim: int

    def __init__(self, feature_dim: int) -> None:
        super().__init__()
        self.feature_dim = feature_dim


class Net(nn.Module):
    """A backbone and the head that is scored."""

    def __init__(self, backbone: Backbone, head: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head

    def train(self, mode: bool = True) -> Net:
        """As `torch.nn.Module.train`, over a list kept from the first call: it is called once per client."""
        kept: tuple[nn.Module, ...] | None = self.__dict__.get("_everyone")
        if kept is None:
            kept = self.__dict__["_everyone"] = tuple(self.modules())
        for module in kept:
            module.__dict__["training"] = mode
        return self

    def features(self, images: Tensor) -> Tensor:
        """(B, channels, H, W) -> (B, d)."""
        features: Tensor = self.backbone(images)
        return features

    def forward(self, images: Tensor) -> Outputs:
        """(B, channels, H, W) -> features (B, d) and logits (B, C)."""
        features = self.features(images)
        return Outputs(features, self.head(features))


@torch.no_grad()
def materialize(
    module: nn.Module,
    rng: np.random.Generator,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> None:
    """Give a module built on the meta device its memory and its first values, in place.

    Convolutions and linear layers are uniform within 1 / sqrt(fan_in) (torch's defaults), norms 1 and 0. Draws are made
    in float64 in module order and then cast, so every dtype and device starts from the same numbers. A module with a
    method ``reset(rng)`` fills the parameters and buffers that it holds itself; its children are filled as usual. One
    with ``reset_all(rng)`` fills theirs as well.

    Raises:
        ConfigError: a module holds parameters or buffers that nothing fills.
    """
    found = list(_to_fill(module))
    faults = [_unfillable(name, child) for name, child in found if not _fillable(child)]
    if faults:
        raise ConfigError(faults)
    module.to(dtype=dtype)
    module.to_empty(device=device)
    for _, child in found:
        _fill(child, rng)


def _to_fill(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The module and those below it, each once and in order, without what others fill."""
    known: set[nn.Module] = set()
    for name, child in module.named_modules(memo=known, prefix=prefix):
        yield name, child
        fills_all = isinstance(child, Filled)
        if fills_all:
            known.update(child.modules())


def _fillable(module: nn.Module) -> bool:
    if isinstance(module, Filled):
        return True
    bare = not list(module.parameters(recurse=False)) and not list(module.buffers(recurse=False))
    return bare or isinstance(module, Resettable | _ConvNd | nn.Linear | _NormBase | nn.GroupNorm | nn.LayerNorm)


def _unfillable(name: str, module: nn.Module) -> str:
    return f"nothing initialises {name or 'the model'} ({type(module).__name__}); give it a method reset(rng)"


def _fill(module: nn.Module, rng: np.random.Generator) -> None:
    if isinstance(module, Filled):
        module.reset_all(rng)
    elif isinstance(module, Resettable):
        module.reset(rng)
    elif isinstance(module, _ConvNd | nn.Linear):
        bound = 1 / math.sqrt(math.prod(module.weight.shape[1:]))
        for parameter in module.parameters(recurse=False):
            fill_from(parameter, rng.uniform(-bound, bound, tuple(parameter.shape)))
    else:
        for name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            tensor.fill_(1 if name in ("weight", "running_var") else 0)


def fill_from(tensor: Tensor, values: np.ndarray) -> None:
    """Copy float64 values into a parameter or buffer of any dtype and device."""
    with torch.no_grad():
        tensor.copy_(torch.from_numpy(np.asarray(values)))
