"""Backbones by name, and heads.

    backbone = build_backbone("lenet", (1, 28, 28), norm="batch")      # on the meta device: no memory, nothing drawn
    net = Net(backbone, nn.Linear(backbone.feature_dim, 10, device="meta"))
    materialize(net, generator(seed, "init"), device="cpu", dtype=torch.float32)

A model of one's own is a function with the decorator `register_model`; any `nn.Module` that names its head becomes one
by `register_module`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from fedrela_bench import plugins
from fedrela_bench.errors import ConfigError
from fedrela_bench.faults import unknown_name
from fedrela_bench.models.base import Backbone, Net, Outputs, materialize
from fedrela_bench.models.heads import (
    CosineETFHead,
    DotRegressionETFHead,
    dot_regression_loss,
    etf_lengths,
    simplex_etf,
)
from fedrela_bench.models.passes import backbone_faults
from fedrela_bench.models.resnet import DEPTHS, build_resnet
from fedrela_bench.models.small import PLANS, build_small
from fedrela_bench.models.wrapped import Wrapped, from_module, register_module

__all__ = [
    "MODEL_NAMES",
    "Backbone",
    "CosineETFHead",
    "DotRegressionETFHead",
    "Net",
    "Outputs",
    "build_backbone",
    "default_model",
    "dot_regression_loss",
    "etf_lengths",
    "from_module",
    "materialize",
    "model_names",
    "prove_model",
    "register_model",
    "register_module",
    "simplex_etf",
    "wide_models",
]

Shape = tuple[int, int, int]
Builder = Callable[[Shape, str], Backbone]

_BUILDERS: dict[str, Builder] = {}
_PROVEN: dict[tuple[object, ...], Builder] = {}
"""Models of plugins that gave what they say, by name, images, norm and dtype."""


def register_model(name: str) -> Callable[[Builder], Builder]:
    """Decorator: make ``build(input_shape, norm) -> Backbone`` available as ``training.model = name``.

    Raises:
        ConfigError: the name is taken or is no name, or what is decorated cannot be called. While a plugin is imported,
            such faults are collected with its others.
    """
    if callable(name):
        plugins.refuse([f'register_model needs a name; write @register_model("mine") above {_shown(name)}'])
        return name

    def add(build: Builder) -> Builder:
        faults = list(_model_faults(name, build))
        if faults:
            plugins.refuse(faults)
            return build
        _BUILDERS[name] = build
        plugins.note("model", _BUILDERS, name)
        return build

    return add


def _shown(build: Any) -> str:
    return str(getattr(build, "__name__", build))


def _model_faults(name: Any, build: Any) -> Iterator[str]:
    if not isinstance(name, str):
        yield f'model name {name!r} is no text; write @register_model("mine")'
        return
    yield from plugins.name_faults(name, "model")
    if name in _BUILDERS:
        yield f"a model named {name} is registered already; choose another name"
    if not callable(build):
        yield f"register_model is for functions build(input_shape, norm) that return a Backbone, not for {build!r}"


def _register_shipped() -> None:
    for name in PLANS:
        register_model(name)(partial(build_small, name))
    for name in DEPTHS:
        register_model(name)(partial(build_resnet, name))


_register_shipped()

MODEL_NAMES: tuple[str, ...] = tuple(_BUILDERS)
"""The models that come with the package."""


def model_names() -> tuple[str, ...]:
    """All models by name, registered ones included."""
    return tuple(_BUILDERS)


def wide_models(features: int) -> tuple[str, ...]:
    """The models that come with the package and have at least that many features, whatever the images."""
    return tuple(name for name in MODEL_NAMES if build_backbone(name, (3, 64, 64)).feature_dim >= features)


def build_backbone(name: str, input_shape: Shape, norm: str = "batch") -> Backbone:
    """A backbone on the meta device; `materialize` gives it memory and values.

    Args:
        name: one of `model_names()`.
        input_shape: (channels, height, width) of the images.
        norm: ``batch`` or ``group``; used by the ResNets.

    Raises:
        ConfigError: unknown name, or images too small for the model.
    """
    if name not in _BUILDERS:
        raise ConfigError(unknown_name("model", name, name, _BUILDERS))
    with torch.device("meta"):
        try:
            backbone = _BUILDERS[name](input_shape, norm)
        except ConfigError:
            raise
        except Exception as error:
            shape = "x".join(map(str, input_shape))
            raise ConfigError(
                f"model {name} cannot be built for inputs of {shape} ({type(error).__name__}: {error})"
                f"{plugins.place_of(error)}; correct its function, which is called with (input_shape, norm)"
            ) from error
    if not isinstance(backbone, Backbone):
        raise ConfigError(
            f"model {name} is a {type(backbone).__name__}, not a fedrela_bench.models.Backbone; derive from Backbone, "
            "or register an nn.Module with register_module(name, make, head=...)"
        )
    return backbone


def prove_model(name: str, input_shape: Shape, norm: str = "batch", dtype: torch.dtype = torch.float32) -> None:
    """Show by forward passes that a model of a plugin gives what it says; those of the package are known to.

    Args:
        name: one of `model_names()`.
        input_shape: (channels, height, width) of the images.
        norm: ``batch`` or ``group``.
        dtype: of the run.

    Raises:
        ConfigError: its features have another shape or type, or it draws random numbers: all of it.
    """
    key = name, tuple(input_shape), norm, dtype
    if name in MODEL_NAMES or (key in _PROVEN and _PROVEN[key] is _BUILDERS.get(name)):
        return
    backbone = build_backbone(name, input_shape, norm)
    # A wrapped module was looked at when its builder was called for such images.
    faults = [] if isinstance(backbone, Wrapped) else backbone_faults(name, backbone, input_shape, dtype)
    if faults:
        raise ConfigError(faults)
    _PROVEN[key] = _BUILDERS[name]


def default_model(source: str, input_shape: Shape, profile: str) -> str:
    """The model of the published setting of a dataset, or one that suits the size of the images.

    Args:
        source: such as ``cifar100`` or ``folder:PATH``.
        input_shape: (channels, height, width).
        profile: ``lt``, ``step``, ``balanced`` or ``natural``.
    """
    if source.partition(":")[0] == "table":
        return "mlp"
    if source == "imagenet":
        return "resnet50"
    side = min(input_shape[1:])
    if side < 16:
        return "digits"
    if source == "cifar100":
        return "resnet34"
    small = source == "fashion_mnist" or profile == "step" or side < 32
    return "cnn" if small else "resnet18"
