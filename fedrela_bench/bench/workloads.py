"""The named workloads: their configurations, and what is made smaller to keep them short."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fedrela_bench.config import TrialConfig, parse
from fedrela_bench.nested import Json, deep_merge
from fedrela_bench.recipes import dataset_defaults

Kind = Literal["round", "relabel", "memory"]
ENDLESS = 1_000_000
"""Rounds of a run that is never in its last one, whose evaluation could differ."""


@dataclass(frozen=True)
class Images:
    """Shape of the images that stand in for the real ones; training time does not depend on pixel values."""

    size: tuple[int, int, int]
    """(H, W, C)."""
    classes: int
    per_class: int
    """Training images of each class before the profile thins them."""
    test: int


@dataclass(frozen=True)
class Cut:
    """A workload too long to be timed whole: clients are kept, in order, up to so many images."""

    train: int
    test: int


@dataclass(frozen=True)
class Workload:
    """What is timed under a name."""

    name: str
    kind: Kind
    purpose: str
    values: Json
    """Nested fields of the configuration."""
    images: Images | None
    """None: the source comes with the package's dependencies and is always there."""
    short: Mapping[str, Any] = field(default_factory=dict)
    """Dotted fields that ``--short`` changes."""
    short_cut: Cut | None = None
    cuts: Mapping[str, Cut] = field(default_factory=dict)
    """By kind of device; what is left out is extrapolated."""
    targets: Mapping[str, float] = field(default_factory=dict)
    """Highest ratios that this project aims at; not part of the short form."""

    def config(self, short: bool) -> TrialConfig:
        """The configuration that is timed."""
        config = parse(self.values)
        return config.replace(self.short) if short else config

    def cut(self, short: bool, device: str) -> Cut | None:
        """What is kept of the images; None: all."""
        return self.short_cut if short else self.cuts.get(device)


def _endless(evaluated: bool) -> Json:
    return {"federation": {"rounds": ENDLESS}, "evaluation": {"eval_every": 1 if evaluated else ENDLESS}}


def _fashion() -> Json:
    return {
        "data": {"source": "fashion_mnist", "profile": "balanced", "n_max": 600, "alpha": 0.3},
        "federation": {"clients": 20, "rounds": ENDLESS},
        "training": {
            "model": "fmcnn",
            "local_epochs": 2,
            "batch_size": 10,
            "lr": 0.01,
            "momentum": 0.9,
            "weight_decay": 0.0,
        },
    }


def _paper(source: str, clients: int, model: str) -> Json:
    """The published sizes of a long-tailed set with batches of 8."""
    sizes = {"data": {"source": source}, "federation": {"clients": clients}, "training": {"model": model}}
    return deep_merge(
        dataset_defaults(source, "lt", "fedavg", "paper"), sizes, {"training": {"batch_size": 8}}, _endless(True)
    )


def _residual() -> Json:
    values = {
        "data": {"source": "cifar10", "profile": "balanced", "n_max": 16, "partition": "iid"},
        "federation": {"clients": 4},
        "training": {"model": "resnet18", "local_epochs": 1, "batch_size": 8, "lr": 0.01, "weight_decay": 0.0},
    }
    return deep_merge(values, _endless(False))


_FASHION = Images((28, 28, 1), 10, 6_000, 10_000)
_CIFAR10 = Images((32, 32, 3), 10, 5_000, 10_000)
_CIFAR100 = Images((32, 32, 3), 100, 500, 10_000)
_FASHION_SHORT: Json = {"data.n_max": 30, "federation.clients": 2}

WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            "fm",
            "round",
            "a round of a small CNN: 6,000 images, 20 clients, 2 epochs in batches of 10, 10,000 images to evaluate",
            _fashion(),
            _FASHION,
            _FASHION_SHORT,
            Cut(300, 500),
            targets={
                "ours/naive": 0.57,
                "ours w2/naive": 0.32,
                "ours bf16 w2/naive": 0.24,
                "round/bare": 1 / (1 - 0.03),
            },
        ),
        Workload(
            "digits",
            "round",
            "a round of the default study: scikit-learn's digits, long-tailed, 5 clients",
            deep_merge(
                {"data": {"source": "digits", "profile": "lt"}},
                dataset_defaults("digits", "lt", "fedavg", "cpu"),
                _endless(True),
            ),
            None,
            targets={"round/bare": 1 / (1 - 0.10)},
        ),
        Workload(
            "relabel",
            "relabel",
            "FedReLa's pass over all clients of fm, against a training round",
            deep_merge(_fashion(), {"relabel": {"tau": 0.05, "start": 1}}),
            _FASHION,
            _FASHION_SHORT,
            Cut(300, 500),
            targets={"relabel/round": 1 / 3},
        ),
        Workload(
            "memory",
            "memory",
            "peak memory with 10 and with 10,000 clients that share the same images",
            {
                "data": {"source": "digits", "profile": "balanced", "partition": "iid"},
                "federation": {"clients": 10_000, "rounds": ENDLESS},
                "training": {"model": "digits", "local_epochs": 1, "batch_size": 32},
            },
            Images((8, 8, 1), 10, 2_000, 1_000),
            {"federation.clients": 2_000},
            Cut(20_000, 100),
            targets={"memory": 1.05},
        ),
        Workload(
            "resnet18",
            "round",
            "local training of a ResNet-18: 4 clients of 40 images, batches of 8, nothing evaluated",
            _residual(),
            _CIFAR10,
            {"federation.clients": 2},
            Cut(32, 10),
            targets={"ours/floor": 1.15},
        ),
        Workload(
            "cifar10_lt",
            "round",
            "CIFAR-10-LT in the published size: ResNet-18, 40 clients, 5 epochs, batches of 8",
            _paper("cifar10", 40, "resnet18"),
            _CIFAR10,
            {"training.local_epochs": 1},
            Cut(32, 32),
            {"cpu": Cut(64, 200), "cuda": Cut(1_500, 10_000)},
        ),
        Workload(
            "cifar100_lt",
            "round",
            "CIFAR-100-LT in the published size: ResNet-34, 10 clients, 5 epochs, batches of 8",
            _paper("cifar100", 10, "resnet34"),
            _CIFAR100,
            {"training.local_epochs": 1},
            Cut(32, 32),
            {"cpu": Cut(32, 200), "cuda": Cut(1_500, 10_000)},
        ),
    )
}
DEFAULT = ("fm", "digits", "relabel", "memory")
"""What is timed where nothing is named."""
