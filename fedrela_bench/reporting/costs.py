"""What the runs of a table sent, and what their messages guarantee: from the tags that a finished run stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedrela_bench.reporting.arms import Arm

UNITS = ((10**9, "G"), (10**6, "M"), (10**3, "k"), (1, ""))


def cost_facts(arms: Sequence[Arm]) -> Iterator[tuple[str, str]]:
    """(name, value) of communication and privacy; nothing where no run says it.

    Arms with the same text are named together, in the order of the table.
    """
    for name, told in (("communication", _sent), ("privacy", _guarantee)):
        groups: dict[str, list[str]] = {}
        for arm in arms:
            if text := told(arm):
                groups.setdefault(text, []).append(arm.label)
        if groups:
            everyone = len(groups) == 1
            yield name, "; ".join(text if everyone else f"{', '.join(who)}: {text}" for text, who in groups.items())


def _sent(arm: Arm) -> str:
    down, up = (_values(arm, f"cost.{name}") for name in ("down", "up"))
    if not down or not up:
        return ""
    total = [f"{_range(_values(arm, f'cost.total_{name}'))} {name}" for name in ("down", "up")]
    each = f"{_range(down)} floats down, {_range(up)} up per participant and round"
    return f"{each}; {', '.join(total)} in a run"


def _guarantee(arm: Arm) -> str:
    return " or ".join(_texts(arm, "privacy.guarantee"))


def _texts(arm: Arm, tag: str) -> list[str]:
    return sorted({str(value) for value in arm.runs[tag] if value}) if tag in arm.runs else []


def _values(arm: Arm, tag: str) -> list[int]:
    return sorted(int(text) for text in _texts(arm, tag))


def _range(values: Sequence[int]) -> str:
    ends = [short(value) for value in dict.fromkeys((values[0], values[-1]))]
    return " to ".join(dict.fromkeys(ends))


def short(count: int) -> str:
    """A count in three digits or more, such as ``12.3 M``; below a thousand as it is."""
    size, unit = next((pair for pair in UNITS if count >= pair[0]), UNITS[-1])
    return f"{count / size:.3g} {unit}" if unit else str(count)
