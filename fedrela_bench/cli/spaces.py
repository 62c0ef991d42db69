"""`fedrela-bench spaces list|show|check`: the search spaces that ship, and one's own."""

from __future__ import annotations

from typing import Annotated

import typer

from fedrela_bench.cli import plugged
from fedrela_bench.cli.command import BenchCommand, BenchGroup
from fedrela_bench.cli.common import tell
from fedrela_bench.errors import ConfigError
from fedrela_bench.words import counted

Names = Annotated[list[str] | None, typer.Argument(metavar="[SPACE]...", help="Names or paths [all shipped].")]


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    spaces = typer.Typer(cls=BenchGroup, help="List, show or check search spaces.", rich_markup_mode=None)
    spaces.command("list", cls=BenchCommand)(list_shipped)
    spaces.command("show", cls=BenchCommand)(show)
    spaces.command("check", cls=BenchCommand)(check)
    app.add_typer(spaces, name="spaces")


def list_shipped(plugin: plugged.Plugin = None) -> int:
    """Names of the shipped spaces and of those that plugins bring, with their size."""
    from fedrela_bench.plugins import spaces
    from fedrela_bench.study.space import list_spaces, load_space

    for name in [*map(str, list_spaces()), *(name for name, _ in spaces())]:
        space = load_space(name)
        points = space.size()
        size = "continuous" if points is None else counted(points, "point")
        tell(f"{space.name:<24} {size}, {counted(space.trials, 'trial')}")
    return 0


def show(
    name: Annotated[str, typer.Argument(metavar="SPACE", help="Name or path.")], plugin: plugged.Plugin = None
) -> int:
    """What a space searches, and its header."""
    from fedrela_bench.study.space import load_space

    space = load_space(name)
    tell(f"{space.name}  ({space.path})", *([space.header.rstrip(), ""] if space.header else []), *space.describe())
    return 0


def check(names: Names = None, plugin: plugged.Plugin = None) -> int:
    """Every fault of every space given, with its place."""
    from fedrela_bench.algorithms import ALGORITHMS
    from fedrela_bench.study.space import list_spaces, load_space

    faults: list[str] = []
    chosen = [str(name) for name in (names or list_spaces())]
    for name in chosen:
        try:
            space = load_space(name)
            space.check_algorithms(sorted(ALGORITHMS))
            tell(f"{space.name}: right")
        except ConfigError as error:
            faults += [fault if name in fault else f"{name}: {fault}" for fault in error.faults]
    if faults:
        raise ConfigError(faults)
    return 0
