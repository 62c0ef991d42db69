"""Round rules: which rounds one number stands for, and how that is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Literal

RoundRule = Literal["last", "last5", "best_selected", "best_oracle"]
LAST = 5
"""Evaluated rounds that `last5` averages."""
ROUND_RULES: dict[RoundRule, str] = {
    "last": "last evaluated round",
    "last5": "mean of the last five evaluated rounds",
    "best_selected": "round with the best accuracy on the selection slice",
    "best_oracle": "best round by the reported test accuracy itself",
}
ROUND_RULE: RoundRule = "last5"
"""The rule of a study's own numbers."""


def rule_text(name: object) -> str:
    """A recorded rule in words; one that this version does not know by its name."""
    return next((text for rule, text in ROUND_RULES.items() if rule == name), str(name))


def mean_of_last(metrics: Sequence[Mapping[str, float]], last: int = LAST) -> dict[str, float]:
    """Mean over the last `last` evaluated rounds of every ``test/`` and ``val/`` metric.

    Args:
        metrics: of consecutive rounds; those without ``test/overall`` were not evaluated.
        last: how many evaluated rounds count.
    """
    part = [values for values in metrics if values.get("test/overall") is not None][-last:]
    names = {name for values in part for name in values if name.startswith(("test/", "val/"))}
    return {name: fmean(values[name] for values in part if name in values) for name in sorted(names)}
