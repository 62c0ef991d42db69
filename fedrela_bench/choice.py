"""The choice among points that are good in different objectives, and runs that are never chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence

RELABELER, SEARCHED = "relabeler", "searched control"
"""What the tag `arm` says of runs that are there to be compared with FedReLa: a relabeler beside a configuration as its
control, and a search's trials whose relabeler is one."""


def balanced(points: Sequence[Sequence[float]]) -> int:
    """Place of the point nearest to the best of every coordinate, each scaled to 0..1; the first of several.

    Args:
        points: at least one; NaN is worse than everything.
    """
    columns = [[value for value in column if not math.isnan(value)] for column in zip(*points, strict=True)]
    away = [sum(_away(value, column) for value, column in zip(point, columns, strict=True)) for point in points]
    return away.index(min(away))


def _away(value: float, column: Sequence[float]) -> float:
    if math.isnan(value):
        return 2.0
    low, high = min(column), max(column)
    return ((high - value) / (high - low)) ** 2 if high > low else 0.0
