"""`fedrela-bench algorithms list|show`: the base algorithms and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fedrela_bench.cli.command import BenchCommand, BenchGroup
from fedrela_bench.cli.common import tell
from fedrela_bench.config import unknown_name
from fedrela_bench.errors import ConfigError

if TYPE_CHECKING:
    from fedrela_bench.algorithms.base import Algorithm


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    algorithms = typer.Typer(cls=BenchGroup, help="List or show base algorithms.", rich_markup_mode=None)
    algorithms.command("list", cls=BenchCommand)(list_all)
    algorithms.command("show", cls=BenchCommand)(show)
    app.add_typer(algorithms, name="algorithms")


def list_all() -> int:
    """Names and purposes."""
    from fedrela_bench.algorithms import ALGORITHMS

    tell(*(f"{name:<16} {kind.purpose}" for name, kind in sorted(ALGORITHMS.items())))
    return 0


def show(name: Annotated[str, typer.Argument(metavar="NAME", help="Name of an algorithm.")]) -> int:
    """Source, known differences and options of one algorithm."""
    from fedrela_bench.algorithms import ALGORITHMS

    if name not in ALGORITHMS:
        raise ConfigError(unknown_name("algorithm", name, name, ALGORITHMS))
    tell(*describe(ALGORITHMS[name]))
    return 0


def describe(kind: type[Algorithm]) -> list[str]:
    """An algorithm in lines: purpose, citation, differences, and every option with its default."""
    lines = [f"{kind.name}: {kind.purpose}", f"source: {kind.citation}"]
    lines += [f"differences: {kind.differences}"] if kind.differences else []
    fields = kind.OptionsModel.model_fields
    if not fields:
        return [*lines, "options: none"]
    about = " ".join((kind.OptionsModel.__doc__ or "").split())
    lines += ["options:", *(f"  --federation.options.{name} {field.default}" for name, field in fields.items())]
    return [*lines, f"  {about}"] if about else lines
