"""Any `nn.Module` that names its head as a backbone: torchvision's classifiers, timm's, and one's own.

    register_module("tv_resnet18", torchvision.models.resnet18, head="fc", channels=3)

The module gives its features once its last linear layer is gone; the algorithm puts its own head on them. First values
are the module's own: it is made anew with torch's generator seeded by the run, so that equal seeds give equal bits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import is_lazy

from fedrela_bench.errors import ConfigError, RunError
from fedrela_bench.models.base import Backbone
from fedrela_bench.models.passes import features_given, random_fault, repeated

Shape = tuple[int, int, int]
HEADS = ("fc", "classifier", "head", "heads", "output")
"""Names that a head is looked for under where none is given."""


class Wrapped(Backbone):
    """A module without its head.

    Args:
        module: gives (B, feature_dim) features.
        feature_dim: d.
        channels: that the module takes; grey images are repeated.
        again: makes the module anew from a seed, with its own first values.
    """

    def __init__(self, module: nn.Module, feature_dim: int, channels: int, again: Callable[[int], nn.Module]) -> None:
        super().__init__(feature_dim)
        self.module = module
        self.channels = channels
        self._again: Callable[[int], nn.Module] | None = again

    def forward(self, images: Tensor) -> Tensor:
        """(B, channels, H, W) -> (B, feature_dim)."""
        features: Tensor = self.module(repeated(images, self.channels))
        return features

    def reset_all(self, rng: np.random.Generator) -> None:
        """Give the module the first values that it has when it is made with a seed drawn from `rng`.

        Raises:
            RunError: this is a copy of a network, which cannot make another.
        """
        if self._again is None:
            raise RunError("a copy of a wrapped network cannot be filled anew; build the network again")
        fresh = self._again(int(rng.integers(2**62)))
        for (_, mine), (_, value) in zip(_tensors(self.module), _tensors(fresh), strict=True):
            mine.copy_(value)

    def __getstate__(self) -> dict[str, Any]:
        """Other processes get the values, not the function, which often is no part of a module."""
        return {**self.__dict__, "_again": None}


def from_module(
    make: Callable[..., nn.Module], head: str | None = None, channels: int | None = None
) -> Callable[[Shape, str], Backbone]:
    """A builder for `register_model` from a function or class that makes a module with a head.

    Args:
        make: called without arguments, or with ``input_shape`` and ``norm`` where it has parameters of these names.
        head: path of the classification layer, such as ``fc`` or ``classifier``; of a sequence the last linear layer is
            meant. By default timm's ``reset_classifier`` or one of the usual names; ``""``: the module gives features.
        channels: that the module takes, where grey images shall be repeated to them.

    Raises:
        ConfigError: (of the builder) the head is not found, the images do not suit the module, it has no fixed number
            of features, shares parameters, freezes some, draws random numbers, or keeps state that cannot be averaged.
    """

    @cache
    def checked(shape: Shape, norm: str) -> int:
        return _feature_dim(_made(make, head, shape, norm, 0), shape, channels or shape[0])

    def build(input_shape: Shape, norm: str) -> Backbone:
        shape = (input_shape[0], input_shape[1], input_shape[2])
        feature_dim = checked(shape, norm)
        module = _made(make, head, shape, norm, 0).to("meta")
        return Wrapped(module, feature_dim, channels or shape[0], lambda seed: _made(make, head, shape, norm, seed))

    return build


def register_module(
    name: str, make: Callable[..., nn.Module], head: str | None = None, channels: int | None = None
) -> None:
    """Make a module available as ``training.model = name``; see `from_module`.

    Raises:
        ConfigError: the name is taken or is no name.
    """
    from fedrela_bench.models import register_model

    register_model(name)(from_module(make, head, channels))


# making --------------------------------------------------------------------------------------------------------------


def _made(make: Callable[..., nn.Module], head: str | None, shape: Shape, norm: str, seed: int) -> nn.Module:
    """The module on the CPU without its head, with first values from a seed; torch's own generator stays as it was."""
    known = inspect.signature(make).parameters
    arguments = {name: value for name, value in (("input_shape", shape), ("norm", norm)) if name in known}
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        module = make(**arguments)
        if not isinstance(module, nn.Module):
            raise ConfigError(f"{_named(make)} makes a {type(module).__name__}, not an nn.Module")
        _drop_head(module, head)
    return module


def _named(make: Callable[..., nn.Module]) -> str:
    return getattr(make, "__name__", type(make).__name__)


def _drop_head(module: nn.Module, head: str | None) -> None:
    reset = getattr(module, "reset_classifier", None)
    if head is None and callable(reset):
        reset(0)
        return
    path = _guessed(module) if head is None else head
    if not path:
        return
    layer = _at(module, path)
    if isinstance(layer, nn.Sequential) and any(isinstance(part, nn.Linear) for part in layer):
        last = max(place for place, part in enumerate(layer) if isinstance(part, nn.Linear))
        layer[last] = nn.Identity()
    else:
        parent, _, leaf = path.rpartition(".")
        setattr(_at(module, parent), leaf, nn.Identity())


def _at(module: nn.Module, path: str) -> nn.Module:
    try:
        return module.get_submodule(path)
    except AttributeError:
        raise ConfigError(f"{_kind(module)} has no layer {path!r}; {_layers(module)}") from None


def _guessed(module: nn.Module) -> str:
    found = [name for name in HEADS if isinstance(getattr(module, name, None), nn.Module)]
    if len(found) != 1:
        why = f"{' and '.join(found)} may each be its head" if found else f"its head is none of {', '.join(HEADS)}"
        raise ConfigError(
            f'{_kind(module)}: {why}; give head="NAME" (head="" where it gives features); {_layers(module)}'
        )
    return found[0]


def _layers(module: nn.Module) -> str:
    names = [name for name, _ in module.named_children()]
    linear = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    last = f"; its last linear layer is {linear[-1]}" if linear else ""
    return f"it has {', '.join(names) or 'no layers'}{last}"


def _kind(module: nn.Module) -> str:
    return f"module {type(module).__name__}"


# checking ------------------------------------------------------------------------------------------------------------


def _feature_dim(module: nn.Module, shape: Shape, channels: int) -> int:
    """The number of features, from two forward passes.

    Raises:
        ConfigError: everything about the module that does not work here.
    """
    faults = list(_state_faults(module))
    state = torch.get_rng_state()
    try:
        sizes = [features_given(module.train(mode), shape, count, channels) for mode, count in ((True, 2), (False, 3))]
    except Exception as error:
        raise ConfigError([*faults, _refused(module, shape, channels, error)]) from error
    finally:
        drawn = not torch.equal(state, torch.get_rng_state())
        torch.set_rng_state(state)
        module.train()
    faults += [random_fault(_kind(module), module)] if drawn else []
    wrong = next((size for size in sizes if isinstance(size, str)), None)
    if wrong is None and len(set(sizes)) > 1:
        wrong = " and ".join(f"{size} features" for size in sizes) + ", depending on batch or mode"
    if wrong is not None:
        faults.append(f"{_kind(module)} without its head gives {wrong}, not (B, d) features; pool and flatten them")
    if faults:
        raise ConfigError(faults)
    return int(sizes[0])


def _refused(module: nn.Module, shape: Shape, channels: int, error: Exception) -> str:
    size = "x".join(map(str, shape))
    first = next((part for part in module.modules() if isinstance(part, nn.Conv2d)), None)
    remedy = "use a larger data.image_size, or a module for images of this size"
    if first is not None and first.in_channels != channels:
        grey = " (grey images are repeated)" if shape[0] == 1 else ""
        remedy = (
            f"it takes {first.in_channels} channels: give channels={first.in_channels}{grey}, or change its first layer"
        )
        if shape[0] not in (1, first.in_channels):
            remedy = f"it takes {first.in_channels} channels: change its first layer"
    reason = str(error).strip().splitlines() or [type(error).__name__]
    return f"{_kind(module)} does not take images of {size} ({type(error).__name__}: {reason[0]}); {remedy}"


def _state_faults(module: nn.Module) -> Iterator[str]:
    kind, seen = _kind(module), dict[int, str]()
    if any(is_lazy(parameter) for parameter in module.parameters()):
        yield f"{kind} has layers without sizes (lazy ones); give them their sizes"
        return
    for name, parameter in module.named_parameters(remove_duplicate=False):
        first = seen.setdefault(id(parameter), name)
        if first != name:
            yield f"{kind} shares one parameter between {first} and {name}; give each its own"
        if not parameter.requires_grad:
            yield f"{kind} does not train {name} (requires_grad is False); let it, since all parameters are averaged"
    for name, part in module.named_modules():
        yield from _kept_faults(kind, name, part)


def _kept_faults(kind: str, name: str, part: nn.Module) -> Iterator[str]:
    """Tensors of one layer that clients could not average."""
    prefix = f"{name}." if name else ""
    for key, value in part.named_buffers(recurse=False):
        if value.is_floating_point() and not isinstance(part, _NormBase):
            yield (
                f"{kind} keeps the numbers {prefix}{key} in a buffer that is no running statistic of a normalisation, "
                "which averaging over clients would change; make it a Python number, or compute it in forward"
            )
    for key, value in vars(part).items():
        if isinstance(value, Tensor):
            yield f"{kind} keeps the tensor {prefix}{key} as a plain attribute; compute it in forward"


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()
