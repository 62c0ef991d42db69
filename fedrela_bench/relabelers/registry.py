"""Relabelers by name; a decorator adds one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from fedrela_bench import plugins
from fedrela_bench.config import faults_of, unknown_name
from fedrela_bench.errors import ConfigError
from fedrela_bench.relabelers.base import Relabeler

RELABELERS: dict[str, type[Relabeler]] = {}
Kind = TypeVar("Kind", bound=type[Relabeler])


def register_relabeler(kind: Kind) -> Kind:
    """Class decorator: make a relabeler available as ``relabel.method``.

    Raises:
        ConfigError: it does not say name, citation and purpose, or the name is taken by another class.
            While a plugin is imported, such faults are collected with its others.
    """
    faults = _class_faults(kind)
    taken = None if faults else RELABELERS.get(kind.name)
    if taken is not None and taken.__qualname__ != kind.__qualname__:
        faults.append(f"relabeler name {kind.name!r} is taken by {taken.__qualname__}; choose another name")
    if faults:
        plugins.refuse(faults)
        return kind
    RELABELERS[kind.name] = kind
    plugins.note("relabeler", RELABELERS, kind.name)
    return kind


def _class_faults(kind: Any) -> list[str]:
    """What is wrong with what `register_relabeler` was given."""
    if not isinstance(kind, type) or not issubclass(kind, Relabeler):
        shown = f"class {kind.__qualname__}" if isinstance(kind, type) else f"a {type(kind).__name__}"
        return [
            f"register_relabeler is for classes that derive from fedrela_bench.relabelers.Relabeler, not for {shown}"
        ]
    wrong = [name for name in ("name", "citation", "purpose") if not str(getattr(kind, name, "")).strip()]
    if not wrong:
        return []
    return [
        f"relabeler class {kind.__qualname__} has no {' and no '.join(wrong)}; add class attributes such as "
        'name: ClassVar[str] = "mine"'
    ]


def relabeler_faults(name: str, options: Mapping[str, Any]) -> list[str]:
    """All faults of a relabeler's name and options, each with its remedy; empty when they are right."""
    kind = RELABELERS.get(name)
    if kind is None:
        return [unknown_name("relabeler", f"relabel.method = {name!r}", name, RELABELERS)]
    if options and not kind.OptionsModel.model_fields:
        own = "its options are the other fields of the relabel section" if name == "fedrela" else "it has no options"
        return [f"unknown field relabel.options.{key} of {name}; {own}, leave it out" for key in options]
    try:
        kind.OptionsModel.model_validate(dict(options))
    except ValidationError as error:
        return [f"{fault} (options of {name})" for fault in faults_of(error, kind.OptionsModel, "relabel.options.")]
    return []


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
