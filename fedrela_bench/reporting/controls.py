"""What FedReLa has over another relabeler at the same setting, told below a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd

from fedrela_bench.intervals import CONFIDENCE, gain_text
from fedrela_bench.reporting.arms import CONTROLS, Arm
from fedrela_bench.reporting.stats import paired_difference

if TYPE_CHECKING:
    from fedrela_bench.reporting.comparison import Comparison

METRICS = ("overall", "tail", "minority")
_APART = ("param:relabel.method", "param:relabel.options.", "param:seed")


def control_notes(given: Comparison) -> Iterator[str]:
    """One sentence for every control beside the arm of the table that differs from it in the relabeler alone."""
    for control in given.arms:
        partner = next((arm for arm in given.arms if _is_partner(arm, control)), None)
        if partner is None:
            continue
        told = [text for metric in METRICS if (text := _difference(given, partner, control, metric))]
        if told:
            yield (
                f"FedReLa minus control, paired by seed [{CONFIDENCE:.0%} t interval]: {partner.label} minus "
                f"{control.label}: {', '.join(told)}."
            )


def _is_partner(arm: Arm, control: Arm) -> bool:
    if not len(control.runs) or not len(arm.runs) or not _is_control(control) or _is_control(arm):
        return False
    return not arm.is_baseline and arm.algorithm == control.algorithm and _settings(arm) == _settings(control)


def _is_control(arm: Arm) -> bool:
    return str(arm.runs["arm"].iloc[0]) in CONTROLS


def _settings(arm: Arm) -> dict[str, str]:
    """What a configuration sets besides relabeler and seed."""
    first = arm.runs.iloc[0]
    names = [str(name) for name in first.index if str(name).startswith("param:") and not str(name).startswith(_APART)]
    return {name: str(first[name]) for name in names if not pd.isna(first[name])}


def _difference(given: Comparison, partner: Arm, control: Arm, metric: str) -> str | None:
    name, rule = f"{given.spec.split}/{metric}", given.spec.round_rule
    found = paired_difference(partner.values(given.runs, name, rule), control.values(given.runs, name, rule))
    if found is None:
        return None
    return f"{metric} {gain_text(found.mean, found.low, found.high)} (n = {found.n})"
