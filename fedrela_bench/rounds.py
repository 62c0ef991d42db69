"""The round rule `last5`: which rounds one number stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

LAST = 5
"""Evaluated rounds that `last5` averages."""


def mean_of_last(metrics: Sequence[Mapping[str, float]], last: int = LAST) -> dict[str, float]:
    """Mean over the last `last` evaluated rounds of every ``test/`` and ``val/`` metric.

    Args:
        metrics: of consecutive rounds; those without ``test/overall`` were not evaluated.
        last: how many evaluated rounds count.
    """
    part = [values for values in metrics if values.get("test/overall") is not None][-last:]
    names = {name for values in part for name in values if name.startswith(("test/", "val/"))}
    return {name: fmean(values[name] for values in part if name in values) for name in sorted(names)}
