"""A `Table` as CSV."""

from __future__ import annotations

import csv
import io

from fedrela_bench.reporting.cells import one_line
from fedrela_bench.reporting.table import Cell, Column, Gain, Measure, Table

PARTS = {
    "measure": (("", "value"), ("_std", "std"), ("_n", "n"), ("_marks", "marks")),
    "gain": (
        *(("", "value"), ("_low", "low"), ("_high", "high"), ("_n", "n")),
        *(("_boot_low", "boot_low"), ("_boot_high", "boot_high"), ("_marks", "marks")),
    ),
}
"""Columns of a cell, as (what follows the key, attribute)."""
ONE = (("", "value"),)


def comma_separated(table: Table) -> str:
    """CSV with every digit: spread, intervals, n and marks in columns of their own, facts and notes in every row."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    told = {name.replace(" ", "_"): value for name, value in table.facts}
    told["notes"] = " ".join(map(one_line, table.notes))
    header = [f"{column.key}{end}" for column in table.columns for end, _ in _parts(column)]
    writer.writerow([*header, *told])
    for row in table.rows:
        values = [value for column, cell in zip(table.columns, row, strict=True) for value in _values(column, cell)]
        writer.writerow([*values, *told.values()])
    return out.getvalue()


def _parts(column: Column) -> tuple[tuple[str, str], ...]:
    return PARTS.get(column.kind, ONE)


def _values(column: Column, cell: Cell) -> list[str]:
    if isinstance(cell, Measure | Gain):
        return [_full(getattr(cell, name)) for _, name in _parts(column)]
    first = "" if cell is None else str(cell)
    return [first, *[""] * (len(_parts(column)) - 1)]


def _full(value: float | str | None) -> str:
    return "" if value is None else value if isinstance(value, str) else repr(value)
