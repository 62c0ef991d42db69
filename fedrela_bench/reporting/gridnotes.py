"""What one must know to read a table over several settings, said once where it holds for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fedrela_bench.reporting.select import ROUND_RULES

if TYPE_CHECKING:
    from fedrela_bench.reporting.grid import Part
    from fedrela_bench.reporting.spec import ReportSpec

MARKS = "†‡§¶"


def facts_of(parts: Sequence[Part], spec: ReportSpec) -> Iterator[tuple[str, str]]:
    """(name, value) of split, rule, seeds, settings, digests and versions; values by setting where they differ."""
    main = [part for part in parts if (part.rule, part.head) == (spec.round_rule, None)] or list(parts)
    shown = [part for part in main if not part.empty] or main[:1]
    names = dict.fromkeys(name for part in shown for name, _ in part.table.facts)
    for name in names:
        values = {part.setting.title: dict(part.table.facts).get(name) for part in shown}
        yield name, _by_setting({title: value for title, value in values.items() if value is not None})


def _by_setting(values: Mapping[str, str]) -> str:
    """One value, or every value behind the settings that have it."""
    titles: dict[str, list[str]] = {}
    for title, value in values.items():
        titles.setdefault(value, []).append(title)
    if len(titles) == 1:
        return next(iter(titles))
    return "; ".join(f"{' and '.join(named)}: {value}" for value, named in titles.items())


def notes_of(parts: Sequence[Part], spec: ReportSpec) -> Iterator[str]:
    """Footnotes of all parts, marked ones first, then what is missing, other rules, and the spec's own."""
    shown = [part for part in parts if not part.empty]
    notes: dict[str, list[str]] = {}
    for part in shown:
        for note in part.table.notes:
            titles = notes.setdefault(note, [])
            titles += [] if part.setting.title in titles else [part.setting.title]
    everywhere = {part.setting.title for part in shown}
    for note in sorted(notes, key=lambda text: (text[0] not in MARKS, list(notes).index(text))):
        named = [] if set(notes[note]) == everywhere else notes[note]
        yield _said_of(note, named)
    yield from _without_runs(parts, spec.reference is not None)
    yield from _other_rules(parts, spec)
    yield from spec.notes


def _said_of(note: str, titles: Sequence[str]) -> str:
    if not titles:
        return note
    mark, rest = (note[:1], note[1:].strip()) if note[:1] in MARKS else ("", note)
    return f"{f'{mark} ' if mark else ''}{'; '.join(titles)}: {rest}"


def _without_runs(parts: Sequence[Part], published: bool) -> Iterator[str]:
    titles = list(dict.fromkeys(part.setting.title for part in parts))
    filled = {part.setting.title for part in parts if not part.empty}
    missing = [title for title in titles if title not in filled]
    if missing and not filled:
        yield f"No finished run fits{': the numbers are the published ones alone' if published else ' any setting'}."
    elif missing:
        yield f"No finished run in: {'; '.join(missing)}."


def _other_rules(parts: Sequence[Part], spec: ReportSpec) -> Iterator[str]:
    first = [part for part in parts if part.setting is parts[0].setting]
    for part in first:
        names = ", ".join(str(spec.rows[place].name) for place in part.rows)
        if part.rule != spec.round_rule:
            yield f"Round rule of {names}, and of the baseline behind their gains: {ROUND_RULES[part.rule]}."
        if part.head is not None:
            yield f"{names}: accuracies of the head {part.head}, measured in the same runs."
