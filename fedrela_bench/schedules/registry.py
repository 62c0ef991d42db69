"""Schedules by name; a decorator adds one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from fedrela_bench import plugins
from fedrela_bench.config import TrialConfig
from fedrela_bench.errors import ConfigError
from fedrela_bench.faults import option_faults, unknown_name
from fedrela_bench.schedules.base import Schedule, Timing

SCHEDULES: dict[str, type[Schedule]] = {}
Kind = TypeVar("Kind", bound=type[Schedule])


def register_schedule(kind: Kind) -> Kind:
    """Class decorator: make a schedule available as ``relabel.schedule``.

    Raises:
        ConfigError: it does not say name, citation and purpose, or the name is taken by another class.
            While a plugin is imported, such faults are collected with its others.
    """
    plugins.enter(kind, "schedule", Schedule, SCHEDULES, "register_schedule")
    return kind


def schedule_faults(name: str, options: Mapping[str, Any]) -> list[str]:
    """All faults of a schedule's name and options, each with its remedy; empty when they are right."""
    kind = SCHEDULES.get(name)
    if kind is None:
        return [unknown_name("schedule", f"relabel.schedule = {name!r}", name, SCHEDULES)]
    known = kind.OptionsModel.model_fields
    if options and not known:
        return [f"unknown field relabel.schedule_options.{key}; {name} has no options, leave it out" for key in options]
    return option_faults(kind.OptionsModel, options, "relabel.schedule_options.", name)


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
