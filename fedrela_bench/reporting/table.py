"""The one table that every format is rendered from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DASH = "–"
Kind = Literal["text", "count", "measure", "gain", "published"]


@dataclass(frozen=True)
class Measure:
    """A mean in percent with its spread over seeds; `std` is None for one seed."""

    value: float
    std: float | None = None
    n: int | None = None
    marks: str = ""


@dataclass(frozen=True)
class Gain:
    """A paired difference in percentage points; no interval for few seeds."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    marks: str = ""


Cell = str | int | Measure | Gain | None
"""None: not measured, rendered as a dash."""


@dataclass(frozen=True)
class Column:
    """A column: `key` in the CSV, `title` elsewhere."""

    key: str
    title: str
    kind: Kind = "text"


@dataclass(frozen=True)
class Table:
    """Numbers with what one must know to read them.

    Attributes:
        title: one line.
        columns: one per cell of a row.
        rows: cells, None where nothing was measured.
        facts: (name, value): split, round rule, seeds, selection, dataset, digests, versions.
        notes: footnotes; each starts with its mark where it has one.
        summary: one sentence for where the facts have no room: what the numbers are.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()
    summary: str = ""
