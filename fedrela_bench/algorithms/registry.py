"""Algorithms by name; a decorator adds one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from fedrela_bench import plugins
from fedrela_bench.algorithms.base import Algorithm, Options
from fedrela_bench.config import faults_of, unknown_name
from fedrela_bench.errors import ConfigError

ALGORITHMS: dict[str, type[Algorithm]] = {}
Kind = TypeVar("Kind", bound=type[Algorithm])


def register(kind: Kind) -> Kind:
    """Class decorator: make an algorithm available under its `name`.

    Raises:
        ConfigError: it is no class of an algorithm, does not say name, citation and purpose, or the name is taken by
            another class. While a plugin is imported, such faults are collected with its others.
    """
    faults = _class_faults(kind)
    taken = None if faults else ALGORITHMS.get(kind.name)
    if taken is not None and taken.__qualname__ != kind.__qualname__:
        faults.append(f"algorithm name {kind.name!r} is taken by {taken.__qualname__}; choose another name")
    if faults:
        plugins.refuse(faults)
        return kind
    ALGORITHMS[kind.name] = kind
    plugins.note("algorithm", ALGORITHMS, kind.name)
    return kind


def _class_faults(kind: Any) -> list[str]:
    """What is wrong with what `register` was given."""
    if not isinstance(kind, type) or not issubclass(kind, Algorithm):
        what = f"class {kind.__qualname__}" if isinstance(kind, type) else f"a {type(kind).__name__}"
        return [f"register is for classes that derive from fedrela_bench.algorithms.Algorithm, not for {what}"]
    wrong = [name for name in ("name", "citation", "purpose") if not _is_text(getattr(kind, name, None))]
    faults = []
    if wrong:
        faults.append(
            f"algorithm class {kind.__qualname__} has no {' and no '.join(wrong)}; add class attributes such as "
            'name: ClassVar[str] = "mine"'
        )
    elif not re.fullmatch(r"[A-Za-z][\w.-]*", kind.name):
        faults.append(f"algorithm name {kind.name!r}: write it in letters, digits, _ . and -, a letter first")
    if not isinstance(kind.OptionsModel, type) or not issubclass(kind.OptionsModel, Options):
        faults.append(
            f"algorithm class {kind.__qualname__}: OptionsModel must be a class that derives from "
            "fedrela_bench.algorithms.Options"
        )
    if not isinstance(kind.search_space, Mapping):
        faults.append(
            f"algorithm class {kind.__qualname__}: search_space must map options to ranges, such as "
            '{"mu": {"loguniform": [0.001, 1.0]}}'
        )
    return faults


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
