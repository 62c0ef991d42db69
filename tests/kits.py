"""The table of the kit that every registered algorithm must pass: a new algorithm is one `Row` in `ROWS`.

`tests/algorithms/test_kit.py` runs every check on every algorithm of the package; what a row says is special about its
algorithm is itself checked.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

import fedrela_bench.algorithms as package
from fedrela_bench.algorithms import ALGORITHMS

for _module in pkgutil.iter_modules(package.__path__):
    importlib.import_module(f"{package.__name__}.{_module.name}")


@dataclass(frozen=True)
class Equal:
    """Options with which an algorithm is another one."""

    options: Mapping[str, Any]
    other: str = "fedavg"
    other_options: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = 0.0
    """0: bit for bit."""
    equal_clients: bool = False
    """Holds where all clients have as many samples of every class."""
    training: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 3
    names: Mapping[str, str] = field(default_factory=dict)
    """Prefixes of this algorithm's parameters to those of the other; only these are compared. By default all are."""


@dataclass(frozen=True)
class Row:
    """What is special about one algorithm."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """For quick tests; the defaults where nothing is given."""
    variant: str = ""
    """Further rows of one algorithm check what its options add."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Training fields that the method asks for."""
    equals: tuple[Equal, ...] = ()
    server: Literal["mean", "rounding", "own"] = "mean"
    """What the next model is when one client takes part: its parameters bit for bit, up to rounding, or else."""
    overshoot: float = 0.0
    """In the first round the server steps this much further than to the clients' mean."""
    keeps_state: bool = False
    """Whether clients keep something between rounds (their own parameters included)."""
    server_state: tuple[str, ...] = ()
    """Names of what the server keeps besides parameters."""
    free: tuple[str, ...] = ()
    """Server state that clients read and that costs nothing in a round: sent once, or instead of the parameters."""
    own_entry: tuple[str, ...] = ()
    """Server state with one entry per client, of which a client gets its own."""
    derived: tuple[str, ...] = ()
    """Sums that the server can form from others: they cost nothing to send."""
    host_inputs: bool = False
    """Whether choosing an epoch's images reads labels on the host, once per client and round."""
    label_stats: bool = False
    """Whether the local loss reads the counts of the labels in force."""
    learning: Mapping[str, Any] = field(default_factory=dict)
    """Options for the run on digits, over those above."""
    lr: float = 0.1
    """For the run on digits."""
    reaches: float = 0.6
    """Accuracy on digits after the short run: the least of five seeds, less 0.1; the majority class has 0.1."""
    slow: bool = False
    """Whether the run on digits takes more than 2 seconds."""

    @property
    def title(self) -> str:
        """Name and variant."""
        return f"{self.name}-{self.variant}" if self.variant else self.name


PLAIN = {"momentum": 0.0}

ROWS = (
    Row("fedavg"),
    Row("fedprox", {"mu": 0.1}, equals=(Equal({"mu": 0}),)),
    Row("fednova", server="rounding", equals=(Equal({}, tolerance=1e-12, equal_clients=True),)),
    Row(
        "fednova",
        {"server_momentum": 0.5},
        variant="momentum",
        server="own",
        server_state=("velocity",),
    ),
    Row(
        "moon",
        {"projection_dim": 32},
        keeps_state=True,
        reaches=0.35,
        learning={"mu": 0.3},
        equals=(Equal({"mu": 0, "use_projection": False}),),
    ),
    Row(
        "climb",
        {"primal_rounds": 1},
        server="own",
        server_state=("dual", "weights"),
        derived=("weight",),
        equals=(Equal({"dual_lr": 0}, tolerance=1e-12, equal_clients=True),),
    ),
    Row(
        "climb",
        {"primal_rounds": 1, "learner": "fedpd", "dual_signal": "batch_sum"},
        variant="fedpd",
        server="own",
        keeps_state=True,
        server_state=("dual", "weights"),
        own_entry=("weights",),
        derived=("weight",),
    ),
    Row("fedetf", label_stats=True, reaches=0.7),
    Row("fedetf_dotreg", keeps_state=True, reaches=0.7),
    Row("fedetf_dotreg", {"etf_head_bn": "author"}, variant="author", keeps_state=True, reaches=0.7),
    Row("fedloge", {"ssec_steps": 5}, keeps_state=True, lr=0.3, reaches=0.45),
    Row("fedyoyo", {"warmup": 2}, server_state=("effective",), label_stats=True, reaches=0.5),
    Row("fedlc", label_stats=True, reaches=0.65, equals=(Equal({"tau": 0, "absent": "one"}),)),
    Row(
        "scaffold",
        training=PLAIN,
        lr=0.5,
        reaches=0.5,
        keeps_state=True,
        server_state=("variate",),
        equals=(
            Equal({"weighting": "samples"}, training=PLAIN, rounds=1),
            Equal({}, training=PLAIN, rounds=1, tolerance=1e-12, equal_clients=True),
        ),
    ),
    Row("feddyn", {"alpha": 0.1}, server="own", overshoot=1.0, keeps_state=True, server_state=("drift",)),
    Row(
        "feddyn",
        {"alpha": 0.1, "score": "mean_all", "clip_norm": 10.0},
        variant="mean_all",
        server="own",
        keeps_state=True,
        server_state=("drift", "start", "latest", "seen"),
        free=("start",),  # Clients start from it, not from the scored parameters.
        derived=("seen",),
    ),
    Row(
        "ratio_loss",
        server_state=("weights",),
        learning={"ratio": "outliers"},
        lr=0.05,
        reaches=0.5,
        equals=(Equal({"beta": 0, "aggregation": "n_weighted"}),),
    ),
    Row("fedfocal", equals=(Equal({"gamma": 0}),)),
    Row(
        "fedrod",
        keeps_state=True,
        label_stats=True,
        equals=(Equal({"gamma": 0}, names={"backbone.": "backbone.", "head.generic.": "head."}),),
    ),
    Row(
        "logit_adjustment", label_stats=True, equals=(Equal({"tau": 0}), Equal({}, "balanced_softmax", tolerance=1e-12))
    ),
    Row(
        "logit_adjustment",
        {"prior": "global_oracle"},
        variant="oracle",
        server_state=("prior",),
    ),
    Row(
        "logit_adjustment",
        {"form": "posthoc", "prior": "estimated"},
        variant="posthoc",
        server_state=("prior",),
        equals=(Equal({}),),
    ),
    Row("balanced_softmax", label_stats=True),
    Row(
        "equalization",
        {"threshold": 0.3},
        label_stats=True,
        learning={"threshold": "auto"},
        equals=(Equal({"gamma": 0}), Equal({"threshold": 0.0})),
    ),
    Row(
        "creff",
        {"features_per_class": 10, "match_steps": 5, "retrain_epochs": 10, "repeats": 3},
        learning={"features_per_class": 20, "match_steps": 50, "retrain_epochs": 50, "retrain_lr": 0.1},
        server_state=("features", "classifier"),
        equals=(Equal({}),),
    ),
    Row(
        "fedgrab",
        reaches=0.55,
        keeps_state=True,
        equals=(Equal({"kp": 0, "ki": 0, "kd": 0}, "equalization", {"form": "sigmoid", "gamma": 0}, tolerance=1e-12),),
    ),
    Row(
        "fedmix",
        {"lam": 0.1},
        reaches=0.55,
        server_state=("means", "labels"),
        free=("means", "labels"),
        equals=(Equal({"lam": 0}),),
    ),
    Row(
        "naivemix",
        {"lam": 0.1},
        reaches=0.55,
        server_state=("means", "labels"),
        free=("means", "labels"),
        equals=(Equal({"lam": 0}),),
    ),
    Row("oversampling", host_inputs=True),
    Row("smote", {"neighbours": 2}, host_inputs=True, reaches=0.75),
    Row("mixup", reaches=0.45, equals=(Equal({"alpha": 0}),)),
    Row("remix", label_stats=True, reaches=0.5, equals=(Equal({"alpha": 0}), Equal({"kappa": 1e12}, "mixup"))),
)


def names() -> list[str]:
    """Every algorithm that comes with the package; those that other tests register are theirs to check."""
    return sorted(name for name, kind in ALGORITHMS.items() if kind.__module__.startswith(package.__name__))


def rows_of(name: str) -> list[Row]:
    """The algorithm's rows; a test fails without one."""
    found = [row for row in ROWS if row.name == name]
    if not found:
        pytest.fail(
            f"algorithm {name!r} has no row in tests/kits.py: add Row({name!r}, ...) to ROWS, with its degenerate "
            "cases, how its server combines, what it keeps, and the accuracy that it must reach on digits"
        )
    return found
