"""Conditions of search spaces: parameters that are searched only at some values of others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedrela_bench.faults import unknown_name

if TYPE_CHECKING:
    from fedrela_bench.study.space import Parameter

Conditions = tuple[tuple[str, tuple[Any, ...]], ...]


def conditions(name: str, form: Any, faults: list[str]) -> Conditions:
    """Read a parameter's ``when``; what is wrong with it goes to `faults`."""
    if form is None:
        return ()
    if not isinstance(form, Mapping) or not form or not all(value != [] for value in form.values()):
        faults.append(f"{name}: when = {form!r}: map other parameters to values, such as {{algorithm: fedprox}}")
        return ()
    return tuple((str(key), tuple(value) if isinstance(value, list) else (value,)) for key, value in form.items())


def ordered(parameters: list[Parameter], faults: list[str]) -> tuple[Parameter, ...]:
    """Parameters after those that their conditions look at."""
    known = {parameter.name: parameter for parameter in parameters}
    for parameter in parameters:
        for name, values in parameter.when:
            other = known.get(name)
            if name != "algorithm" and other is None:
                faults.append(f"{parameter.name}: when: {unknown_name('parameter', name, name, ['algorithm', *known])}")
            elif other is not None and other.grid() is None:
                faults.append(f"{parameter.name}: when: {name} is continuous and never exactly a value; give it a step")
            elif other is not None:
                outside = [value for value in values if not other.contains(value)]
                faults += [f"{parameter.name}: when: {name} never is {value!r} ({other.text()})" for value in outside]
    placed: dict[str, Parameter] = {}
    waiting = dict(known)
    while waiting:
        ready = [p for p in waiting.values() if all(name in placed or name not in known for name, _ in p.when)]
        if not ready:
            faults.append(f"the conditions of {', '.join(waiting)} wait for each other; leave out one `when`")
            break
        for parameter in ready:
            placed[parameter.name] = waiting.pop(parameter.name)
    return tuple(placed.values())
