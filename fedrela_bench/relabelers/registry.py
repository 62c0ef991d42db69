"""Relabelers by name; a decorator adds one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from fedrela_bench import plugins
from fedrela_bench.errors import ConfigError
from fedrela_bench.faults import option_faults, unknown_name
from fedrela_bench.relabelers.base import Relabeler

RELABELERS: dict[str, type[Relabeler]] = {}
Kind = TypeVar("Kind", bound=type[Relabeler])


def register_relabeler(kind: Kind) -> Kind:
    """Class decorator: make a relabeler available as ``relabel.method``.

    Raises:
        ConfigError: it does not say name, citation and purpose, or the name is taken by another class.
            While a plugin is imported, such faults are collected with its others.
    """
    plugins.enter(kind, "relabeler", Relabeler, RELABELERS, "register_relabeler", _own_faults)
    return kind


def _own_faults(kind: type[Relabeler]) -> list[str]:
    draws: object = kind.draws
    if isinstance(draws, int) and not isinstance(draws, bool) and draws >= 0:
        return []
    return [f"relabeler class {kind.__qualname__}: draws is {draws!r}; give the random numbers per sample, 0 or more"]


def relabeler_faults(name: str, options: Mapping[str, Any]) -> list[str]:
    """All faults of a relabeler's name and options, each with its remedy; empty when they are right."""
    kind = RELABELERS.get(name)
    if kind is None:
        return [unknown_name("relabeler", f"relabel.method = {name!r}", name, RELABELERS)]
    if options and not kind.OptionsModel.model_fields:
        own = "its options are the other fields of the relabel section" if name == "fedrela" else "it has no options"
        return [f"unknown field relabel.options.{key} of {name}; {own}, leave it out" for key in options]
    return option_faults(kind.OptionsModel, options, "relabel.options.", name)


def build_relabeler(name: str, options: Mapping[str, Any]) -> Relabeler:
    """The relabeler with validated options.

    Raises:
        ConfigError: unknown name or wrong options, all faults at once.
    """
    faults = relabeler_faults(name, options)
    if faults:
        raise ConfigError(faults)
    kind = RELABELERS[name]
    return kind(kind.OptionsModel.model_validate(dict(options)))


def is_control(name: str) -> bool:
    """Whether a relabeler is there to be compared with, not to be chosen; False for names that nobody registered."""
    return name in RELABELERS and RELABELERS[name].control
