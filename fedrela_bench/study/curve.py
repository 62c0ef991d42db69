"""From journal lines to what is compared: one number per metric by the round rule, and arrays per class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedrela_bench.nested import Json
from fedrela_bench.rounds import mean_of_last


def journal_line(result: Any, timestamp: float) -> Json:
    """The journal's line for a `RoundResult`: everything but matrices, which go to files."""
    return {
        "round": result.round,
        "timestamp": timestamp,
        "result": {
            "status": result.status,
            "metrics": result.metrics,
            "seconds": result.seconds,
            "participants": list(result.participants),
            "correct": {name: np.diag(matrix).tolist() for name, matrix in result.confusion.items()},
            "relabelled": result.flow is not None,
        },
    }


def final_metrics(curve: Sequence[Json]) -> dict[str, float]:
    """Mean of the last five evaluated rounds for every ``test/`` and ``val/`` metric."""
    return mean_of_last([line["result"]["metrics"] for line in curve])


def class_arrays(curve: Sequence[Json], confusion: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays for ``curves.npz``.

    Args:
        curve: lines of consecutive rounds.
        confusion: (C, C) per slice after the last evaluated round; {} when there is none.

    Returns:
        ``confusion_<slice>`` (C, C), ``per_class_rounds`` (E,), ``per_class_<slice>`` (E, C) accuracies as fractions.
    """
    arrays = {f"confusion_{name}": np.asarray(matrix) for name, matrix in confusion.items()}
    evaluated = [line for line in curve if line["result"]["correct"]]
    arrays["per_class_rounds"] = np.array([line["round"] for line in evaluated], dtype=np.int64)
    for name, matrix in confusion.items():
        correct = np.array([line["result"]["correct"][name] for line in evaluated], dtype=np.float64)
        totals = np.maximum(np.asarray(matrix).sum(axis=1), 1)
        arrays[f"per_class_{name}"] = correct / totals
    return arrays


def relabel_arrays(result: Any) -> dict[str, np.ndarray]:
    """Arrays of ``relabel_r0033.npz``: ``flow`` (C, C), original to current label, and a row per relabelled sample."""
    return {"flow": np.asarray(result.flow), **(getattr(result, "relabelled", None) or {})}
