"""A `Table` for a terminal: a number, its gain, its interval and its published value stand under each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fedrela_bench.intervals import CONFIDENCE, INTERVAL_FROM, interval_text
from fedrela_bench.reporting.cells import cell_text, one_line
from fedrela_bench.reporting.standing import standings
from fedrela_bench.reporting.table import DASH, Cell, Column, Gain, Table
from fedrela_bench.stacks import WIDTH, Stack, filled, screen, stacked

IN_FILES = ("dataset digest", "versions", "statistic")
"""Facts that are left to the files: they are long, and marks tell what is wrong with them."""
LEAST = 40


def terminal(table: Table, width: int = WIDTH, bold: bool = False) -> str:
    """Title, table, notes and the facts that define the numbers; no line is wider than `width` (40 at least).

    Args:
        table: what to show.
        width: columns of the terminal.
        bold: whether the best of a column is set bold by control characters.
    """
    width = max(LEAST, width)
    labels = [table.name(row) for row in table.rows]
    below = [*table.notes, *_legend(table), *_facts(table)]
    lines = [*filled([table.title], width), "", *stacked(labels, _stacks(table), width, bold)]
    return "\n".join([*lines, "", *filled(below, width)]) + "\n"


def on_stdout(table: Table) -> str:
    """`terminal` as wide as standard output, bold only where that is a terminal."""
    return terminal(table, *screen())


def _leading(table: Table) -> int:
    """Columns that name a row."""
    kinds = [column.kind == "text" for column in table.columns]
    return kinds.index(False) if False in kinds else len(kinds)


def _stacks(table: Table) -> list[Stack]:
    found: list[list[int]] = []
    for place in range(_leading(table), len(table.columns)):
        head = table.columns[found[-1][0]] if found else None
        if head is not None and _belongs(table.columns[place], head):
            found[-1].append(place)
        else:
            found.append([place])
    return [_stack(table, places) for places in found]


def _belongs(column: Column, head: Column) -> bool:
    return head.kind == "measure" and column.group == head.group and column.key.startswith(f"{head.key}_")


def _stack(table: Table, places: list[int]) -> Stack:
    head = table.columns[places[0]]
    cells = tuple(tuple(_lines(table, row, places)) or (DASH,) for row in table.rows)
    standing = standings(table)
    best = frozenset(row for row in range(len(table.rows)) if standing.get((row, places[0])) == "best")
    return Stack((one_line(head.group), one_line(head.title)), cells, best)


def _lines(table: Table, row: Sequence[Cell], places: list[int]) -> Iterator[str]:
    for place in places:
        column, cell = table.columns[place], row[place]
        if cell is None:
            continue
        source = re.search(r"\(([^()]*)\)$", column.title) if column.kind == "published" else None
        before = f"{source[1]} " if source else ""
        if not isinstance(cell, Gain):
            yield f"{before}{one_line(cell_text(cell))}"
            continue
        yield f"{before}Δ {cell.value:+.2f}{cell.marks}"
        if cell.low is not None:
            yield interval_text(cell.low, cell.high)


def _legend(table: Table) -> Iterator[str]:
    gains = [cell for row in table.rows for cell in row if isinstance(cell, Gain) and cell.n is not None]
    if gains:
        given = any(gain.low is not None for gain in gains)
        interval = f" [{CONFIDENCE:.0%} t interval]" if given else f"; intervals from {INTERVAL_FROM} seeds on"
        yield f"±: standard deviation over seeds; Δ: over the same seed's baseline{interval}"


def _facts(table: Table) -> Iterator[str]:
    yield from (f"{name}: {value}" for name, value in table.facts if name not in IN_FILES)
