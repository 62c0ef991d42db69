"""What a round yields: accuracies by group, confusion and relabel-flow matrices, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from fedrela_bench.errors import ConfigError

Groups = dict[str, list[int]]
HEAD_SHARE, MEDIUM_SHARE = 75.0, 95.0
TEST_SIZE = 10_000
"""Size of the test distribution that FedLoGe's code spreads over clients and classes."""


def shot_groups(counts: np.ndarray | Sequence[int], rule: str = "train_counts") -> Groups:
    """Head, medium and tail classes by cumulative share of the samples, 75 % and 95 %.

    Classes are sorted by count, descending and stable. Head reaches up to and including the class in whose interval the
    75 % mark lies, medium up to and including that of 95 %, tail is the rest; groups may be empty.

    Args:
        counts: (C,) global training counts for ``train_counts``; (K, C) counts per client for ``fedloge_trunc`` and
            ``fedloge_trunc_capped``, which first truncate to a test set of 10,000 per (client, class) cell, as
            FedLoGe's code does (the capped release at most 10,000 / C per cell).
        rule: one of the three names.

    Returns:
        Class ids of ``head``, ``medium``, ``tail``, each in descending order of count.
    """
    values = np.asarray(counts, dtype=np.int64)
    if rule != "train_counts":
        values = truncated_test_counts(values, capped=_is_capped(rule))
    if values.ndim != 1 or values.sum() == 0:
        raise ConfigError(f"shot_groups needs (C,) counts with at least one sample, got shape {values.shape}")
    order = np.argsort(-values, kind="stable")
    cumulative = np.cumsum(values[order]) / values.sum() * 100.0
    cumulative[-1] = 100.0
    heads = int(np.argmax(cumulative >= HEAD_SHARE)) + 1
    mediums = int(np.argmax(cumulative >= MEDIUM_SHARE)) + 1
    ids = [int(label) for label in order]
    return {"head": ids[:heads], "medium": ids[heads:mediums], "tail": ids[mediums:]}


def _is_capped(rule: str) -> bool:
    if rule not in ("fedloge_trunc", "fedloge_trunc_capped"):
        raise ConfigError(f"unknown split rule {rule!r}; valid: train_counts, fedloge_trunc, fedloge_trunc_capped")
    return rule == "fedloge_trunc_capped"


def truncated_test_counts(client_counts: np.ndarray, capped: bool) -> np.ndarray:
    """(C,) test counts of FedLoGe's code: int(share * 10,000) per client and class, summed over clients.

    Args:
        client_counts: (K, C) training counts.
        capped: at most 10,000 / C per cell, as in FedReLa's release.
    """
    cells = (client_counts / client_counts.sum() * TEST_SIZE).astype(np.int64)
    if capped:
        cells = np.minimum(cells, TEST_SIZE // client_counts.shape[1])
    return np.asarray(cells.sum(axis=0))


def step_groups(minority: Sequence[int], num_classes: int) -> Groups:
    """Majority and minority classes of the step profile."""
    rare = set(minority)
    return {"majority": [c for c in range(num_classes) if c not in rare], "minority": sorted(rare)}


def confusion_matrix(labels: np.ndarray, predictions: np.ndarray, num_classes: int) -> np.ndarray:
    """(C, C) counts: rows true classes, columns predictions."""
    flat = np.bincount(labels * num_classes + predictions, minlength=num_classes**2)
    return flat.reshape(num_classes, num_classes)


def accuracies(confusion: np.ndarray, groups: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """Accuracy overall and pooled over each group's samples, as fractions; groups without samples are absent."""
    correct, totals = np.diag(confusion), confusion.sum(axis=1)
    named = {"overall": list(range(len(totals))), **{name: list(ids) for name, ids in groups.items()}}
    return {name: float(correct[ids].sum() / totals[ids].sum()) for name, ids in named.items() if totals[ids].sum() > 0}


@dataclass(frozen=True)
class RoundResult:
    """One round's outcome; the only thing that leaves a simulation."""

    round: int
    """Completed rounds; the model scored is the one after that many."""
    status: Literal["ok", "diverged"]
    metrics: dict[str, float]
    """Flat names such as ``test/tail``; accuracies are fractions; what was not measured is absent."""
    confusion: dict[str, np.ndarray] = field(default_factory=dict)
    """(C, C) per slice, rows true; empty when the round was not evaluated."""
    flow: np.ndarray | None = None
    """(C, C) original label to label in force over the training set, in rounds that relabelled."""
    relabelled: dict[str, np.ndarray] | None = None
    """One row per sample whose label this round's relabelling set off its original: position, client, original, label,
    posterior (of the new label) and rho (of the new label)."""
    seconds: float = 0.0
    participants: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives back an equal result."""
        return {
            "round": self.round,
            "status": self.status,
            "metrics": self.metrics,
            "confusion": {name: matrix.tolist() for name, matrix in self.confusion.items()},
            "flow": None if self.flow is None else self.flow.tolist(),
            "relabelled": None if self.relabelled is None else {k: v.tolist() for k, v in self.relabelled.items()},
            "seconds": self.seconds,
            "participants": list(self.participants),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RoundResult:
        """The result that `to_json` wrote."""
        log, flow = values.get("relabelled"), values.get("flow")
        return cls(
            round=values["round"],
            status=values["status"],
            metrics=dict(values["metrics"]),
            confusion={name: np.asarray(matrix, dtype=np.int64) for name, matrix in values["confusion"].items()},
            flow=None if flow is None else np.asarray(flow, dtype=np.int64),
            relabelled=None if log is None else {name: np.asarray(column) for name, column in log.items()},
            seconds=values["seconds"],
            participants=tuple(values["participants"]),
        )
