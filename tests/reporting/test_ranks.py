"""Ranks over settings against scipy and published tables."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats  # type: ignore[import-untyped]

from fedrela_bench.reporting.ranks import average_ranks, friedman, nemenyi, ranks_of

PATIENT = settings(deadline=None)
VALUES = st.lists(st.integers(0, 6), min_size=2, max_size=8)


def over(*rows: list[float]) -> dict[str, dict[str, float]]:
    """Methods a, b, … with a value for each of the settings s0, s1, …"""
    return {
        name: {f"s{place}": value for place, value in enumerate(row)} for name, row in zip("abcdef", rows, strict=False)
    }


@PATIENT
@given(VALUES)
def test_ranks_are_scipys_with_ties_averaged(values: list[int]) -> None:
    assert ranks_of(values).tolist() == scipy_stats.rankdata([-value for value in values]).tolist()


@PATIENT
@given(VALUES, st.integers(-3, 3), st.integers(1, 4))
def test_ranks_do_not_change_with_shift_and_scale(values: list[int], shift: int, scale: int) -> None:
    assert ranks_of([scale * value + shift for value in values]).tolist() == ranks_of(values).tolist()


def test_average_ranks_by_hand() -> None:
    found = average_ranks(over([3, 1, 2], [2, 2, 2], [1, 3, 1]))
    assert found is not None
    # Ranks 1 2 3 | 3 2 1 | 1.5 1.5 3.
    assert dict(found.ranks) == pytest.approx({"a": 5.5 / 3, "b": 5.5 / 3, "c": 7 / 3})
    assert found.settings == ("s0", "s1", "s2")
    assert (found.p, found.critical_difference) == (None, None)


def test_from_five_settings_on_there_is_a_test() -> None:
    rows = np.random.default_rng(5).normal(size=(4, 6)).round(1)
    found = average_ranks(over(*rows.tolist()))
    assert found is not None
    assert found.p == pytest.approx(scipy_stats.friedmanchisquare(*rows).pvalue)
    # Demšar's table 5: q = 2.569 for four methods at 0.05.
    assert found.critical_difference == pytest.approx(2.569 * math.sqrt(4 * 5 / (6 * 6)), abs=2e-3)
    assert average_ranks(over(*rows[:, :4].tolist())).p is None  # type: ignore[union-attr]


@pytest.mark.parametrize(("methods", "quantile"), [(2, 1.960), (3, 2.343), (5, 2.728), (10, 3.164)])
def test_critical_differences_are_those_of_the_published_table(methods: int, quantile: float) -> None:
    assert nemenyi(methods, 10) == pytest.approx(quantile * math.sqrt(methods * (methods + 1) / 60), abs=1e-3)


def test_no_difference_at_all_is_no_evidence() -> None:
    assert friedman(np.full((6, 3), 2.0)) == 1.0


def test_a_method_without_a_number_in_a_setting_is_left_out_and_named() -> None:
    found = average_ranks(over([3, 1], [2, math.nan], [1, 3]))
    assert found is not None
    assert (dict(found.ranks), found.left_out) == ({"a": 1.5, "c": 1.5}, ("b",))


@pytest.mark.parametrize("rows", [[[1.0], [2.0]], [[1.0, 2.0]], [[1.0, 2.0], [1.0, math.nan]], []])
def test_one_setting_or_one_method_has_no_rank(rows: list[list[float]]) -> None:
    assert average_ranks(over(*rows)) is None
