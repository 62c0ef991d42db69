"""Published curves over a relabelling setting, for the dataset and the algorithms of a study."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fedrela_bench.reporting.published import Published
    from fedrela_bench.reporting.source import StudyRuns

COUNT = "relabeled_per_client"
VARIANT = "_dotreg"
"""FedReLa's code runs this variant of FedETF under the plain name."""
_NOTES = {
    "relabel.tau": re.compile(r"tau=([\d.]+)%"),
    "relabel.start": re.compile(r"T_relabel=([\d.]+)%R"),
}
_FAULTS = {("11", "cifar100"): "; its columns for α = 1 and 10 look swapped"}
_SETTING = ("table", "ratio", "clients", "alpha")
_Row = Mapping[str, str]


@dataclass(frozen=True)
class PublishedLine:
    """A published curve: `x` (n,) in percent, `mean` (M + 1, n), `gain` (M, n); NaN where nothing was published.

    The last row of `mean` counts relabelled images per client.
    """

    label: str
    algorithm: str
    x: np.ndarray
    mean: np.ndarray
    gain: np.ndarray


def published_lines(
    runs: StudyRuns, algorithms: Sequence[str], parameter: str, metrics: Sequence[str], published: Published
) -> Iterator[PublishedLine]:
    """For each base algorithm the published curve of the same dataset whose setting is nearest to the study's.

    Args:
        runs: the study.
        algorithms: its base algorithms.
        parameter: relabel.tau or relabel.start.
        metrics: M names such as overall.
        published: rows whose notes say τ or T.
    """
    for algorithm in algorithms:
        ours = _setting(runs, algorithm)
        own = [row for row in published.rows if _same_subject(row, ours)]
        settings = {tuple(row[name] for name in _SETTING) for row in own if _place(row, parameter) is not None}
        if settings:
            nearest = min(settings, key=lambda setting: (_distance(setting, ours), setting))
            chosen = [row for row in own if tuple(row[name] for name in _SETTING) == nearest]
            yield _line(chosen, algorithm, parameter, metrics)


def _line(rows: Sequence[_Row], algorithm: str, parameter: str, metrics: Sequence[str]) -> PublishedLine:
    values = {(_place(row, parameter), row["metric"]): float(row["accuracy_pct"]) for row in rows}
    bases = {row["metric"]: float(row["accuracy_pct"]) for row in rows if row["variant"] == "base"}
    x = np.array(sorted({at for at, _ in values if at is not None}))
    mean = np.array([[values.get((at, metric), np.nan) for at in x] for metric in (*metrics, COUNT)])
    base = np.array([bases.get(metric, np.nan) for metric in metrics])
    table, ratio, clients, alpha = (rows[0][name] for name in _SETTING)
    fault = _FAULTS.get((table, rows[0]["dataset"]), "")
    label = f"{algorithm}: paper, Table {table} (IF {ratio}, {clients} clients, α = {alpha}{fault})"
    return PublishedLine(label, algorithm, x, mean, mean[:-1] - base[:, None])


def _place(row: _Row, parameter: str) -> float | None:
    """The value of the parameter, in percent, that a row with FedReLa is about."""
    found = _NOTES[parameter].fullmatch(row["note"])
    return float(found[1]) if found and row["variant"] == "fedrela" else None


def _setting(runs: StudyRuns, algorithm: str) -> _Row:
    row = runs.frame[runs.frame["algorithm"] == algorithm].iloc[0]
    imbalance = {"lt": "longtail", "step": "step"}.get(str(row["profile"]), "")
    known = {"dataset": runs.dataset.removesuffix(f"_{row['profile']}"), "imbalance": imbalance, "method": algorithm}
    fields = {"ratio": "data.imbalance_factor", "clients": "federation.clients", "alpha": "data.alpha"}
    return known | {name: str(row.get(f"param:{field}", "")) for name, field in fields.items()}


def _same_subject(row: _Row, ours: _Row) -> bool:
    same = all(row[name] == ours[name] for name in ("dataset", "imbalance"))
    return same and row["method"].lower() == ours["method"].removesuffix(VARIANT)


def _distance(setting: Sequence[str], ours: _Row) -> float:
    """The sum of the logarithms of the ratios of IF, clients and α."""
    pairs = zip(setting[1:], (ours["ratio"], ours["clients"], ours["alpha"]), strict=True)
    return sum(abs(math.log(float(theirs) / float(own))) for theirs, own in pairs if theirs and own)
