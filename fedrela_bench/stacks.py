"""Tables for a terminal: what belongs to one number stands under it, so that 80 columns are enough."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import TextWrapper, wrap

WIDTH = 80
LEAST_LABEL = 16
GAP = "  "
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"


@dataclass(frozen=True)
class Stack:
    """A column of a table whose cells have several lines.

    Attributes:
        heads: headings from the top down; wrapped where they are wider than the cells.
        cells: the lines of every row.
        best: rows whose first line is the best of the column.
    """

    heads: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    best: frozenset[int] = frozenset()

    @property
    def width(self) -> int:
        """Columns that it takes: its widest line, or the longest word of a heading."""
        words = (word for text in self.heads for word in text.split())
        return max(map(len, (*words, *(line for lines in self.cells for line in lines))), default=0)


def screen() -> tuple[int, bool]:
    """Width of standard output, and whether letters may be bold: it is a terminal and NO_COLOR is not set."""
    bold = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return shutil.get_terminal_size((WIDTH, 24)).columns, bold


def stacked(labels: Sequence[str], stacks: Sequence[Stack], width: int = WIDTH, bold: bool = False) -> list[str]:
    """The lines of a table; what does not fit beside the labels follows in another block that repeats them.

    Args:
        labels: names of the rows, wrapped where there is no room.
        stacks: columns.
        width: of the terminal.
        bold: whether the best cells are set bold by control characters.
    """
    longest = max(map(len, labels), default=0)
    blocks = [_block(part, labels, _room(part, longest, width), bold) for part in _parts(stacks, width)]
    return [line.rstrip() for place, block in enumerate(blocks) for line in (*([""] if place else []), *block)]


def filled(texts: Sequence[str], width: int = WIDTH) -> list[str]:
    """Texts of any length as lines; what goes on is indented, and a word that is longer than a line stays whole."""
    wrapper = TextWrapper(width, subsequent_indent=GAP, break_long_words=False, break_on_hyphens=False)
    return [line for text in texts for line in wrapper.wrap(" ".join(text.split()))]


def _parts(stacks: Sequence[Stack], width: int) -> Iterator[list[Stack]]:
    part: list[Stack] = []
    for stack in stacks:
        if part and LEAST_LABEL + _taken([*part, stack]) > width:
            yield part
            part = []
        part.append(stack)
    yield part


def _taken(part: Sequence[Stack]) -> int:
    return sum(len(GAP) + stack.width for stack in part)


def _room(part: Sequence[Stack], longest: int, width: int) -> int:
    return max(1, min(longest, width - _taken(part)))


def _block(stacks: Sequence[Stack], labels: Sequence[str], room: int, bold: bool) -> Iterator[str]:
    for level in range(max((len(stack.heads) for stack in stacks), default=0)):
        heads = [wrap(stack.heads[level], stack.width) for stack in stacks]
        for texts in zip_longest(*heads, fillvalue=""):
            yield _line("", room, texts, stacks)
    yield "-" * (room + _taken(stacks))
    for number, label in enumerate(labels):
        rows = zip_longest(wrap(label, room), *(stack.cells[number] for stack in stacks), fillvalue="")
        for at, (name, *parts) in enumerate(rows):
            best = [bold and at == 0 and number in stack.best for stack in stacks]
            yield _line(name, room, parts, stacks, best)


def _line(
    name: str, room: int, parts: Sequence[str], stacks: Sequence[Stack], best: Sequence[bool] | None = None
) -> str:
    texts = [part.rjust(stack.width) for part, stack in zip(parts, stacks, strict=True)]
    marked = zip(texts, best or [False] * len(texts), strict=True)
    return GAP.join([name.ljust(room), *(f"{BOLD}{text}{PLAIN}" if strong else text for text, strong in marked)])
