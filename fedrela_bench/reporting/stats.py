"""Mean, spread and paired differences over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedrela_bench.intervals import CONFIDENCE, INTERVAL_FROM, bootstrap_interval, t_interval, t_quantile

__all__ = ["CONFIDENCE", "INTERVAL_FROM", "Difference", "Summary", "paired_difference", "summarize", "t_quantile"]


@dataclass(frozen=True)
class Summary:
    """Mean over seeds; `std` (ddof 1) is None for a single seed."""

    mean: float
    std: float | None
    n: int


@dataclass(frozen=True)
class Difference:
    """Mean of the per-seed differences, and its confidence intervals from `INTERVAL_FROM` seeds on.

    Attributes:
        mean: of the differences.
        low, high: Student's t interval.
        seeds: whose pairs it rests on.
        boot_low, boot_high: percentile bootstrap interval.
    """

    mean: float
    low: float | None
    high: float | None
    seeds: tuple[int, ...]
    boot_low: float | None = None
    boot_high: float | None = None

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
        confidence: two-sided level of both intervals.

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
    gaps = [values[seed] - baseline[seed] for seed in seeds]
    low, high = t_interval(gaps, confidence) or (None, None)
    boot_low, boot_high = bootstrap_interval(gaps, confidence) or (None, None)
    return Difference(float(np.mean(gaps)), low, high, seeds, boot_low, boot_high)
