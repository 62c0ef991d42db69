"""What `doctor` finds: facts with their remedies, and how they look on a screen."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from textwrap import TextWrapper
from typing import Literal

import typer

from fedrela_bench.cli.common import debugging
from fedrela_bench.words import counted

Status = Literal["ok", "warn", "fail"]
COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
NAME = 16
"""Columns for what was looked at."""
INDENT = " " * (2 + len("warn") + 2 + NAME)


@dataclass(frozen=True)
class Finding:
    """One fact about this machine.

    Attributes:
        group: heading under which it stands.
        name: what was looked at.
        status: fail: runs or what was asked for cannot work; warn: something is worse than it could be.
        fact: what is there.
        remedy: what to do; empty where all is well.
    """

    group: str
    name: str
    status: Status
    fact: str
    remedy: str = ""


def looked(group: str, name: str, look: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """What a check finds; a check that breaks is a finding itself, so that the others are still told."""
    try:
        yield from list(look())
    except Exception as error:  # whatever it is, the other findings are worth more than a traceback
        if debugging.get():
            traceback.print_exc()
        reason = next(iter(str(error).strip().splitlines()), "")
        fact = f"could not be looked at ({type(error).__name__}{': ' * bool(reason)}{reason})"
        yield Finding(group, name, "warn", fact, "repeat with --debug to see where")


def split_fault(fault: str) -> tuple[str, str]:
    """The fact and the remedy of a message that has both."""
    fact, _, remedy = fault.rpartition("; ")
    return (fact, remedy) if fact else (fault, "")


def summary(findings: Sequence[Finding]) -> str:
    """How many there are of which kind."""
    failures, warnings = (sum(f.status == status for f in findings) for status in ("fail", "warn"))
    return f"{_count(failures, 'failure')}, {_count(warnings, 'warning')}"


def lines_of(findings: Sequence[Finding], width: int, coloured: bool) -> Iterator[str]:
    """The findings under their headings, wrapped; a path that is longer than a line stays whole."""
    for group, members in groupby(findings, key=lambda finding: finding.group):
        yield ""
        yield group
        for finding in members:
            yield from _lines(finding, width, coloured)


def _lines(finding: Finding, width: int, coloured: bool) -> Iterator[str]:
    fold = TextWrapper(width - len(INDENT), break_long_words=False, break_on_hyphens=False)
    facts = fold.wrap(finding.fact) or [""]
    status = finding.status.ljust(len("warn"))
    status = typer.style(status, fg=COLOURS[finding.status]) if coloured else status
    yield f"  {status}  {finding.name:<{NAME}}{' ' * (len(finding.name) >= NAME)}{facts[0]}".rstrip()
    yield from (INDENT + line for line in facts[1:])
    if finding.remedy:
        yield from (INDENT + line for line in fold.wrap(f"-> {finding.remedy}"))


def _count(number: int, noun: str) -> str:
    return counted(number, noun) if number else f"no {noun}s"
