"""Every base algorithm learns real digits in a few rounds, from several seeds well above the majority class."""

from __future__ import annotations

import pytest

from fedrela_bench.testing import CHECKS
from tests.kits import ROWS, Row

(LEARNS,) = [check for check in CHECKS if check.name == "learns"]


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.title, marks=pytest.mark.slow if row.slow else ()) for row in ROWS]
)
def test_it_learns_digits(row: Row) -> None:
    LEARNS(row)
