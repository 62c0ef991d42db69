"""`fedrela-bench algorithms list|show|check`: the base algorithms, their options, what they keep and what they send."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from fedrela_bench.cli import common, plugged
from fedrela_bench.cli.algorithm_facts import (
    FAMILIES,
    LEGEND,
    Cost,
    Facts,
    OptionFacts,
    facts_of,
    family_of,
    in_order,
    paragraph,
    shown,
)
from fedrela_bench.cli.command import BenchCommand, BenchGroup, OverrideCommand, overrides_of
from fedrela_bench.cli.common import tell
from fedrela_bench.cli.verdicts import check_all, tell_verdict
from fedrela_bench.config import FREE_FIELDS
from fedrela_bench.errors import ConfigError
from fedrela_bench.faults import unknown_name
from fedrela_bench.plugins import origin_of

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of an algorithm.")]
INDENT = 6
FREE = FREE_FIELDS[0]


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    algorithms = typer.Typer(cls=BenchGroup, help="List, show or check base algorithms.", rich_markup_mode=None)
    algorithms.command("list", cls=BenchCommand)(list_all)
    algorithms.command("show", cls=OverrideCommand)(show)
    algorithms.command("check", cls=OverrideCommand)(check)
    app.add_typer(algorithms, name="algorithms")


def list_all(as_json: common.JsonOutput = False, plugin: plugged.Plugin = None) -> int:
    """Names, purposes and sources, those that FedReLa's paper evaluates first, those of plugins last."""
    from fedrela_bench.algorithms import ALGORITHMS

    kinds = [ALGORITHMS[name] for name in in_order(list(ALGORITHMS))]
    if as_json:
        rows = [
            {
                "name": kind.name,
                "family": family_of(kind.name),
                "purpose": kind.purpose,
                "citation": kind.citation,
                "plugin": origin_of("algorithm", kind.name) or None,
            }
            for kind in kinds
        ]
        tell(json.dumps({"algorithms": rows}))
        return 0
    width = max(len(kind.name) for kind in kinds) + 4
    for family, title in FAMILIES.items():
        members = [kind for kind in kinds if family_of(kind.name) == family]
        tell(*([f"{title}:"] if members else []))
        for kind in members:
            origin = origin_of("algorithm", kind.name)
            text = f"{kind.purpose}\n{kind.citation}" + (f"\nfrom {origin}" if origin else "")
            tell(*paragraph(f"  {kind.name}", text, width))
    return 0


def show(
    ctx: typer.Context,
    name: Name,
    dataset: common.Dataset = None,
    profile: common.Profile = None,
    plugin: plugged.Plugin = None,
    as_json: common.JsonOutput = False,
) -> int:
    """Source, options, state and messages of one algorithm.

    State and messages are floats of the dataset's default model; options that change them can be given, such as
    --federation.options.mu 0.
    """
    from fedrela_bench.algorithms import ALGORITHMS

    faults = common.scanned(ctx)
    if name not in ALGORITHMS:
        raise ConfigError([*faults, unknown_name("algorithm", name, name, ALGORITHMS)])
    size, _ = common.attempt(faults, common.SMALL, lambda: common.choose_size(profile))
    resolved = common.resolve_command(ctx, dataset, None, size, faults, algorithm=name)
    facts = facts_of(ALGORITHMS[name], resolved.config, dataset or "digits_lt")
    tell(json.dumps(facts.to_json())) if as_json else tell(*describe(facts))
    return 0


def check(ctx: typer.Context, name: Name, plugin: plugged.Plugin = None, as_json: common.JsonOutput = False) -> int:
    """Every rule of the contract, on small federations: algorithms check mine --plugin mine.py.

    Options can be given, such as --federation.options.mu 0.1. Exit code 1 where a rule is broken.
    """
    from fedrela_bench.testing import CHECKS, Case, cases_of

    faults, options = common.scanned(ctx), options_of_line(ctx)
    faults += [f"--{field}: the kit chooses it; leave it out" for field in overrides_of(ctx) if FREE not in field]
    nothing: tuple[Case, ...] = ()
    cases = common.attempt(faults, nothing, lambda: cases_of(name, options))
    if faults:
        raise ConfigError(list(dict.fromkeys(faults)))
    rows: list[dict[str, Any]] = []
    for case in cases:
        tell(*([f"{case.title}:"] if len(cases) > 1 else []), to_stderr=as_json)
        rows += [{"case": case.title, **row} for row in check_all(CHECKS, case, as_json)]
    code = tell_verdict(rows, len(cases) * len(CHECKS), as_json)
    tell(*([json.dumps({"algorithm": name, "checks": rows})] if as_json else []))
    return code


def options_of_line(ctx: typer.Context) -> dict[str, Any] | None:
    """The algorithm's options among the dotted overrides; None where there are none."""
    given = {field: value for field, value in overrides_of(ctx).items() if field.startswith(FREE)}
    return {field.removeprefix(FREE): value for field, value in given.items()} or None


def describe(facts: Facts) -> list[str]:
    """An algorithm in lines of at most 80 columns (commands are not broken)."""
    lines = paragraph(f"{facts.name}:", facts.purpose, max(len(facts.name) + 2, 13))
    lines += paragraph("family", FAMILIES[facts.family])
    lines += paragraph("plugin", facts.plugin) if facts.plugin else []
    lines += paragraph("source", facts.citation)
    lines += paragraph("notes", facts.notes)
    # What nobody looked into is not known.
    unknown = bool(facts.plugin) and not facts.differences
    differences = facts.differences or "none known between the paper and this code"
    lines += [] if unknown else paragraph("differences", differences)
    lines += paragraph("posterior", f"relabel.posterior_head: {', '.join(facts.posterior_heads)}")
    lines += ["options"] if facts.options else paragraph("options", "none of its own")
    lines += [line for option in facts.options for line in _option(option)]
    lines += list(_costs(facts))
    space = f"fedrela-bench spaces show {facts.space}" if facts.space else "no space ships for it"
    lines += [*paragraph("tuned by", space), f"{'example':<13}{facts.example}"]
    return lines if facts.published is None else [*lines, f"{'authors ran':<13}{facts.published}"]


def _option(option: OptionFacts) -> list[str]:
    head = f"  --federation.options.{option.name} {shown(option.default)}"
    return [head, *paragraph("", option.values, INDENT), *paragraph("", option.about, INDENT)]


def _costs(facts: Facts) -> Iterator[str]:
    where = f"floats for model {facts.model} of {facts.dataset}"
    yield from paragraph("state", f"a client keeps {_cost(facts.state)} {where}")
    yield from paragraph("sent", f"per participant and round: down {_cost(facts.down)}, up {_cost(facts.up)} floats")
    yield from paragraph("", LEGEND)


def _cost(cost: Cost) -> str:
    return f"{cost.floats:,}" if cost.formula in (None, str(cost.floats)) else f"{cost.formula} = {cost.floats:,}"
