"""What a search space says about relabelers and schedules, checked before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedrela_bench.config import RELABEL_PLUGS, TrialConfig

if TYPE_CHECKING:
    from fedrela_bench.study.space import Parameter

Check = Callable[[str, Mapping[str, Any]], list[str]]


def plug_faults(parameters: Sequence[Parameter], bases: Mapping[str, TrialConfig]) -> list[str]:
    """Searched relabelers, schedules and options of theirs that do not exist, each fault with its remedy.

    Args:
        parameters: of the space.
        bases: whose relabeler and schedule hold where the space searches neither.
    """
    from fedrela_bench.relabelers import relabeler_faults
    from fedrela_bench.schedules import schedule_faults

    checks: dict[str, Check] = {"method": relabeler_faults, "schedule": schedule_faults}
    found: list[str] = []
    for name, options in RELABEL_PLUGS.items():
        check, own = checks[name], {str(getattr(base.relabel, name)) for base in bases.values()}
        for parameter in parameters:
            if parameter.name == f"relabel.{name}":
                found += [fault for value in parameter.values for fault in check(str(value), {})]
            elif parameter.name.startswith(f"relabel.{options}."):
                found += _option_faults(parameter, f"relabel.{name}", own, check)
    return list(dict.fromkeys(found))


def _option_faults(parameter: Parameter, section: str, own: set[str], check: Check) -> Iterator[str]:
    """Of an option at every relabeler (or schedule) that it is searched for."""
    wanted = next((values for name, values in parameter.when if name == section), tuple(sorted(own)))
    option = parameter.name.rpartition(".")[2]
    for kind in wanted:
        for value in parameter.values:
            faults = [fault for fault in check(str(kind), {option: value}) if parameter.name in fault]
            yield from (f"{fault}; search it with when: {{{section}: NAME}}" for fault in faults)
