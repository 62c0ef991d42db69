"""Best and second best of a column, and average ranks over settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedrela_bench.reporting.standing import standings, with_average_ranks
from fedrela_bench.reporting.table import Cell, Column, Gain, Measure, Table
from tests.reporting.samples import GROUPED


def one(*cells: Cell, kind: str = "measure") -> Table:
    column = Column("x", "x", kind, ranked=True)  # type: ignore[arg-type]
    return Table("t", (Column("arm", "arm"), column), tuple((f"row {at}", cell) for at, cell in enumerate(cells)), ())


def placed(table: Table) -> list[str]:
    found = standings(table)
    return [found.get((row, 1), "") for row in range(len(table.rows))]


def seeds(value: float, n: int = 3, marks: str = "") -> Measure:
    return Measure(value, 1.0, n, marks)


@pytest.mark.parametrize(
    ("cells", "wanted"),
    [
        ([seeds(1), seeds(3), seeds(2)], ["", "best", "second"]),
        ([seeds(1), seeds(3)], ["", "best"]),
        ([seeds(3), seeds(3), seeds(2)], ["best", "best", "second"]),
        ([seeds(3), seeds(2), seeds(2), seeds(1)], ["best", "second", "second", ""]),
        ([seeds(3.001), seeds(3.004), seeds(2)], ["best", "best", "second"]),
        ([seeds(3), seeds(3)], ["", ""]),
        ([seeds(3)], [""]),
        ([None, seeds(1), None, seeds(2)], ["", "", "", "best"]),
        ([seeds(9, n=2), seeds(1), seeds(2)], ["", "", "best"]),
        ([seeds(9, marks="†"), seeds(1), seeds(2)], ["", "", "best"]),
        ([seeds(9, marks="†"), seeds(1, marks="†")], ["best", ""]),
        ([seeds(-1), seeds(0), seeds(-2)], ["second", "best", ""]),
        ([Gain(1.0, n=3), Gain(2.0, n=3)], ["", "best"]),
    ],
)
def test_best_and_second(cells: list[Cell], wanted: list[str]) -> None:
    assert placed(one(*cells)) == wanted


def test_published_and_other_columns_are_never_ranked() -> None:
    assert placed(one(seeds(1), seeds(2), kind="published")) == ["", ""]
    table = one(seeds(1), seeds(2))
    plain = replace(table, columns=tuple(replace(column, ranked=False) for column in table.columns))
    assert standings(plain) == {}


def settings_table(*rows: tuple[float | None, ...]) -> tuple[Table, dict[str, dict[str, int]]]:
    """Rows of values, one per setting, and where the metric `tail` stands."""
    names = [f"s{place}" for place in range(len(rows[0]))]
    columns = (Column("arm", "arm"), *(Column(f"{name}_tail", "tail", "measure", name) for name in names))
    cells = [tuple(None if value is None else seeds(value) for value in row) for row in rows]
    table = Table("t", columns, tuple((f"row {at}", *row) for at, row in enumerate(cells)), ())
    return table, {"tail": {name: place for place, name in enumerate(names, 1)}}


def test_average_ranks_become_a_column_with_a_note() -> None:
    table = with_average_ranks(*settings_table((3, 1), (2, 1), (1, 3), (9, None)))
    assert table.columns[-1] == Column("rank_tail", "tail", "rank", "average rank")
    ranks = [row[-1] for row in table.rows]
    assert [cell.value for cell in ranks[:3] if isinstance(cell, Measure)] == [1.75, 2.25, 2.0]
    assert ranks[3] is None
    assert table.notes == (
        "Average rank of tail: over 2 settings (1 is best, equal values share their ranks). Not ranked for want of a "
        "comparable number: row 3. No test of it: that takes 5 settings.",
    )


def test_five_settings_are_tested() -> None:
    table = with_average_ranks(*settings_table((3, 3, 3, 3, 3), (2, 2, 2, 2, 2), (1, 1, 1, 1, 1)))
    # Friedman's statistic is 10 with 2 degrees of freedom: p = exp(-5); q = 2.343 for three methods.
    assert "Friedman p = 0.00674; average ranks differ at the level of 0.05 from 1.48 on (Nemenyi)." in table.notes[0]


def test_a_single_setting_has_no_ranks() -> None:
    table, places = settings_table((3,), (2,))
    assert with_average_ranks(table, places) == table
    assert with_average_ranks(GROUPED, {"tail": {"IF = 50": 1}}) == GROUPED
