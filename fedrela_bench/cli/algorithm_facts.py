"""What can be said about a base algorithm without running it: options, state and messages as formulas and floats."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from inspect import cleandoc
from math import prod
from typing import TYPE_CHECKING, Any

from fedrela_bench.plugins import origin_of, space_of

if TYPE_CHECKING:
    from fedrela_bench.algorithms.base import Algorithm, ModelSize
    from fedrela_bench.config import TrialConfig

EVALUATED = (
    "fedavg",
    "fedprox",
    "fednova",
    "moon",
    "climb",
    "fedetf",
    "fedetf_dotreg",
    "fedloge",
    "fedyoyo",
    "fedlc",
)
"""Base algorithms that FedReLa's paper evaluates, in its order."""
FAMILIES = {
    "evaluated": "evaluated with FedReLa in its paper",
    "related": "related and competing methods",
    "plugin": "from plugins",
}
SYMBOLS = {"shared": "P", "private": "p", "buffers": "b", "features": "d", "classes": "C"}
LEGEND = (
    "P: floats of the shared model (b of them running statistics), p: of the client's own part, d: features, C: classes"
)
Shape = tuple[int, int, int]
KNOWN: dict[str, tuple[Shape, int]] = {
    "digits": ((1, 8, 8), 10),
    "fashion_mnist": ((1, 28, 28), 10),
    "cifar10": ((3, 32, 32), 10),
    "cifar100": ((3, 32, 32), 100),
}
"""Image shapes and classes of the named sources, so that sizes need no download."""


@dataclass(frozen=True)
class OptionFacts:
    """One hyperparameter."""

    name: str
    default: Any
    values: str
    """Range or choices."""
    about: str


@dataclass(frozen=True)
class Cost:
    """Floats, as a formula in the sizes of a model (None where there is none) and for one model."""

    formula: str | None
    floats: int


@dataclass(frozen=True)
class Facts:
    """One base algorithm."""

    name: str
    purpose: str
    family: str
    citation: str
    notes: str
    """What its class says about itself, FedReLa included."""
    differences: str
    posterior_heads: tuple[str, ...]
    options: tuple[OptionFacts, ...]
    dataset: str
    model: str
    state: Cost
    down: Cost
    up: Cost
    space: str | None
    example: str
    published: str | None
    """A run with the settings of the authors' own experiments, as far as they are known."""
    plugin: str = ""
    """Where it comes from, if not with the package."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            **asdict(self),
            "posterior_heads": list(self.posterior_heads),
            "options": list(map(asdict, self.options)),
        }


def family_of(name: str) -> str:
    """``evaluated``, ``related`` or ``plugin``."""
    if origin_of("algorithm", name):
        return "plugin"
    return "evaluated" if name in EVALUATED else "related"


def in_order(names: Sequence[str]) -> list[str]:
    """Evaluated algorithms in the paper's order, then the others by name."""
    known = [name for name in EVALUATED if name in names]
    return known + sorted(set(names) - set(known))


def facts_of(kind: type[Algorithm], config: TrialConfig, dataset: str) -> Facts:
    """Everything about an algorithm, its costs for the model of a configuration.

    Args:
        kind: the algorithm.
        config: names source, model and options.
        dataset: its name, as the user writes it.

    Raises:
        ConfigError: the model does not suit the images.
        DataError: the images of a folder or parquet source cannot be read.
    """
    from fedrela_bench.study.spacefind import algorithm_space

    model, algorithm, size = measure(config)
    space = algorithm_space(kind.name)
    return Facts(
        name=kind.name,
        purpose=kind.purpose,
        family=family_of(kind.name),
        citation=kind.citation,
        notes=notes_of(kind),
        differences=kind.differences,
        posterior_heads=kind.posterior_heads,
        options=tuple(options_of(kind)),
        dataset=dataset,
        model=model,
        state=cost_of(algorithm.client_state_floats, size),
        down=cost_of(lambda some: algorithm.communication(some)[0], size),
        up=cost_of(lambda some: algorithm.communication(some)[1], size),
        space=(kind.name if space_of(kind.name) else None) if space is None else space.stem,
        plugin=origin_of("algorithm", kind.name),
        example=example_of(kind, dataset),
        published=published_of(kind, dataset),
    )


def notes_of(kind: type[Any]) -> str:
    """The class's own description, one paragraph a line."""
    paragraphs = cleandoc(kind.__doc__ or "").split("\n\n")
    return "\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


# options -------------------------------------------------------------------------------------------------------------


def options_of(kind: type[Any]) -> Iterator[OptionFacts]:
    """Hyperparameters of an algorithm, relabeler or schedule, from its options model."""
    schema = kind.OptionsModel.model_json_schema()
    for name, field in schema.get("properties", {}).items():
        about = field.get("description") or described_in(kind.OptionsModel.__doc__ or "", name)
        yield OptionFacts(name, field.get("default"), values_of(field), " ".join(about.split()))


def described_in(text: str, name: str) -> str:
    """What a docstring says after ``name:``."""
    found = re.search(rf"(?:^|\s){re.escape(name)}:\s*(.+)", text, re.S)
    return found[1] if found else ""


def values_of(field: Mapping[str, Any]) -> str:
    """Range or choices of a field of a JSON schema, such as ``number in [0, 1e+06]`` or ``mask | floor``."""
    if "anyOf" in field:
        return " or ".join(values_of(part) for part in field["anyOf"])
    if "enum" in field:
        return " | ".join(str(value) for value in field["enum"])
    if "const" in field:
        return str(field["const"])
    if field.get("type") == "boolean":
        return "true | false"
    kind = {"integer": "whole number", "number": "number"}.get(field.get("type", ""), str(field.get("type", "value")))
    return f"{kind}{_bounds(field)}"


def _bounds(field: Mapping[str, Any]) -> str:
    low, high = field.get("minimum", field.get("exclusiveMinimum")), field.get("maximum", field.get("exclusiveMaximum"))
    if low is None and high is None:
        return ""
    left = "(-inf" if low is None else f"{'[' if 'minimum' in field else '('}{low:g}"
    right = "inf)" if high is None else f"{high:g}{']' if 'maximum' in field else ')'}"
    return f" in {left}, {right}"


def example_of(kind: type[Algorithm], dataset: str) -> str:
    """A run with the first option spelt out, and FedReLa."""
    options = [f"--federation.options.{option.name} {shown(option.default)}" for option in list(options_of(kind))[:1]]
    return " ".join(["fedrela-bench run --dataset", dataset, "--algorithm", kind.name, *options, "--relabel.tau 0.05"])


def published_of(kind: type[Algorithm], dataset: str) -> str | None:
    """A run with the settings of the authors' own experiments; None where none are known."""
    settings = [f"--{name} {shown(value)}" for name, value in kind.published.items()]
    return " ".join(["fedrela-bench run --dataset", dataset, "--algorithm", kind.name, *settings]) if settings else None


def shown(value: Any) -> str:
    """A value as the command line takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


# costs ---------------------------------------------------------------------------------------------------------------


def measure(config: TrialConfig) -> tuple[str, Algorithm, ModelSize]:
    """Name of the model, the algorithm, and the floats of its network, which gets no memory."""
    import torch

    from fedrela_bench.algorithms import build_algorithm
    from fedrela_bench.models import Net, build_backbone, default_model
    from fedrela_bench.simulation.flat import FlatModel

    shape, classes = _images(config)
    algorithm = build_algorithm(config.federation.algorithm, config.federation.options, classes)
    name = config.training.model
    if name == "auto":
        name = default_model(config.data.source, shape, config.data.profile)
    with torch.device("meta"):
        backbone = build_backbone(name, shape, config.training.norm)
        net = Net(backbone, algorithm.make_head(backbone.feature_dim))
    return name, algorithm, FlatModel(net, algorithm.scope).size(backbone.feature_dim, classes)


def _images(config: TrialConfig) -> tuple[Shape, int]:
    if config.data.source in KNOWN:
        return KNOWN[config.data.source]
    from fedrela_bench.data import load_dataset

    dataset = load_dataset(config)
    return dataset.input_shape, dataset.num_classes


def cost_of(count: Callable[[ModelSize], int], size: ModelSize) -> Cost:
    """Formula and value of a count of floats."""
    return Cost(formula_of(count, size), count(size))


MONOMIALS = ("", "C", "CC", "d", "dC", "dCC", "b", "p", "P")
PLACES = (0, 5, 10, 16, 21, 26, 32, 37, 42)
"""Sizes are set to powers of ten, so that the coefficient of every monomial stands at its own decimal place."""
POWERS = {"C": 5, "d": 16, "b": 32, "p": 37, "P": 42}


def formula_of(count: Callable[[ModelSize], int], size: ModelSize) -> str | None:
    """The count as a polynomial such as ``2P + dC + C``, read off its value at sizes that are powers of ten.

    None where it is no such polynomial with coefficients below 50,000: it must give the count at other sizes too.
    """
    names = [field.name for field in fields(size)]
    terms = _coefficients(count(type(size)(**{name: 10 ** POWERS[SYMBOLS[name]] for name in names})))
    primes = type(size)(**dict(zip(names, (2, 3, 5, 7, 11), strict=False)))
    right = all(_value(terms, other) == count(other) for other in (size, primes))
    return _text(terms) if right else None


def _coefficients(value: int) -> dict[str, int]:
    terms: dict[str, int] = {}
    for index, monomial in enumerate(MONOMIALS):
        width = PLACES[index + 1] - PLACES[index] if index + 1 < len(PLACES) else 9
        digits = value % 10**width
        if digits >= 10**width // 2:
            digits -= 10**width
        value = (value - digits) // 10**width
        if digits:
            terms[monomial] = digits
    return terms


def _value(terms: Mapping[str, int], size: ModelSize) -> int:
    values = {symbol: getattr(size, name) for name, symbol in SYMBOLS.items()}
    return sum(factor * prod(values[symbol] for symbol in monomial) for monomial, factor in terms.items())


def _text(terms: Mapping[str, int]) -> str:
    text = ""
    for monomial in reversed(MONOMIALS):
        factor = terms.get(monomial, 0)
        if factor:
            digits = str(abs(factor)) if abs(factor) != 1 or not monomial else ""
            text += f"{' - ' if factor < 0 else ' + '}{digits}{monomial.replace('CC', 'C^2')}"
    return text.removeprefix(" + ") or "0"


# text ----------------------------------------------------------------------------------------------------------------

WIDTH, COLUMN = 80, 13


def paragraph(label: str, text: str, column: int = COLUMN) -> list[str]:
    """Lines of at most 80 columns: the label, and the text in a column beside it."""
    wrap = textwrap.TextWrapper(WIDTH - column, break_on_hyphens=False).wrap
    lines = [line for part in text.split("\n") for line in wrap(part) or [""]]
    return [f"{label if index == 0 else '':<{column}}{line}".rstrip() for index, line in enumerate(lines)]
