"""What the kit should know of an algorithm: a `Case`, and the table of those that come with the package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args, get_type_hints

from fedrela_bench.algorithms import ALGORITHMS, check_algorithm
from fedrela_bench.errors import ConfigError
from fedrela_bench.faults import unknown_name

MAJORITY = 0.1
"""Accuracy on digits of always naming one class: the test set is balanced."""


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
class Case:
    """What is special about one algorithm; what it says is itself checked."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """For quick tests; the defaults where nothing is given."""
    variant: str = ""
    """Further cases of one algorithm check what its options add."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Training fields that the method asks for."""
    equals: tuple[Equal, ...] = ()
    server: Literal["mean", "rounding", "own", "other"] = "mean"
    """What the next model is when one client takes part: its parameters bit for bit, up to rounding, or else. other:
    not even in the first round, where all clients' parameters are one client's, as with an optimiser on the server."""
    overshoot: float = 0.0
    """In the first round the server steps this much further than to the clients' mean."""
    keeps_state: bool | None = None
    """Whether clients keep something between rounds (their own parameters included); None: as it declares."""
    server_state: tuple[str, ...] | None = None
    """Names of what the server keeps besides parameters; None: whatever it is."""
    free: tuple[str, ...] = ()
    """Server state that clients read and that costs nothing in a round: sent once, or instead of the parameters."""
    own_entry: tuple[str, ...] = ()
    """Server state with one entry per client, of which a client gets its own."""
    derived: tuple[str, ...] = ()
    """Sums that the server can form from others: they cost nothing to send."""
    host_inputs: bool = False
    """Whether choosing an epoch's images reads labels on the host, once per client and round."""
    label_stats: bool | None = None
    """Whether the local loss reads the counts of the labels in force; None: if it does in a client's first round."""
    learning: Mapping[str, Any] = field(default_factory=dict)
    """Options for the run on digits, over those above."""
    lr: float = 0.1
    """For the run on digits."""
    reaches: float = 2 * MAJORITY
    """Accuracy on digits after the short run; of the package's algorithms the least of five seeds, less 0.1."""
    slow: bool = False
    """Whether the run on digits takes more than 2 seconds."""

    @property
    def title(self) -> str:
        """Name and variant."""
        return f"{self.name}-{self.variant}" if self.variant else self.name


def _row(name: str, options: Mapping[str, Any] | None = None, **facts: Any) -> Case:
    """A case of an algorithm of the package: nothing about it is left open."""
    closed: dict[str, Any] = {"keeps_state": False, "server_state": (), "label_stats": False, "reaches": 0.6}
    return Case(name, options or {}, **{**closed, **facts})


PLAIN = {"momentum": 0.0}

SHIPPED = (
    _row("fedavg"),
    _row("fedprox", {"mu": 0.1}, equals=(Equal({"mu": 0}),)),
    _row("fednova", server="rounding", equals=(Equal({}, tolerance=1e-12, equal_clients=True),)),
    _row(
        "fednova",
        {"server_momentum": 0.5},
        variant="momentum",
        server="own",
        server_state=("velocity",),
    ),
    _row(
        "moon",
        {"projection_dim": 32},
        keeps_state=True,
        reaches=0.35,
        learning={"mu": 0.3},
        equals=(Equal({"mu": 0, "use_projection": False}),),
    ),
    _row(
        "climb",
        {"primal_rounds": 1},
        server="own",
        server_state=("dual", "weights"),
        derived=("weight",),
        equals=(Equal({"dual_lr": 0}, tolerance=1e-12, equal_clients=True),),
    ),
    _row(
        "climb",
        {"primal_rounds": 1, "learner": "fedpd", "dual_signal": "batch_sum"},
        variant="fedpd",
        server="own",
        keeps_state=True,
        server_state=("dual", "weights"),
        own_entry=("weights",),
        derived=("weight",),
    ),
    _row("fedetf", label_stats=True, reaches=0.7),
    _row("fedetf_dotreg", keeps_state=True, reaches=0.7),
    _row("fedetf_dotreg", {"etf_head_bn": "author"}, variant="author", keeps_state=True, reaches=0.7),
    _row("fedloge", {"ssec_steps": 5}, keeps_state=True, lr=0.3, reaches=0.45),
    _row("fedyoyo", {"warmup": 2}, server_state=("effective",), label_stats=True, reaches=0.5),
    _row("fedlc", label_stats=True, reaches=0.65, equals=(Equal({"tau": 0, "absent": "one"}),)),
    _row(
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
    _row("feddyn", {"alpha": 0.1}, server="own", overshoot=1.0, keeps_state=True, server_state=("drift",)),
    _row(
        "feddyn",
        {"alpha": 0.1, "score": "mean_all", "clip_norm": 10.0},
        variant="mean_all",
        server="own",
        keeps_state=True,
        server_state=("drift", "start", "latest", "seen"),
        free=("start",),  # Clients start from it, not from the scored parameters.
        derived=("seen",),
    ),
    _row(
        "ratio_loss",
        server_state=("weights",),
        learning={"ratio": "outliers"},
        lr=0.05,
        reaches=0.5,
        equals=(Equal({"beta": 0, "aggregation": "n_weighted"}),),
    ),
    _row("fedfocal", equals=(Equal({"gamma": 0}),)),
    _row(
        "fedrod",
        keeps_state=True,
        label_stats=True,
        equals=(Equal({"gamma": 0}, names={"backbone.": "backbone.", "head.generic.": "head."}),),
    ),
    _row(
        "logit_adjustment", label_stats=True, equals=(Equal({"tau": 0}), Equal({}, "balanced_softmax", tolerance=1e-12))
    ),
    _row(
        "logit_adjustment",
        {"prior": "global_oracle"},
        variant="oracle",
        server_state=("prior",),
    ),
    _row(
        "logit_adjustment",
        {"form": "posthoc", "prior": "estimated"},
        variant="posthoc",
        server_state=("prior",),
        equals=(Equal({}),),
    ),
    _row("balanced_softmax", label_stats=True),
    _row(
        "equalization",
        {"threshold": 0.3},
        label_stats=True,
        learning={"threshold": "auto"},
        equals=(Equal({"gamma": 0}), Equal({"threshold": 0.0})),
    ),
    _row(
        "creff",
        {"features_per_class": 10, "match_steps": 5, "retrain_epochs": 10, "repeats": 3},
        learning={"features_per_class": 20, "match_steps": 50, "retrain_epochs": 50, "retrain_lr": 0.1},
        server_state=("features", "classifier"),
        equals=(Equal({}),),
    ),
    _row(
        "fedgrab",
        reaches=0.55,
        keeps_state=True,
        equals=(Equal({"kp": 0, "ki": 0, "kd": 0}, "equalization", {"form": "sigmoid", "gamma": 0}, tolerance=1e-12),),
    ),
    _row(
        "fedmix",
        {"lam": 0.1},
        reaches=0.55,
        server_state=("means", "labels"),
        free=("means", "labels"),
        equals=(Equal({"lam": 0}),),
    ),
    _row(
        "naivemix",
        {"lam": 0.1},
        reaches=0.55,
        server_state=("means", "labels"),
        free=("means", "labels"),
        equals=(Equal({"lam": 0}),),
    ),
    _row("oversampling", host_inputs=True),
    _row("smote", {"neighbours": 2}, host_inputs=True, reaches=0.75),
    _row("mixup", reaches=0.45, equals=(Equal({"alpha": 0}),)),
    _row("remix", label_stats=True, reaches=0.5, equals=(Equal({"alpha": 0}), Equal({"kappa": 1e12}, "mixup"))),
)


def cases_of(name: str, options: Mapping[str, Any] | None = None, **facts: Any) -> tuple[Case, ...]:
    """What to check of an algorithm.

    Args:
        name: of a registered algorithm.
        options: by default those of the package's table, or the algorithm's own defaults.
        facts: fields of `Case`, over those of the class attribute ``kit``.

    Raises:
        ConfigError: unknown algorithm, wrong options, or a fact that no case has.
    """
    known = sorted(field.name for field in fields(Case) if field.name not in ("name", "options"))
    kind = ALGORITHMS.get(name)
    given = {**(kind.kit if kind is not None else {}), **facts}
    faults = [unknown_name("fact", fact, fact, known) for fact in given if fact not in known]
    kinds = get_args(get_type_hints(Case)["server"])
    if given.get("server", kinds[0]) not in kinds:
        faults.append(f"fact server = {given['server']!r}; give one of {', '.join(kinds)}")
    faults += check_algorithm(name, options or {})
    if faults:
        raise ConfigError(faults)
    shipped = tuple(case for case in SHIPPED if case.name == name)
    if shipped and options is None and not facts:
        return shipped
    first = shipped[0] if shipped else Case(name)
    return (replace(first, options=first.options if options is None else dict(options), **given),)
