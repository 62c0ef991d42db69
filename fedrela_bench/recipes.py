"""Settings per dataset: published sizes and sizes for a CPU, which the configuration starts from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from fedrela_bench.data.names import IMAGENET_FACTOR, NAMING_CLIENTS
from fedrela_bench.nested import Json

Size = Literal["cpu", "paper"]
SIZES: tuple[Size, ...] = ("cpu", "paper")
ETF_FAMILY = frozenset({"fedetf", "fedetf_dotreg", "fedloge"})
"""Algorithms that FedReLa trains with momentum 0.5, no weight decay and learning rate 0.03."""


@dataclass(frozen=True)
class Recipe:
    """Published or scaled-down settings of one (source, profile) at one size."""

    model: str
    clients: int
    rounds: int
    local_epochs: int
    batch_size: int
    lr: float
    alpha: float = 0.3
    imbalance_factor: float = 100.0
    plain_images: bool = False
    """No augmentation and no normalisation: images in [0, 1]."""
    image_size: int | None = None
    participation: float = 1.0
    etf_batch: int = 8
    """Batch size of the ETF family at the published size."""


_LT, _STEP = "lt", "step"
_PAPER: dict[tuple[str, str], Recipe] = {
    ("fashion_mnist", _STEP): Recipe("cnn", 100, 500, 5, 64, 0.01, imbalance_factor=20),
    ("cifar10", _STEP): Recipe("cnn", 100, 500, 5, 64, 0.01, imbalance_factor=20),
    ("cifar100", _STEP): Recipe("resnet18", 10, 500, 5, 64, 0.01, imbalance_factor=20),
    ("fashion_mnist", _LT): Recipe("cnn", 40, 500, 5, 64, 0.01),
    ("cifar10", _LT): Recipe("resnet18", 40, 500, 5, 64, 0.01),
    ("cifar100", _LT): Recipe("resnet34", 10, 500, 5, 64, 0.01, alpha=0.1),
    ("digits", _LT): Recipe("digits", 20, 200, 5, 16, 0.05),
    # The paper states clients, participation and skew alone. Rounds and batch size are those of FedYoYo's own settings,
    # epochs those of FedReLa's released recipes; ResNet-50 at 224 pixels is usual for the set.
    ("imagenet", _LT): Recipe("resnet50", 20, 200, 5, 32, 0.01, 0.1, IMAGENET_FACTOR, False, 224, 0.4, 32),
}
_CPU: dict[tuple[str, str], Recipe] = {
    ("fashion_mnist", _STEP): Recipe("lenet", 100, 60, 2, 32, 0.05, imbalance_factor=20, plain_images=True),
    ("cifar10", _STEP): Recipe("lenet", 100, 30, 2, 32, 0.05, imbalance_factor=20),
    ("cifar100", _STEP): Recipe("lenet", 10, 30, 2, 32, 0.05, imbalance_factor=20),
    ("fashion_mnist", _LT): Recipe("lenet", 40, 60, 2, 32, 0.05, plain_images=True),
    ("cifar10", _LT): Recipe("lenet", 40, 50, 2, 32, 0.05),
    ("cifar100", _LT): Recipe("lenet", 10, 50, 2, 32, 0.05, alpha=0.1),
    ("digits", _LT): Recipe("digits", 5, 80, 1, 32, 0.05),
    ("imagenet", _LT): Recipe("lenet_wide", 20, 30, 1, 32, 0.05, 0.1, IMAGENET_FACTOR, False, 64, 0.4),
}
_OWN_IMAGES: dict[Size, Recipe] = {
    "paper": Recipe("resnet18", 20, 200, 5, 32, 0.01, image_size=32),
    "cpu": Recipe("lenet", 10, 30, 2, 32, 0.05, image_size=32),
}
_OWN: dict[str, dict[Size, Recipe]] = {
    # 28 is the side of MedMNIST's own small images.
    "npz": {size: replace(recipe, image_size=28) for size, recipe in _OWN_IMAGES.items()},
    "table": {"paper": Recipe("mlp", 20, 200, 5, 32, 0.01), "cpu": Recipe("mlp", 10, 50, 2, 32, 0.05)},
}


def dataset_defaults(source: str, profile: str, algorithm: str, size: Size, partition: str | None = None) -> Json:
    """The settings of a dataset at one size, as nested configuration values.

    `paper` holds the sizes published with FedReLa (its Section 5 and Appendix, the released recipes, and MOON's and
    FedLoGe's settings where it is silent); `cpu` keeps the shape of the experiment (T/R, tau, skew, imbalance) and
    shrinks network, rounds and local epochs. A balanced or natural profile takes the long-tailed recipe without its
    imbalance. The natural profile of a source that can name clients also deals by them.

    Args:
        source: a valid source.
        profile: of the data.
        algorithm: the base algorithm.
        size: which settings.
        partition: what is known of `data.partition`; None where nothing is.
    """
    recipe = _recipe(source, profile, size)
    named = profile == "natural" and source.partition(":")[0] in NAMING_CLIENTS
    natural = partition == "natural" or (partition is None and named)
    data: Json = {"partition": "natural"} if natural else {"alpha": recipe.alpha}
    if profile in (_LT, _STEP):
        data["imbalance_factor"] = recipe.imbalance_factor
    if profile == _STEP:
        data |= {"minority": "even", "minority_fraction": 0.3}
    if recipe.plain_images:
        data |= {"augment": "none", "normalize": "none"}
    if recipe.image_size is not None:
        data["image_size"] = recipe.image_size
    clients = "auto" if natural else recipe.clients
    federation = {"clients": clients, "participation": recipe.participation, "rounds": recipe.rounds}
    return {"data": data, "federation": federation, "training": _training(recipe, profile, algorithm, size)}


def _recipe(source: str, profile: str, size: Size) -> Recipe:
    table = _PAPER if size == "paper" else _CPU
    known = table.get((source, profile)) or table.get((source, _LT))
    return known or _OWN.get(source.partition(":")[0], _OWN_IMAGES)[size]


def _training(recipe: Recipe, profile: str, algorithm: str, size: Size) -> Json:
    values = {
        "model": recipe.model,
        "local_epochs": recipe.local_epochs,
        "batch_size": recipe.batch_size,
        "lr": recipe.lr,
        "momentum": 0.9,
        "weight_decay": 1e-5,
    }
    if algorithm in ETF_FAMILY:
        values |= {"lr": 0.03, "momentum": 0.5, "weight_decay": 0.0}
        if size == "paper" and profile == _LT:
            values["batch_size"] = recipe.etf_batch
    return values
