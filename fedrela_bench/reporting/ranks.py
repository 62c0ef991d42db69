"""Ranks of methods over several settings, and whether they differ by more than chance (Demšar, JMLR 7, 2006)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

TEST_FROM = 5
"""Settings from which Friedman's test and the critical difference are given: below, chance alone fits nearly all."""
SIGNIFICANCE = 0.05


@dataclass(frozen=True)
class Ranking:
    """Average ranks over settings; 1 is best.

    Attributes:
        ranks: method to its average rank, the methods in the order given; only those measured in every setting.
        settings: the settings that were ranked.
        left_out: methods that lack a number in some setting.
        p: Friedman's test of no difference between the methods, corrected for ties; None below `TEST_FROM` settings.
        critical_difference: Nemenyi's, of two average ranks at the level of 0.05; None below `TEST_FROM` settings.
    """

    ranks: Mapping[str, float]
    settings: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    p: float | None = None
    critical_difference: float | None = None


def average_ranks(values: Mapping[str, Mapping[str, float]]) -> Ranking | None:
    """Average rank of every method over the settings, equal values sharing the mean of their ranks.

    Args:
        values: method to setting to value, larger being better; absent or NaN is not measured.

    Returns:
        None with fewer than two settings, or fewer than two methods that were measured in all of them.
    """
    settings = tuple(dict.fromkeys(name for row in values.values() for name in row))
    whole = [name for name, row in values.items() if all(_measured(row, setting) for setting in settings)]
    if len(settings) < 2 or len(whole) < 2:
        return None
    table = np.array([[values[name][setting] for name in whole] for setting in settings], dtype=float)
    ranks = np.array([ranks_of(row) for row in table])
    means = dict(zip(whole, map(float, ranks.mean(axis=0)), strict=True))
    left_out = tuple(name for name in values if name not in means)
    if len(settings) < TEST_FROM:
        return Ranking(means, settings, left_out)
    return Ranking(means, settings, left_out, friedman(ranks), nemenyi(len(whole), len(settings)))


def ranks_of(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Rank of each value, 1 for the largest; equal values share the mean of their ranks."""
    given = np.asarray(values, dtype=float)
    above = (given[None, :] > given[:, None]).sum(axis=1)
    equal = (given[None, :] == given[:, None]).sum(axis=1)
    return np.asarray(above + (equal + 1) / 2)


def friedman(ranks: np.ndarray) -> float:
    """The p of Friedman's test, corrected for ties, from (settings, methods) ranks; 1 where all are tied."""
    from scipy.special import chdtrc  # type: ignore[import-untyped]

    count, methods = ranks.shape
    sums = [np.unique(row, return_counts=True)[1] for row in ranks]
    ties = sum(float((size**3 - size).sum()) for size in sums)
    correction = 1 - ties / (count * methods * (methods**2 - 1))
    if correction <= 0:
        return 1.0
    spread = float((ranks.sum(axis=0) ** 2).sum())
    statistic = (12 * spread / (count * methods * (methods + 1)) - 3 * count * (methods + 1)) / correction
    return float(chdtrc(methods - 1, max(0.0, statistic)))


def nemenyi(methods: int, settings: int, level: float = SIGNIFICANCE) -> float:
    """Nemenyi's critical difference: q(level, methods) · sqrt(methods (methods + 1) / (6 settings)).

    q is the upper quantile of the studentised range for infinite degrees of freedom, over sqrt(2).
    """
    from scipy.stats import studentized_range  # type: ignore[import-untyped]

    quantile = float(studentized_range.ppf(1 - level, methods, math.inf)) / math.sqrt(2)
    return quantile * math.sqrt(methods * (methods + 1) / (6 * settings))


def _measured(row: Mapping[str, float], setting: str) -> bool:
    return not math.isnan(row.get(setting, math.nan))
