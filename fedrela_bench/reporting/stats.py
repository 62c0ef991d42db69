"""Mean, spread and paired differences over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
INTERVAL_FROM = 3
"""Pairs from which an interval is given: with two, Student's factor of 12.7 makes it unreadable."""


@dataclass(frozen=True)
class Summary:
    """Mean over seeds; `std` (ddof 1) is None for a single seed."""

    mean: float
    std: float | None
    n: int


@dataclass(frozen=True)
class Difference:
    """Mean of the per-seed differences, and its t confidence interval from `INTERVAL_FROM` seeds on."""

    mean: float
    low: float | None
    high: float | None
    seeds: tuple[int, ...]

    @property
    def n(self) -> int:
        """Number of pairs."""
        return len(self.seeds)


def summarize(values: Mapping[int, float]) -> Summary | None:
    """Mean, standard deviation (ddof 1) and number of one value per seed; None without any value.

    Args:
        values: seed to value; NaN counts as not measured.
    """
    given = np.array([value for _, value in sorted(values.items()) if not math.isnan(value)])
    if given.size == 0:
        return None
    return Summary(float(given.mean()), float(given.std(ddof=1)) if given.size > 1 else None, int(given.size))


def paired_difference(
    values: Mapping[int, float], baseline: Mapping[int, float], confidence: float = CONFIDENCE
) -> Difference | None:
    """Difference to the baseline of the same seed, over the seeds that both have.

    Args:
        values: seed to value of the arm.
        baseline: seed to value of the run it forked from.
        confidence: two-sided level of the interval, mean ± t(n - 1) · s / sqrt(n).

    Returns:
        None where no seed has both values.
    """
    seeds = tuple(
        seed
        for seed in sorted(values.keys() & baseline.keys())
        if not (math.isnan(values[seed]) or math.isnan(baseline[seed]))
    )
    if not seeds:
        return None
    gaps = np.array([values[seed] - baseline[seed] for seed in seeds])
    mean = float(gaps.mean())
    if len(seeds) < INTERVAL_FROM:
        return Difference(mean, None, None, seeds)
    half = t_quantile(len(seeds) - 1, confidence) * float(gaps.std(ddof=1)) / math.sqrt(len(seeds))
    return Difference(mean, mean - half, mean + half, seeds)


def t_quantile(degrees: int, confidence: float) -> float:
    """The two-sided quantile of Student's t distribution, such as 12.706 for one degree and 0.95."""
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    return float(stdtrit(degrees, 0.5 + confidence / 2))
