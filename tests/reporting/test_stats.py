"""Statistics against numbers worked out by hand, against scipy, and under shifts, scales and other orders."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats  # type: ignore[import-untyped]

from fedrela_bench.intervals import ENUMERATED, bootstrap_interval, t_interval, t_quantile
from fedrela_bench.reporting.stats import paired_difference, summarize

ACCURACIES = st.dictionaries(st.integers(1, 9), st.floats(0, 1), min_size=1)
PATIENT = settings(deadline=None, max_examples=60)
GAPS = st.lists(st.integers(-1000, 1000).map(lambda value: value / 1024), min_size=3, max_size=11)


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


def test_paired_intervals() -> None:
    found = paired_difference({1: 0.62, 2: 0.66, 3: 0.67}, {1: 0.60, 2: 0.62, 3: 0.64})
    assert found is not None
    # Differences 2, 4, 3 points: mean 3, s = 1, half-width 4.302653 * 1 / sqrt(3) = 2.484138.
    assert found.mean == pytest.approx(0.03)
    assert found.low == pytest.approx(0.03 - 0.02484138, abs=1e-8)
    assert found.high == pytest.approx(0.03 + 0.02484138, abs=1e-8)
    # 1 of the 27 resamples has the mean 2 and 1 the mean 4: more than 2.5 % each, so the interval is the range.
    assert [found.boot_low, found.boot_high] == pytest.approx([0.02, 0.04])
    assert found.seeds == (1, 2, 3)


def test_only_shared_seeds_are_paired() -> None:
    found = paired_difference({1: 0.5, 2: 0.9}, {2: 0.8, 3: 0.1})
    assert found is not None
    assert found.mean == pytest.approx(0.1)
    assert (found.low, found.high, found.boot_low, found.boot_high, found.n) == (None, None, None, None, 1)
    assert paired_difference({1: 0.5}, {2: 0.5}) is None
    assert paired_difference({1: math.nan}, {1: 0.5}) is None


@pytest.mark.parametrize("count", [0, 1, 2])
def test_no_interval_below_three_pairs(count: int) -> None:
    assert t_interval([0.1] * count) is None
    assert bootstrap_interval([0.1] * count) is None


@pytest.mark.parametrize(("degrees", "value"), [(1, 12.7062), (2, 4.30265), (4, 2.77645), (30, 2.04227)])
def test_t_quantiles(degrees: int, value: float) -> None:
    assert t_quantile(degrees, 0.95) == pytest.approx(value, abs=1e-4)


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_t_intervals_are_scipys(confidence: float) -> None:
    values = np.random.default_rng(1).normal(size=7)
    theirs = scipy_stats.ttest_1samp(values, 0).confidence_interval(confidence)
    assert t_interval(list(values), confidence) == pytest.approx((theirs.low, theirs.high))


@pytest.mark.parametrize("size", [3, 4, 5, 6])
def test_few_pairs_are_resampled_in_every_way(size: int) -> None:
    values = np.random.default_rng(size).normal(size=size)
    means = sorted(float(np.mean(picked)) for picked in product(values, repeat=size))
    rest = 0.025 * len(means)
    low = next(mean for place, mean in enumerate(means, 1) if place >= rest)
    high = next(mean for place, mean in enumerate(reversed(means), 1) if place >= rest)
    assert bootstrap_interval(list(values)) == pytest.approx((low, high))


def test_many_pairs_agree_with_scipys_bootstrap() -> None:
    values = np.random.default_rng(2).normal(size=30)
    options = {"method": "percentile", "n_resamples": 20_000, "rng": np.random.default_rng(3)}
    theirs = scipy_stats.bootstrap((values,), np.mean, **options).confidence_interval
    assert bootstrap_interval(list(values)) == pytest.approx((theirs.low, theirs.high), abs=0.03)


def test_both_ways_of_resampling_meet_where_one_takes_over() -> None:
    from fedrela_bench import intervals

    values = np.sort(np.random.default_rng(4).normal(size=ENUMERATED))
    exact, drawn = intervals._exact(values), intervals._drawn(values)
    assert float((exact[1] / exact[1].sum()) @ exact[0]) == pytest.approx(values.mean())
    assert exact[1].sum() == ENUMERATED**ENUMERATED
    assert np.quantile(drawn[0], [0.025, 0.975]) == pytest.approx(bootstrap_interval(list(values)), abs=0.05)


@PATIENT
@given(GAPS, st.randoms(use_true_random=False))
def test_intervals_do_not_depend_on_the_order(gaps: list[float], random: object) -> None:
    shuffled = list(gaps)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert bootstrap_interval(gaps) == bootstrap_interval(shuffled)
    assert t_interval(gaps) == t_interval(shuffled)


@PATIENT
@given(GAPS, st.sampled_from([0.0, 0.25, -2.0]), st.sampled_from([0.5, 1.0, 4.0]))
def test_intervals_move_and_stretch_with_the_gaps(gaps: list[float], shift: float, scale: float) -> None:
    changed = [scale * gap + shift for gap in gaps]
    for interval in (t_interval, bootstrap_interval):
        before, after = interval(gaps), interval(changed)
        assert before is not None and after is not None
        assert after == pytest.approx(tuple(scale * bound + shift for bound in before), abs=1e-9)


@PATIENT
@given(GAPS)
def test_the_mean_lies_in_both_intervals_and_the_bootstraps_inside_the_range(gaps: list[float]) -> None:
    mean = float(np.mean(gaps))
    for interval in (t_interval, bootstrap_interval):
        found = interval(gaps)
        assert found is not None
        assert found[0] - 1e-9 <= mean <= found[1] + 1e-9
    low, high = bootstrap_interval(gaps) or (0, 0)
    assert min(gaps) - 1e-12 <= low and high <= max(gaps) + 1e-12


@PATIENT
@given(st.floats(-1, 1), st.integers(3, 12))
def test_equal_gaps_have_intervals_of_no_width(gap: float, count: int) -> None:
    assert bootstrap_interval([gap] * count) == (gap, gap)
    assert t_interval([gap] * count) == pytest.approx((gap, gap), abs=1e-12)


@PATIENT
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
        assert there.low - 1e-12 <= there.mean <= there.high + 1e-12
    if there.boot_low is not None and there.n <= ENUMERATED:
        assert there.boot_low == pytest.approx(-(back.boot_high or 0), abs=1e-12)


@PATIENT
@given(ACCURACIES, st.floats(-0.5, 0.5))
def test_a_constant_gain_has_an_interval_of_no_width(values: dict[int, float], gain: float) -> None:
    found = paired_difference({seed: value + gain for seed, value in values.items()}, values)
    assert found is not None
    assert found.mean == pytest.approx(gain, abs=1e-9)
    assert (found.low is None) == (found.n < 3)
    if found.low is not None:
        assert found.low == pytest.approx(gain, abs=1e-9)
