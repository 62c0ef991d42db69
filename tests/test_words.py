"""Counts with their nouns."""

from __future__ import annotations

import pytest

from fedrela_bench.words import counted


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 seeds"),
        (1, "1 seed"),
        (1.0, "1 seed"),
        (0.5, "0.5 seeds"),
        (13.97, "13.97 seeds"),
        (999_999, "999999 seeds"),
        (1_000_000, "1000000 seeds"),
        (1_000_000.0, "1000000 seeds"),
        (75_600_001, "75600001 seeds"),
        (2_500_000.4, "2500000 seeds"),
        (1e-3, "0.001 seeds"),
    ],
)
def test_a_count_is_written_in_full(number: float, text: str) -> None:
    assert counted(number, "seed") == text
