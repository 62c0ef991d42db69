"""Statistics against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrela_bench.reporting.stats import paired_difference, summarize, t_quantile

ACCURACIES = st.dictionaries(st.integers(1, 9), st.floats(0, 1), min_size=1)


def test_mean_and_sample_deviation() -> None:
    found = summarize({1: 0.6, 2: 0.7, 3: 0.8})
    assert found is not None
    assert [found.mean, found.std, found.n] == pytest.approx([0.7, 0.1, 3])


def test_one_seed_has_no_deviation_and_none_has_no_summary() -> None:
    found = summarize({4: 0.5})
    assert found is not None
    assert (found.mean, found.std, found.n) == (0.5, None, 1)
    assert summarize({}) is None
    assert summarize({1: math.nan}) is None


def test_paired_interval() -> None:
    found = paired_difference({1: 0.62, 2: 0.66, 3: 0.67}, {1: 0.60, 2: 0.62, 3: 0.64})
    assert found is not None
    # Differences 2, 4, 3 points: mean 3, s = 1, half-width 4.302653 * 1 / sqrt(3) = 2.484138.
    assert found.mean == pytest.approx(0.03)
    assert found.low == pytest.approx(0.03 - 0.02484138, abs=1e-8)
    assert found.high == pytest.approx(0.03 + 0.02484138, abs=1e-8)
    assert found.seeds == (1, 2, 3)


def test_only_shared_seeds_are_paired() -> None:
    found = paired_difference({1: 0.5, 2: 0.9}, {2: 0.8, 3: 0.1})
    assert found is not None
    assert found.mean == pytest.approx(0.1)
    assert (found.low, found.high, found.n) == (None, None, 1)
    assert paired_difference({1: 0.5}, {2: 0.5}) is None
    assert paired_difference({1: math.nan}, {1: 0.5}) is None


@pytest.mark.parametrize(("degrees", "value"), [(1, 12.7062), (2, 4.30265), (4, 2.77645), (30, 2.04227)])
def test_t_quantiles(degrees: int, value: float) -> None:
    assert t_quantile(degrees, 0.95) == pytest.approx(value, abs=1e-4)


@given(ACCURACIES, ACCURACIES)
def test_differences_are_antisymmetric_and_inside_their_interval(
    left: dict[int, float], right: dict[int, float]
) -> None:
    there, back = paired_difference(left, right), paired_difference(right, left)
    if there is None or back is None:
        assert there is back
        return
    assert there.mean == pytest.approx(-back.mean, abs=1e-12)
    if there.low is not None and there.high is not None:
        assert there.low <= there.mean <= there.high


@given(ACCURACIES, st.floats(-0.5, 0.5))
def test_a_constant_gain_has_an_interval_of_no_width(values: dict[int, float], gain: float) -> None:
    found = paired_difference({seed: value + gain for seed, value in values.items()}, values)
    assert found is not None
    assert found.mean == pytest.approx(gain, abs=1e-9)
    assert (found.low is None) == (found.n < 3)
    if found.low is not None:
        assert found.low == pytest.approx(gain, abs=1e-9)
