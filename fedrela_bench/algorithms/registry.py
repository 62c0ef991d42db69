"""Algorithms by name; a decorator adds one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from fedrela_bench.algorithms.base import Algorithm
from fedrela_bench.config import faults_of, unknown_name
from fedrela_bench.errors import ConfigError

ALGORITHMS: dict[str, type[Algorithm]] = {}
Kind = TypeVar("Kind", bound=type[Algorithm])


def register(kind: Kind) -> Kind:
    """Class decorator: make an algorithm available under its `name`.

    Raises:
        ConfigError: it does not say name, citation and purpose, or the name is taken by another class.
    """
    wrong = [name for name in ("name", "citation", "purpose") if not _is_text(getattr(kind, name, None))]
    if wrong:
        raise ConfigError(
            f"algorithm class {kind.__qualname__} has no {' and no '.join(wrong)}; add class attributes such as "
            'name: ClassVar[str] = "mine"'
        )
    taken = ALGORITHMS.get(kind.name)
    if taken is not None and taken.__qualname__ != kind.__qualname__:
        raise ConfigError(f"algorithm name {kind.name!r} is taken by {taken.__qualname__}; choose another name")
    ALGORITHMS[kind.name] = kind
    return kind


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def check_algorithm(name: str, options: Mapping[str, Any]) -> list[str]:
    """All faults of an algorithm's name and options, each with its remedy; empty when they are right."""
    kind = ALGORITHMS.get(name)
    if kind is None:
        return [unknown_name("algorithm", f"federation.algorithm = {name!r}", name, ALGORITHMS)]
    try:
        kind.OptionsModel.model_validate(dict(options))
    except ValidationError as error:
        faults = faults_of(error, kind.OptionsModel, "federation.options.")
        return [f"{fault} (options of {name})" for fault in faults]
    return []


def build_algorithm(name: str, options: Mapping[str, Any], num_classes: int) -> Algorithm:
    """The algorithm with validated options.

    Raises:
        ConfigError: unknown name or wrong options, all faults at once.
    """
    faults = check_algorithm(name, options)
    if faults:
        raise ConfigError(faults)
    kind = ALGORITHMS[name]
    return kind(kind.OptionsModel.model_validate(dict(options)), num_classes)
