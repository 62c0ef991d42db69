"""Which cells of a table are the best of their column, and what several settings together say of the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

from fedrela_bench.reporting.ranks import SIGNIFICANCE, TEST_FROM, Ranking, average_ranks
from fedrela_bench.reporting.select import DAGGER
from fedrela_bench.reporting.table import Cell, Column, Gain, Measure, Table

Standing = Literal["best", "second"]
SECOND_FROM = 3
"""Cells from which the second is told: of two it would be the last."""
RANKS = "average rank"


def standings(table: Table) -> dict[tuple[int, int], Standing]:
    """(row, column) of the best and second-best cells of every ranked column.

    Compared is what is printed, so that equal looks equal: ties share their place. Cells with fewer seeds than others
    of their column, and numbers chosen by the reported test images (†) beside others that are not, do not compete.
    A column whose cells are all equal has no best. In a table of blocks every block has its own.
    """
    found: dict[tuple[int, int], Standing] = {}
    for place, column in enumerate(table.columns):
        if column.ranked and column.kind != "published":
            for block in table.blocks():
                values = dict(_competing([table.rows[row][place] for row in block]))
                found |= {(block[row], place): standing for row, standing in _places(values).items()}
    return found


def with_average_ranks(table: Table, places: Mapping[str, Mapping[str, int]]) -> Table:
    """The table with a column per metric: the rows' average rank over the settings it was measured in.

    The notes say how many settings, which rows lack one, and from `TEST_FROM` settings on Friedman's p and Nemenyi's
    critical difference. A metric without two settings and two rows measured in all of them gets no column.

    Args:
        table: whose rows are compared; the first cell names a row.
        places: metric to setting to the number of its column.
    """
    for metric, columns in places.items():
        ranking = _ranking(table, columns)
        if ranking is not None:
            table = _with_column(table, metric, ranking)
    return table


def _ranking(table: Table, columns: Mapping[str, int]) -> Ranking | None:
    """Of the rows by their number, since two may bear one name."""
    values: dict[str, dict[str, float]] = {str(number): {} for number in range(len(table.rows))}
    for setting, place in columns.items():
        for number, value in _competing([row[place] for row in table.rows]):
            values[str(number)][setting] = value
    return average_ranks(values)


def _with_column(table: Table, metric: str, ranking: Ranking) -> Table:
    column = Column(f"rank_{metric}", metric, "rank", RANKS)
    ranks = [ranking.ranks.get(str(number)) for number in range(len(table.rows))]
    pairs = zip(table.rows, ranks, strict=True)
    rows = tuple((*row, None if rank is None else Measure(rank)) for row, rank in pairs)
    note = " ".join(_rank_note(table, metric, ranking))
    return replace(table, columns=(*table.columns, column), rows=rows, notes=(*table.notes, note))


def _rank_note(table: Table, metric: str, ranking: Ranking) -> Iterator[str]:
    count = len(ranking.settings)
    yield f"Average rank of {metric}: over {count} settings (1 is best, equal values share their ranks)."
    if ranking.left_out:
        names = "; ".join(str(table.rows[int(row)][0]) for row in ranking.left_out)
        yield f"Not ranked for want of a comparable number: {names}."
    if ranking.p is None or ranking.critical_difference is None:
        yield f"No test of it: that takes {TEST_FROM} settings."
    else:
        distance = f"average ranks differ at the level of {SIGNIFICANCE:g} from {ranking.critical_difference:.2f} on"
        yield f"Friedman p = {ranking.p:.3g}; {distance} (Nemenyi)."


def _competing(cells: list[Cell]) -> Iterator[tuple[int, float]]:
    """(row, printed value) of the cells that may be compared with each other."""
    given = {row: cell for row, cell in enumerate(cells) if isinstance(cell, Measure | Gain)}
    honest = {row: cell for row, cell in given.items() if DAGGER not in cell.marks} or given
    most = max((cell.n or 0 for cell in honest.values()), default=0)
    yield from ((row, float(f"{cell.value:.2f}")) for row, cell in honest.items() if (cell.n or 0) == most)


def _places(values: dict[int, float]) -> dict[int, Standing]:
    levels = sorted(Counter(values.values()), reverse=True)
    if len(levels) < 2:
        return {}
    second = levels[1] if len(values) >= SECOND_FROM else None
    named: dict[float, Standing] = {levels[0]: "best"}
    if second is not None:
        named[second] = "second"
    return {row: named[value] for row, value in values.items() if value in named}
