"""The one table that every format is rendered from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DASH = "–"
BLOCK = "block"
"""Key of a first column whose equal neighbours are rows of one block: only these are compared with each other."""
Kind = Literal["text", "count", "measure", "gain", "published", "rank"]


@dataclass(frozen=True)
class Measure:
    """A mean in percent with its spread over seeds; `std` is None for one seed."""

    value: float
    std: float | None = None
    n: int | None = None
    marks: str = ""


@dataclass(frozen=True)
class Gain:
    """A paired difference in percentage points; no interval for few seeds.

    Attributes:
        value: mean of the differences.
        low, high: Student's t interval.
        n: number of pairs.
        marks: footnote marks.
        boot_low, boot_high: bootstrap interval.
    """

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    marks: str = ""
    boot_low: float | None = None
    boot_high: float | None = None


Cell = str | int | Measure | Gain | None
"""None: not measured, rendered as a dash."""


@dataclass(frozen=True)
class Column:
    """A column: `key` in the CSV, `title` elsewhere.

    Attributes:
        key: name in the CSV, different for every column.
        title: heading for readers.
        kind: what its cells hold.
        group: heading over neighbouring columns of the same group, such as a setting's name; empty for none.
        ranked: the best cell is set bold and the second underlined; never for published columns.
    """

    key: str
    title: str
    kind: Kind = "text"
    group: str = ""
    ranked: bool = False


Cells = tuple[Cell, ...]


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
    rows: tuple[Cells, ...]
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()
    summary: str = ""

    def blocks(self) -> list[list[int]]:
        """Row numbers of every block, one after the other; all rows where the table has no blocks."""
        if not self.columns or self.columns[0].key != BLOCK:
            return [list(range(len(self.rows)))]
        found: dict[Cell, list[int]] = {}
        for number, row in enumerate(self.rows):
            found.setdefault(row[0], []).append(number)
        return list(found.values())

    def name(self, row: Cells) -> str:
        """What a row is called: its leading text, such as block and arm."""
        kinds = [column.kind == "text" for column in self.columns]
        leading = kinds.index(False) if False in kinds else len(kinds)
        return ", ".join(" ".join(str(cell).split()) for cell in row[:leading] if cell)
