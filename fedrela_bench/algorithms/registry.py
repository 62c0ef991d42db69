"""Algorithms by name; a decorator adds one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from fedrela_bench import plugins
from fedrela_bench.algorithms.base import Algorithm, Options
from fedrela_bench.errors import ConfigError
from fedrela_bench.faults import option_faults, unknown_name

ALGORITHMS: dict[str, type[Algorithm]] = {}
Kind = TypeVar("Kind", bound=type[Algorithm])


def register(kind: Kind) -> Kind:
    """Class decorator: make an algorithm available under its `name`.

    Raises:
        ConfigError: it is no class of an algorithm, does not say name, citation and purpose, or the name is taken by
            another class. While a plugin is imported, such faults are collected with its others.
    """
    plugins.enter(kind, "algorithm", Algorithm, ALGORITHMS, "register", _own_faults)
    return kind


def _own_faults(kind: type[Algorithm]) -> list[str]:
    """What is wrong with an algorithm's class besides what every registered class must say."""
    faults: list[str] = []
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
    if not isinstance(kind.kit, Mapping):
        faults.append(f'algorithm class {kind.__qualname__}: kit must map facts to values, such as {{"server": "own"}}')
    return faults


def check_algorithm(name: str, options: Mapping[str, Any]) -> list[str]:
    """All faults of an algorithm's name and options, each with its remedy; empty when they are right."""
    kind = ALGORITHMS.get(name)
    if kind is None:
        return [unknown_name("algorithm", f"federation.algorithm = {name!r}", name, ALGORITHMS)]
    return option_faults(kind.OptionsModel, options, "federation.options.", name)


def default_options(name: str) -> dict[str, Any]:
    """What each option of an algorithm is where a configuration does not say it; {} for an unknown algorithm."""
    kind = ALGORITHMS.get(name)
    fields = {} if kind is None else kind.OptionsModel.model_json_schema().get("properties", {})
    return {option: field["default"] for option, field in fields.items() if "default" in field}


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
