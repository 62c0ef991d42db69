"""Accuracies of heads that are measured beside the scored one; MLflow has no names for them, a run's journal has."""

from __future__ import annotations

import json

import pandas as pd

from fedrela_bench.reporting.artifacts import Artifacts
from fedrela_bench.rounds import LAST

OTHER_HEAD = "."
"""Before the name of the head in a metric, as in ``test/tail.realign``."""
JOURNAL = "rounds.jsonl"
"""Artifact of every finished run."""


def other_head(artifacts: Artifacts, run_id: str, metric: str) -> pd.Series[float]:
    """Values by completed rounds of a metric of another head.

    Args:
        artifacts: the files of runs.
        run_id: of MLflow.
        metric: such as ``test/tail.realign``.

    Returns:
        Empty where the rounds behind the fork, which alone a relabelled run's journal has, are too few for `last5`.
    """
    if JOURNAL not in artifacts.names(run_id):
        return pd.Series(dtype=float)
    lines = [json.loads(line) for line in artifacts.read(run_id, JOURNAL).decode().splitlines()]
    found = {line["round"]: line["result"]["metrics"].get(metric) for line in lines}
    series = pd.Series({at: value for at, value in found.items() if value is not None}, dtype=float).sort_index()
    whole = not lines or lines[0]["round"] == 1 or len(series) >= LAST
    return series if whole else pd.Series(dtype=float)
