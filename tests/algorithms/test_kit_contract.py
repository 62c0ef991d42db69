"""The kit's second half: what an algorithm declares, and what its hooks may and may not do."""

from __future__ import annotations

import pytest

from fedrela_bench.testing import Check
from fedrela_bench.testing.contract import CONTRACT
from tests.kits import ROWS, Row


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.name)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_hooks_keep_the_rule(row: Row, check: Check) -> None:
    check(row)
