"""Forward passes that show what a network gives, before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedrela_bench import plugins
from fedrela_bench.errors import ConfigError
from fedrela_bench.models.base import Backbone, materialize

Shape = tuple[int, int, int]
MODES = ((True, 2), (True, 5), (False, 1), (False, 4))
"""Training mode and number of images of each pass."""


def backbone_faults(name: str, backbone: Backbone, shape: Shape, dtype: torch.dtype) -> list[str]:
    """All that is wrong with the forward passes of a backbone; torch's own generator stays as it was.

    Real numbers show it: a forward pass that reads values works on no meta device, and would be refused wrongly.

    Args:
        name: for messages.
        backbone: on the meta device; afterwards it is on the CPU and has values.
        shape: (channels, height, width) of the inputs.
        dtype: of inputs and parameters.
    """
    title = f"model {name} for inputs of {size_of(shape)}"
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        faults = _fill(backbone, dtype) + forward_faults(title, backbone, shape, dtype)
        return faults + ([random_fault(title, backbone)] if is_random(backbone, shape, dtype) else [])


def size_of(shape: Shape) -> str:
    """Such as 1x28x28."""
    return "x".join(map(str, shape))


def _fill(backbone: Backbone, dtype: torch.dtype) -> list[str]:
    """Give it memory; where nothing fills a layer, that is a fault, and all are zeros."""
    try:
        materialize(backbone, np.random.default_rng(0), dtype=dtype)
    except ConfigError as error:
        backbone.to(dtype=dtype).to_empty(device="cpu")
        for tensor in (*backbone.parameters(), *backbone.buffers()):
            tensor.data.zero_()
        return error.faults
    return []


def forward_faults(title: str, backbone: Backbone, shape: Shape, dtype: torch.dtype) -> list[str]:
    """What is wrong with the features in both modes, each kind of fault once; leaves the mode as it was.

    Args:
        title: of the model, for messages.
        backbone: on the CPU, with values.
        shape: (channels, height, width) of the inputs.
        dtype: of inputs and parameters.
    """
    dim: object = getattr(backbone, "feature_dim", None)
    if not isinstance(dim, int) or isinstance(dim, bool) or dim < 1:
        return [
            f"{title}: feature_dim is {dim!r}; give the number of features, such as super().__init__(feature_dim=32)"
        ]
    faults: dict[str, str] = {}
    mode = backbone.training
    for training, count in MODES:
        told = f"{title}, {'train' if training else 'eval'} mode, batch of {count}, {dtype}"
        with _traced(backbone.train(training)) as trace:
            try:
                given = features_given(backbone, shape, count, dtype=dtype)
            except Exception as error:
                faults.setdefault("failed", f"{told}: {_failed(error, trace)}")
                continue
        if given != dim:
            faults.setdefault("given", f"{told}: {_misfit(given, dim, trace)}")
    backbone.train(mode)
    return list(faults.values())


def _failed(error: Exception, trace: _Trace) -> str:
    reason = (str(error).strip().splitlines() or [""])[0]
    layer = f" in layer {trace.inside[-1]}" if trace.inside else ""
    return (
        f"forward fails{layer} ({type(error).__name__}: {reason}){plugins.place_of(error)}; make its layers fit such "
        "inputs, which come as (B, channels, height, width), or choose another model or data.image_size"
    )


def _misfit(given: int | str, dim: int, trace: _Trace) -> str:
    last = f" (its last layer is {trace.last})" if trace.last else ""
    if isinstance(given, int):
        remedy = f"pass feature_dim={given} to Backbone.__init__, or change that layer"
    elif given.startswith("shape"):
        remedy = "pool and flatten at the end, such as x.flatten(1), and keep one row for each input"
    else:
        remedy = "return one tensor of the input's dtype, and make constants with it"
    return f"gives {f'{given} features' if isinstance(given, int) else given}, not (B, {dim}) features{last}; {remedy}"


class _Trace:
    """The layers that a forward pass is in, outermost first, and the one it left last."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self.last = ""

    def enter(self, name: str, *_: Any) -> None:
        self.inside.append(name)

    def leave(self, *_: Any) -> None:
        self.last = self.inside.pop()


@contextmanager
def _traced(module: nn.Module) -> Iterator[_Trace]:
    trace, handles = _Trace(), []
    for name, part in module.named_modules():
        if name:
            handles += [part.register_forward_pre_hook(partial(trace.enter, name))]
            handles += [part.register_forward_hook(trace.leave)]
    try:
        yield trace
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def features_given(
    module: nn.Module, shape: Shape, count: int, channels: int | None = None, dtype: torch.dtype = torch.float32
) -> int | str:
    """The number of features of `count` made images, or in words what else is given.

    Args:
        module: on the CPU.
        shape: (channels, height, width) of the images.
        count: of the images.
        channels: that the module takes; by default those of the images.
        dtype: of the images and the module.
    """
    with torch.device("cpu"):
        images = _images(count, shape, dtype)
        features = module(repeated(images, channels or shape[0]))
    if not isinstance(features, Tensor):
        return f"a {type(features).__name__}"
    if features.dim() != 2 or len(features) != count:
        return f"shape {tuple(features.shape)}"
    return features.shape[1] if features.dtype == images.dtype else f"{features.dtype} values"


def _images(count: int, shape: Shape, dtype: torch.dtype) -> Tensor:
    """(count, channels, height, width) numbers from -1 to 1."""
    return torch.linspace(-1, 1, count * prod(shape), dtype=dtype).reshape(count, *shape)


def repeated(images: Tensor, channels: int) -> Tensor:
    """Grey images with their channel repeated; others as they are."""
    return images if images.shape[1] == channels else images.expand(-1, channels, -1, -1)


def random_fault(title: str, module: nn.Module) -> str:
    """What to say of a network that draws random numbers in its forward pass."""
    named = [name for name, part in module.named_modules() if _draws(part)]
    where = f"layer{'s' * (len(named) > 1)} {', '.join(named[:3])}" if named else "its forward pass"
    return (
        f"{title} draws random numbers in training ({where}), so that a run could not be repeated; make it "
        "without dropout and stochastic depth, such as dropout=0.0"
    )


@torch.no_grad()
def is_random(module: nn.Module, shape: Shape, dtype: torch.dtype) -> bool:
    """Whether a forward pass draws from torch, or two of them in training differ; False where it fails."""
    images, state, mode = _images(2, shape, dtype), torch.get_rng_state(), module.training
    try:
        first, again, _ = (module.train(training)(images) for training in (True, True, False))
    except Exception:
        return False
    finally:
        module.train(mode)
        drew = not torch.equal(state, torch.get_rng_state())
        torch.set_rng_state(state)
    floats = all(isinstance(some, Tensor) and some.is_floating_point() for some in (first, again))
    return drew or (floats and not torch.allclose(first, again, rtol=1e-4, equal_nan=True))


def _draws(part: nn.Module) -> bool:
    rate = getattr(part, "p", getattr(part, "drop_prob", 0.0))
    random = isinstance(part, nn.modules.dropout._DropoutNd) or "Drop" in type(part).__name__
    return isinstance(rate, int | float) and rate > 0 and (random or "Stochastic" in type(part).__name__)
