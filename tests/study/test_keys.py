"""Keys: equal exactly for what computes the same bits."""

from __future__ import annotations

from typing import Any

import pytest

from fedrela_bench.study.keys import Fingerprint, cell_key, numerics, trunk_key
from tests.study.fakes import config

PRINT = Fingerprint("data", numerics(config(), "cpu", 1), "1")


@pytest.mark.parametrize(
    "changes",
    [{"relabel__tau": 0.1}, {"relabel__start": 0.5}, {"relabel__period": 3}, {"relabel__preset": "author"}],
)
def test_relabelling_never_changes_the_trunk(changes: dict[str, Any]) -> None:
    assert trunk_key(config(**changes), PRINT) == trunk_key(config(), PRINT)


@pytest.mark.parametrize(
    "changes",
    [{"seed": 2}, {"training__lr": 0.01}, {"federation__algorithm": "fedprox"}, {"evaluation__eval_every": 2}],
)
def test_what_changes_bits_changes_trunk_and_cell(changes: dict[str, Any]) -> None:
    assert trunk_key(config(**changes), PRINT) != trunk_key(config(), PRINT)
    assert cell_key(config(relabel__tau=0.1, **changes), PRINT) != cell_key(config(relabel__tau=0.1), PRINT)


def test_data_arithmetic_and_code_are_part_of_a_key() -> None:
    others = [
        Fingerprint("other", PRINT.numerics, "1"),
        Fingerprint("data", numerics(config(), "gpu model", 1), "1"),
        Fingerprint("data", numerics(config(), "cpu", 2), "1"),
        Fingerprint("data", PRINT.numerics, "2"),
    ]
    assert len({trunk_key(config(), fingerprint) for fingerprint in (PRINT, *others)}) == 5


def test_a_folder_may_move() -> None:
    here, there = config(data__source="folder:/a/b"), config(data__source="folder:/c")
    assert trunk_key(here, PRINT) == trunk_key(there, PRINT) != trunk_key(config(), PRINT)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"relabel__start": 0.8}, {"relabel__start": 8}),
        ({"relabel__period": 0}, {"relabel__period": 2}),
        ({"relabel__std_ddof": 1}, {}),
    ],
)
def test_spellings_of_the_same_run_share_a_cell(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert cell_key(config(relabel__tau=0.1, **left), PRINT) == cell_key(config(relabel__tau=0.1, **right), PRINT)


def test_a_period_that_comes_round_is_another_cell() -> None:
    assert cell_key(config(relabel__tau=0.1, relabel__period=1), PRINT) != cell_key(config(relabel__tau=0.1), PRINT)
