"""Which round of a run is its number."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pandas as pd

from fedrela_bench.errors import ConfigError
from fedrela_bench.reporting.otherheads import OTHER_HEAD
from fedrela_bench.reporting.source import StudyRuns
from fedrela_bench.rounds import LAST, ROUND_RULES, RoundRule

__all__ = ["ROUND_RULES", "RoundRule"]

DAGGER = "†"
COUNTS = ("relabeled_per_client",)
"""Metrics that count samples; all others are accuracies."""


def split_text(split: str, selections: Iterable[str]) -> str:
    """The split in words.

    Args:
        split: test or val.
        selections: the values of ``evaluation.selection`` of the runs.
    """
    given = set(selections)
    if split == "val":
        return "val (the half of the test images that selects)"
    if "test_slice" in given:
        return "test (the half of the test images that does not select; fixed, class-balanced)"
    return "test (all test images, which also select)" if "oracle" in given else "test (all test images)"


def at_round(series: pd.Series[float], rule: RoundRule, selector: pd.Series[float] | None = None) -> float:
    """The one number of a curve.

    Args:
        series: values by completed rounds.
        rule: one of `ROUND_RULES`.
        selector: values by completed rounds whose first maximum names the round, for the two `best` rules.

    Returns:
        NaN for an empty curve, or where the rule's selector was not measured.
    """
    values = series.dropna().sort_index()
    if values.empty:
        return math.nan
    if rule == "last":
        return float(values.iloc[-1])
    if rule == "last5":
        return float(values.iloc[-LAST:].mean())
    if selector is None or selector.dropna().empty:
        return math.nan
    return float(values.get(selector.dropna().sort_index().idxmax(), math.nan))


def run_value(runs: StudyRuns, run_id: str, metric: str, rule: RoundRule) -> float:
    """A run's number for a metric such as ``test/tail``; NaN where it was not measured.

    The sum of ``test/medium+tail`` is of both accuracies by the same rule; ``test/relabeled_per_client`` counts.
    """
    split, _, name = metric.partition("/")
    if name in COUNTS:
        return relabeled_per_client(runs, run_id)
    if "+" in name:
        names, at, head = name.partition(OTHER_HEAD)
        return sum(run_value(runs, run_id, f"{split}/{part}{at}{head}", rule) for part in names.split("+"))
    stored = runs.latest(run_id, metric if rule == "last" else f"final/{metric}")
    if rule == "last" or (rule == "last5" and not math.isnan(stored)):
        return stored
    selector = {"best_selected": "val/overall", "best_oracle": "test/overall"}.get(rule)
    return at_round(runs.history(run_id, metric), rule, runs.history(run_id, selector) if selector else None)


def relabeled_per_client(runs: StudyRuns, run_id: str) -> float:
    """Samples whose label is not the dataset's at the end of a run, per client; 0 for a baseline."""
    run = runs.frame[runs.frame["run_id"] == run_id].iloc[0]
    if run["kind"] == "trunk":
        return 0.0
    clients = pd.to_numeric(run.get("param:federation.clients", math.nan), errors="coerce")
    return runs.latest(run_id, "relabel/changed") / float(clients)


def values_by_seed(runs: StudyRuns, arm: pd.DataFrame, metric: str, rule: RoundRule) -> dict[int, float]:
    """Seed to number over the runs of one arm.

    Raises:
        ConfigError: a seed stands twice in the arm with different numbers.
    """
    found: dict[int, float] = {}
    for run_id, seed in zip(arm["run_id"], arm["seed"], strict=True):
        value = run_value(runs, str(run_id), metric, rule)
        known = found.get(int(seed), value)
        if known != value and not (math.isnan(known) and math.isnan(value)):
            raise ConfigError(
                f"two runs of the same configuration and seed {seed} disagree on {metric}; filter by `key` in the spec"
            )
        found[int(seed)] = value
    return found


def selection_metric(objective: str, selection: str) -> str:
    """Where an objective is measured for choosing: the selection slice, or the test set itself under `oracle`."""
    return f"test/{objective}" if selection == "oracle" else f"val/{objective}"
