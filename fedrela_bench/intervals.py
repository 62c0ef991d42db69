"""Confidence intervals of a mean of few paired differences: Student's t and the percentile bootstrap."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

CONFIDENCE = 0.95
INTERVAL_FROM = 3
"""Pairs from which an interval is given."""
WHY_THREE = "with two, the t interval is 12.7 standard errors wide on each side and the bootstrap knows three means"
"""Why not from two."""
ENUMERATED = 8
"""Pairs up to which every resample is enumerated (6,435 different ones); above, `DRAWS` are drawn."""
DRAWS = 10_000

Bounds = tuple[float, float]


def interval_text(low: float | None, high: float | None) -> str:
    """Such as ``[+0.52, +5.48]``; empty for none."""
    return "" if low is None or high is None else f"[{low:+.2f}, {high:+.2f}]"


def gain_text(value: float, low: float | None, high: float | None) -> str:
    """A difference of accuracies in points, such as ``+3.00 [+0.52, +5.48]``, from fractions."""
    bounds = "" if low is None or high is None else f" {interval_text(100 * low, 100 * high)}"
    return f"{100 * value:+.2f}{bounds}"


def t_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Bounds | None:
    """Student's two-sided interval of the mean, mean ± t(n - 1) · s / sqrt(n); None below `INTERVAL_FROM` values."""
    if len(values) < INTERVAL_FROM:
        return None
    given = np.sort(np.asarray(values, dtype=float))
    half = t_quantile(len(given) - 1, confidence) * float(given.std(ddof=1)) / math.sqrt(len(given))
    return float(given.mean()) - half, float(given.mean()) + half


def t_quantile(degrees: int, confidence: float) -> float:
    """The two-sided quantile of Student's t distribution, such as 12.706 for one degree and 0.95."""
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    return float(stdtrit(degrees, 0.5 + confidence / 2))


def bootstrap_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Bounds | None:
    """The percentile bootstrap interval of the mean (Efron 1979); None below `INTERVAL_FROM` values.

    Up to `ENUMERATED` values all n^n resamples count, so the interval is exact; above, `DRAWS` resamples are drawn from
    a generator that is seeded with n and picks places of the sorted values: the interval depends on nothing but the
    values, not on their order, and moves and stretches with them. Its bounds are means that a resample has: the least
    with at least (1 - confidence) / 2 of the resamples at or below it, and the largest with as many at or above it.
    For few values it is too narrow (for three it is their range); t is the one to quote.
    """
    if len(values) < INTERVAL_FROM:
        return None
    given = np.sort(np.asarray(values, dtype=float))
    means, weights = _exact(given) if len(given) <= ENUMERATED else _drawn(given)
    order = np.argsort(means, kind="stable")
    means, weights = means[order], weights[order]
    tail = (1 - confidence) / 2 * float(weights.sum())
    low = int(np.argmax(np.cumsum(weights) >= tail))
    high = len(means) - 1 - int(np.argmax(np.cumsum(weights[::-1]) >= tail))
    return float(means[low]), float(means[high])


def _exact(given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean of every multiset of n of n values, and in how many orders it can be drawn."""
    counts, orders = _multisets(len(given))
    # Relative to the least, so that equal values give their own value back.
    return given[0] + (counts @ (given - given[0])) / len(given), orders


@cache
def _multisets(size: int) -> tuple[np.ndarray, np.ndarray]:
    """(multisets, values) how often each value is in it, and (multisets,) its orders."""
    counts = list(_compositions(size, size))
    orders = [math.factorial(size) // math.prod(map(math.factorial, row)) for row in counts]
    return np.array(counts), np.array(orders, dtype=float)


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Ways to write `total` as an ordered sum of `parts` counts."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _compositions(total - first, parts - 1):
            yield (first, *rest)


def _drawn(given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    size = len(given)
    picked = np.random.default_rng(size).integers(0, size, (DRAWS, size))
    return given[0] + (given - given[0])[picked].mean(axis=1), np.ones(DRAWS)
