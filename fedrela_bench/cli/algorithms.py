"""`fedrela-bench algorithms list|show`: the base algorithms, their options, what they keep and what they send."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated

import typer

from fedrela_bench.cli import common
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
from fedrela_bench.cli.command import BenchCommand, BenchGroup, OverrideCommand
from fedrela_bench.cli.common import tell
from fedrela_bench.config import unknown_name
from fedrela_bench.errors import ConfigError

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of an algorithm.")]
INDENT = 6


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    algorithms = typer.Typer(cls=BenchGroup, help="List or show base algorithms.", rich_markup_mode=None)
    algorithms.command("list", cls=BenchCommand)(list_all)
    algorithms.command("show", cls=OverrideCommand)(show)
    app.add_typer(algorithms, name="algorithms")


def list_all(as_json: common.JsonOutput = False) -> int:
    """Names, purposes and sources, those that FedReLa's paper evaluates first."""
    from fedrela_bench.algorithms import ALGORITHMS

    kinds = [ALGORITHMS[name] for name in in_order(list(ALGORITHMS))]
    if as_json:
        rows = [
            {"name": kind.name, "family": family_of(kind.name), "purpose": kind.purpose, "citation": kind.citation}
            for kind in kinds
        ]
        tell(json.dumps({"algorithms": rows}))
        return 0
    width = max(len(kind.name) for kind in kinds) + 4
    for family, title in FAMILIES.items():
        tell(f"{title}:")
        for kind in kinds:
            if family_of(kind.name) == family:
                tell(*paragraph(f"  {kind.name}", f"{kind.purpose}\n{kind.citation}", width))
    return 0


def show(
    ctx: typer.Context,
    name: Name,
    dataset: common.Dataset = None,
    profile: common.Profile = None,
    as_json: common.JsonOutput = False,
) -> int:
    """Source, options, state and messages of one algorithm: algorithms show fedprox.

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


def describe(facts: Facts) -> list[str]:
    """An algorithm in lines of at most 80 columns (commands are not broken)."""
    lines = paragraph(f"{facts.name}:", facts.purpose, max(len(facts.name) + 2, 13))
    lines += paragraph("family", FAMILIES[facts.family])
    lines += paragraph("source", facts.citation)
    lines += paragraph("notes", facts.notes)
    lines += paragraph("differences", facts.differences or "none known between the paper and this code")
    lines += paragraph("posterior", f"relabel.posterior_head: {', '.join(facts.posterior_heads)}")
    lines += ["options"] if facts.options else paragraph("options", "none of its own")
    lines += [line for option in facts.options for line in _option(option)]
    lines += list(_costs(facts))
    space = f"fedrela-bench spaces show {facts.space}" if facts.space else "no space ships for it"
    return [*lines, *paragraph("tuned by", space), f"{'example':<13}{facts.example}"]


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
