"""`fedrela-bench relabelers list|show`: what may set the labels, and when."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer

from fedrela_bench.cli import common, plugged
from fedrela_bench.cli.algorithm_facts import notes_of, options_of, paragraph, shown
from fedrela_bench.cli.command import BenchCommand, BenchGroup
from fedrela_bench.cli.common import tell
from fedrela_bench.errors import ConfigError
from fedrela_bench.faults import unknown_name
from fedrela_bench.plugins import origin_of

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a relabeler or a schedule.")]
FIELDS = {
    "relabeler": ("relabel.method", "relabel.options"),
    "schedule": ("relabel.schedule", "relabel.schedule_options"),
}
INDENT = 6


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    group = typer.Typer(cls=BenchGroup, help="List or show relabelers and schedules.", rich_markup_mode=None)
    group.command("list", cls=BenchCommand)(list_all)
    group.command("show", cls=BenchCommand)(show)
    app.add_typer(group, name="relabelers")


def list_all(as_json: common.JsonOutput = False, plugin: plugged.Plugin = None) -> int:
    """What may set the labels (relabel.method), and when (relabel.schedule): relabelers list."""
    found = _registered()
    if as_json:
        rows = {f"{what}s": [_facts(what, kind, False) for kind in kinds.values()] for what, kinds in found.items()}
        tell(json.dumps(rows))
        return 0
    width = max(len(name) for kinds in found.values() for name in kinds) + 4
    for what, kinds in found.items():
        tell(f"{what}s ({FIELDS[what][0]}):")
        for name, kind in kinds.items():
            control = " (a control)" if getattr(kind, "control", False) else ""
            origin = origin_of(what, name)
            source = f"from plugin {origin}: {kind.citation}" if origin else kind.citation
            tell(*paragraph(f"  {name}", f"{kind.purpose}{control}\n{source}", width))
    return 0


def show(name: Name, as_json: common.JsonOutput = False, plugin: plugged.Plugin = None) -> int:
    """Source, options and an example of one relabeler or schedule: relabelers show random."""
    found = _registered()
    what = next((what for what, kinds in found.items() if name in kinds), None)
    if what is None:
        raise ConfigError(
            unknown_name("relabeler or schedule", name, name, [n for kinds in found.values() for n in kinds])
        )
    facts = _facts(what, found[what][name], True)
    tell(json.dumps(facts)) if as_json else tell(*_described(what, facts))
    return 0


def _registered() -> dict[str, Mapping[str, Any]]:
    from fedrela_bench.relabelers import RELABELERS
    from fedrela_bench.schedules import SCHEDULES

    return {"relabeler": RELABELERS, "schedule": SCHEDULES}


def _facts(what: str, kind: Any, whole: bool) -> dict[str, Any]:
    """Of a class in plain values; its notes, options and an example only where all is wanted."""
    facts = {"name": kind.name, "purpose": kind.purpose, "citation": kind.citation}
    facts |= {"plugin": origin_of(what, kind.name) or None}
    facts |= {"control": kind.control} if what == "relabeler" else {}
    if not whole:
        return facts
    options = list(options_of(kind))
    return {
        **facts,
        "notes": notes_of(kind),
        "options": [asdict(option) for option in options],
        "example": _example(what, kind, [f"{option.name} {shown(option.default)}" for option in options[:1]]),
    }


def _example(what: str, kind: Any, options: list[str]) -> str:
    field, prefix = FIELDS[what]
    given = [f"--{field} {kind.name}", *(f"--{prefix}.{option}" for option in options)]
    given += ["--relabel.period 2"] if what == "schedule" and _reads_period(kind) else []
    return " ".join(["fedrela-bench run --dataset digits_lt --relabel.tau 0.05", *given])


def _reads_period(kind: Any) -> bool:
    """Whether a schedule with default options relabels in other rounds when `relabel.period` is set."""
    from fedrela_bench.schedules import Timing

    def refreshes(period: int) -> tuple[int, ...]:
        try:
            return tuple(kind(kind.OptionsModel(), Timing(start=4, period=period, rounds=10, tau=0.05)).refreshes)
        except Exception:
            # Of one's own it may need a period, or options.
            return ()

    return refreshes(0) != refreshes(2)


def _described(what: str, facts: Mapping[str, Any]) -> Iterator[str]:
    """Lines of at most 80 columns (commands are not broken)."""
    yield from paragraph(f"{facts['name']}:", facts["purpose"], max(len(facts["name"]) + 2, 13))
    yield from paragraph("set by", f"{FIELDS[what][0]}: {facts['name']}")
    yield from paragraph("plugin", facts["plugin"]) if facts["plugin"] else []
    yield from paragraph("source", facts["citation"])
    yield from paragraph("notes", facts["notes"])
    if what == "relabeler":
        yield from paragraph("role", "a control: never recommended by a search" if facts["control"] else "a method")
    yield from ["options"] if facts["options"] else paragraph("options", "none of its own")
    for option in facts["options"]:
        yield f"  --{FIELDS[what][1]}.{option['name']} {shown(option['default'])}"
        yield from paragraph("", option["values"], INDENT)
        yield from paragraph("", option["about"], INDENT)
    yield f"{'example':<13}{facts['example']}"
