"""What is wrong with a command line, found without running it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import typer

from fedrela_bench.cli import app
from fedrela_bench.cli.command import FAULTS


def leaves() -> dict[str, Any]:
    """Path of every command, groups and the program itself (``""``) included, to click's command."""
    return dict(_below("", typer.main.get_command(app)))


def _below(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _below(f"{path} {name}".strip(), inner)


def faults(words: Sequence[str]) -> list[str]:
    """Unknown verbs and options, missing values and arguments; [] for a command line that can be typed."""
    known, path, rest = leaves(), "", [word for word in words if word != "--debug"]
    while rest and f"{path} {rest[0]}".strip() in known:
        path = f"{path} {rest.pop(0)}".strip()
    command = known[path]
    if hasattr(command, "commands"):
        return [] if all(word in ("--help", "--version") for word in rest) else [f"no command {' '.join(words)}"]
    try:
        context = command.make_context(f"fedrela-bench {path}", rest)
    except (Exception, SystemExit) as error:
        said = error.format_message() if hasattr(error, "format_message") else error
        return [] if "--help" in rest else [str(said)]
    return list(context.meta[FAULTS])
