"""A table's contents as plain text, and its paired gains as rows of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from fedrela_bench.intervals import CONFIDENCE, interval_text
from fedrela_bench.reporting.table import DASH, Cell, Column, Gain, Measure, Table

GAIN_COLUMNS = (
    Column("row", "row"),
    Column("metric", "metric"),
    Column("gain", "Δ", "gain"),
    Column("n", "n", "count"),
    Column("t", f"t {CONFIDENCE:.0%}", "count"),
    Column("bootstrap", f"bootstrap {CONFIDENCE:.0%}", "count"),
)
"""Of the table that `gains_table` makes; the last three are as wide as numbers are."""


def cell_text(cell: Cell) -> str:
    """A cell for readers: two digits, ``mean ± std``, ``gain [low, high]``, ``gain`` of few seeds, a dash for none."""
    if cell is None:
        return DASH
    if isinstance(cell, Measure):
        spread = "" if cell.n is None else f" ± {DASH if cell.std is None else f'{cell.std:.2f}'}"
        return f"{cell.value:.2f}{spread}{cell.marks}"
    if isinstance(cell, Gain):
        interval = interval_text(cell.low, cell.high)
        return f"{cell.value:+.2f}{f' {interval}' if interval else ''}{cell.marks}"
    return str(cell)


def one_line(text: str) -> str:
    """Text without line breaks and runs of spaces."""
    return " ".join(text.split())


def full_title(column: Column) -> str:
    """A column's title with the heading it stands under."""
    return f"{column.group}: {column.title}" if column.group else column.title


def spans(table: Table) -> list[tuple[str, int]]:
    """(heading, number of columns) of the neighbouring columns that share a heading; empty where none has one."""
    found: list[tuple[str, int]] = []
    for column in table.columns:
        if found and found[-1][0] == column.group:
            found[-1] = (column.group, found[-1][1] + 1)
        else:
            found.append((column.group, 1))
    return found if any(group for group, _ in found) else []


def gains_table(table: Table) -> Table | None:
    """The gains that have intervals, one a row with both; None where there is none."""
    rows = tuple(_gain_rows(table))
    return Table("Paired gains", GAIN_COLUMNS, rows, ()) if rows else None


def _gain_rows(table: Table) -> Iterator[tuple[Cell, ...]]:
    for row in table.rows:
        for column, cell in zip(table.columns, row, strict=True):
            if isinstance(cell, Gain) and cell.low is not None:
                metric = full_title(column).replace("Δ ", "")
                bounds = interval_text(cell.low, cell.high), interval_text(cell.boot_low, cell.boot_high)
                yield (
                    table.name(row),
                    metric,
                    Gain(cell.value, marks=cell.marks),
                    cell.n,
                    bounds[0],
                    bounds[1] or None,
                )


def table_json(table: Table) -> dict[str, Any]:
    """Plain values: title, columns, rows by column key, facts and notes; nothing rounded."""
    keys = [column.key for column in table.columns]
    rows = [dict(zip(keys, map(_plain, row), strict=True)) for row in table.rows]
    columns = [asdict(column) for column in table.columns]
    texts = {"title": table.title, "summary": table.summary, "facts": dict(table.facts), "notes": list(table.notes)}
    return {**texts, "columns": columns, "rows": rows}


def _plain(cell: Cell) -> Any:
    return asdict(cell) if isinstance(cell, Measure | Gain) else cell
