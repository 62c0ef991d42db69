"""Forward passes that show what a network gives, before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from fedrela_bench import plugins
from fedrela_bench.errors import ConfigError
from fedrela_bench.models.base import Backbone

Shape = tuple[int, int, int]
_PROVEN: dict[tuple[Callable[..., Any], Shape, str], list[str]] = {}


def prove_backbone(name: str, build: Callable[[Shape, str], Backbone], shape: Shape, norm: str) -> None:
    """Show that a backbone gives (B, feature_dim) float features and draws no random numbers; asked once per shape.

    Args:
        name: for messages.
        build: makes it.
        shape: (channels, height, width) of the inputs.
        norm: for `build`.

    Raises:
        ConfigError: it does not.
    """
    key = (build, shape, norm)
    if key not in _PROVEN:
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            _PROVEN[key] = list(_faults(f"model {name}", build(shape, norm), shape))
    if _PROVEN[key]:
        raise ConfigError(_PROVEN[key])


def _faults(title: str, backbone: Backbone, shape: Shape) -> Iterator[str]:
    dim = getattr(backbone, "feature_dim", None)
    if not isinstance(dim, int) or dim < 1:
        yield f"{title}: feature_dim is {dim!r}; give the number of features, such as super().__init__(feature_dim=32)"
        return
    state = torch.get_rng_state()
    try:
        sizes = [features_given(backbone.train(mode), shape, count) for mode, count in ((True, 2), (False, 3))]
    except Exception as error:
        size = "x".join(map(str, shape))
        reason = (str(error).strip().splitlines() or [""])[0]
        yield (
            f"{title} does not take inputs of {size} ({type(error).__name__}: {reason}){plugins.place_of(error)}; "
            "correct its forward, or choose another model or data.image_size"
        )
        return
    if not torch.equal(state, torch.get_rng_state()):
        yield random_fault(title, backbone)
    wrong = next((size for size in sizes if size != dim), None)
    if wrong is not None:
        given = f"{wrong} features" if isinstance(wrong, int) else wrong
        yield f"{title} gives {given}, not (B, {dim}) float32 features; correct its forward or its feature_dim"


@torch.no_grad()
def features_given(module: nn.Module, shape: Shape, count: int, channels: int | None = None) -> int | str:
    """The number of features of `count` made images, or in words what else is given.

    Args:
        module: on the CPU.
        shape: (channels, height, width) of the images.
        count: of the images.
        channels: that the module takes; by default those of the images.
    """
    with torch.device("cpu"):
        images = torch.linspace(-1, 1, count * shape[0] * shape[1] * shape[2]).reshape(count, *shape)
        features = module(repeated(images, channels or shape[0]))
    if not isinstance(features, Tensor):
        return f"a {type(features).__name__}"
    if features.dim() != 2 or len(features) != count:
        return f"shape {tuple(features.shape)}"
    return features.shape[1] if features.dtype == images.dtype else f"{features.dtype} values"


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


def _draws(part: nn.Module) -> bool:
    rate = getattr(part, "p", getattr(part, "drop_prob", 0.0))
    random = isinstance(part, nn.modules.dropout._DropoutNd) or "Drop" in type(part).__name__
    return isinstance(rate, int | float) and rate > 0 and (random or "Stochastic" in type(part).__name__)
