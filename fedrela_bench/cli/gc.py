"""`fedrela-bench gc`: free what no study names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedrela_bench.cli.command import BenchCommand
from fedrela_bench.cli.common import tell

Folder = Annotated[Path, typer.Argument(metavar="STUDY_OR_STORE", help="What tune wrote as --out or --store.")]
Moved = Annotated[list[Path] | None, typer.Option("--study", metavar="DIR", help="A study that was moved; again.")]
Forget = Annotated[list[Path] | None, typer.Option("--forget", metavar="DIR", help="A study that is gone; again.")]
Yes = Annotated[bool, typer.Option("--yes", help="Delete; without it nothing is.")]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("gc", cls=BenchCommand)(collect)


def collect(folder: Folder, study: Moved = None, forget: Forget = None, yes: Yes = False) -> int:
    """Free trunks and cells that no study names.

    Finished and unfinished runs of every study on the store stay, and so does what a living process writes.
    """
    from fedrela_bench.study.gc import find_litter, free, store_of

    litter = find_litter(store_of(folder), study or (), forget or ())
    tell(f"store: {litter.store}", *(f"keeps the runs of {path}" for path in litter.studies), *litter.held)
    tell(
        *(f"unnamed: {path}" for path in litter.unnamed), *(f"left by a killed process: {p}" for p in litter.temporary)
    )
    size = f"{litter.bytes / 2**20:.1f} MiB"
    if not litter.unnamed and not litter.temporary:
        tell("nothing to free")
    elif yes:
        tell(f"freed {free(litter) / 2**20:.1f} MiB")
    else:
        tell(f"{size} can be freed; nothing was deleted, --yes does it")
    return 0
