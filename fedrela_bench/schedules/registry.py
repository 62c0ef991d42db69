"""Schedules by name; a decorator adds one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from fedrela_bench import plugins
from fedrela_bench.config import TrialConfig, faults_of, unknown_name
from fedrela_bench.errors import ConfigError
from fedrela_bench.schedules.base import Schedule, Timing

SCHEDULES: dict[str, type[Schedule]] = {}
Kind = TypeVar("Kind", bound=type[Schedule])


def register_schedule(kind: Kind) -> Kind:
    """Class decorator: make a schedule available as ``relabel.schedule``.

    Raises:
        ConfigError: it does not say name, citation and purpose, or the name is taken by another class.
            While a plugin is imported, such faults are collected with its others.
    """
    faults = _class_faults(kind)
    taken = None if faults else SCHEDULES.get(kind.name)
    if taken is not None and taken.__qualname__ != kind.__qualname__:
        faults.append(f"schedule name {kind.name!r} is taken by {taken.__qualname__}; choose another name")
    if faults:
        plugins.refuse(faults)
        return kind
    SCHEDULES[kind.name] = kind
    plugins.note("schedule", SCHEDULES, kind.name)
    return kind


def _class_faults(kind: Any) -> list[str]:
    """What is wrong with what `register_schedule` was given."""
    if not isinstance(kind, type) or not issubclass(kind, Schedule):
        shown = f"class {kind.__qualname__}" if isinstance(kind, type) else f"a {type(kind).__name__}"
        return [f"register_schedule is for classes that derive from fedrela_bench.schedules.Schedule, not for {shown}"]
    wrong = [name for name in ("name", "citation", "purpose") if not str(getattr(kind, name, "")).strip()]
    if not wrong:
        return []
    return [
        f"schedule class {kind.__qualname__} has no {' and no '.join(wrong)}; add class attributes such as "
        'name: ClassVar[str] = "mine"'
    ]


def schedule_faults(name: str, options: Mapping[str, Any]) -> list[str]:
    """All faults of a schedule's name and options, each with its remedy; empty when they are right."""
    kind = SCHEDULES.get(name)
    if kind is None:
        return [unknown_name("schedule", f"relabel.schedule = {name!r}", name, SCHEDULES)]
    known = kind.OptionsModel.model_fields
    if options and not known:
        return [f"unknown field relabel.schedule_options.{key}; {name} has no options, leave it out" for key in options]
    try:
        kind.OptionsModel.model_validate(dict(options))
    except ValidationError as error:
        return [
            f"{fault} (options of {name})" for fault in faults_of(error, kind.OptionsModel, "relabel.schedule_options.")
        ]
    return []


def build_schedule(config: TrialConfig) -> Schedule:
    """The schedule of a configuration, with validated options.

    Raises:
        ConfigError: unknown name or wrong options, all faults at once.
    """
    relabel = config.relabel
    faults = schedule_faults(relabel.schedule, relabel.schedule_options)
    if faults:
        raise ConfigError(faults)
    kind = SCHEDULES[relabel.schedule]
    timing = Timing(config.relabel_round, relabel.period, config.federation.rounds, relabel.tau)
    return kind(kind.OptionsModel.model_validate(dict(relabel.schedule_options)), timing)
