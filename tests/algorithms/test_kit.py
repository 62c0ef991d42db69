"""The kit: what holds for every base algorithm of the package, whatever its paper changes."""

from __future__ import annotations

import pytest

import fedrela_bench.algorithms
from fedrela_bench.algorithms import ALGORITHMS
from fedrela_bench.testing import CHECKS, Check, cases_of
from fedrela_bench.testing.clients import CLIENTS
from fedrela_bench.testing.runs import RUNS
from tests.kits import ROWS, Row, names, rows_of

LEARNING = "learns"
"""Has a file of its own."""
WHOLE = [check for check in (*RUNS, *CLIENTS) if check.name != LEARNING]


@pytest.mark.parametrize("name", names())
def test_every_algorithm_has_a_row(name: str) -> None:
    variants = [row.variant for row in rows_of(name)]
    assert variants[0] == "" and len(set(variants)) == len(variants)
    assert cases_of(name) == tuple(rows_of(name))


@pytest.mark.parametrize("name", names())
def test_every_algorithm_comes_with_the_package(name: str) -> None:
    """Not only because this kit imports every file of the folder."""
    assert ALGORITHMS[name].__module__.rpartition(".")[2] in fedrela_bench.algorithms.__all__


def test_every_row_is_of_an_algorithm() -> None:
    assert {row.name for row in ROWS} <= set(names())


def test_no_rule_is_left_out() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS) == 27


def test_degenerate_cases_are_stated() -> None:
    assert sum(len(row.equals) for row in ROWS) >= 20


@pytest.mark.parametrize("check", WHOLE, ids=lambda check: check.name)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_whole_runs_keep_the_rule(row: Row, check: Check) -> None:
    check(row)
