"""Figures of a report: the numbers first, the drawing second."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fedrela_bench.reporting.arms import Arm
    from fedrela_bench.reporting.select import RoundRule
    from fedrela_bench.reporting.source import StudyRuns

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette; line styles change with it, so that curves can be told apart in grey."""
LINES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class Curve:
    """Mean over seeds, in percent, by completed rounds."""

    label: str
    rounds: tuple[int, ...]
    values: tuple[float, ...]
    seeds: tuple[int, ...]
    fork_round: int | None


@dataclass(frozen=True)
class Point:
    """One configuration in the plane of the two objectives, in percent, as measured for choosing."""

    label: str
    x: float
    y: float
    baseline: bool
    on_front: bool


@dataclass(frozen=True)
class ClientMap:
    """(C, K) images per class and client; clients ordered by size, largest first."""

    counts: np.ndarray
    classes: tuple[str, ...]
    clients: tuple[int, ...]


def curves(runs: StudyRuns, arms: Sequence[Arm], metric: str) -> list[Curve]:
    """One curve per arm for a metric such as ``test/overall``; rounds that not every seed has are left out."""
    found = []
    for arm in arms:
        series = {int(seed): runs.history(str(run), metric) for run, seed in _run_seeds(arm)}
        series = {seed: values.dropna() for seed, values in series.items() if not values.dropna().empty}
        if not series:
            continue
        rounds = sorted(set.intersection(*(set(values.index) for values in series.values())))
        means = [100 * float(np.mean([values[at] for values in series.values()])) for at in rounds]
        found.append(Curve(arm.label, tuple(map(int, rounds)), tuple(means), tuple(sorted(series)), arm.fork_round))
    return found


def pareto_points(runs: StudyRuns, rule: RoundRule) -> list[Point]:
    """Every configuration that has all seeds, in the plane of the study's first two objectives."""
    from fedrela_bench.reporting.arms import (
        automatic_label,
        configurations,
        objective_means,
        pareto,
        usable,
    )

    groups = configurations(usable(runs.frame, None))
    most = max((len(group) for group in groups.values()), default=0)
    means = {
        key: objective_means(runs, group, runs.objectives, rule) for key, group in groups.items() if len(group) == most
    }
    front = set(pareto({key: point for key, point in means.items() if groups[key]["kind"].iloc[0] == "cell"}))
    points = [
        Point(
            automatic_label(runs.frame, groups[key]),
            100 * point[0],
            100 * point[1],
            groups[key]["kind"].iloc[0] == "trunk",
            key in front,
        )
        for key, point in means.items()
        if not any(math.isnan(value) for value in point)
    ]
    return sorted(points, key=lambda point: (-point.x, -point.y, point.label))


def client_map(client_counts: np.ndarray, class_names: Sequence[str]) -> ClientMap:
    """The client × class map of a partition.

    Args:
        client_counts: (K, C) images per client and class.
        class_names: C names.
    """
    order = np.argsort(-client_counts.sum(axis=1), kind="stable")
    return ClientMap(client_counts[order].T, tuple(class_names), tuple(int(client) for client in order))


def draw_curves(found: Sequence[Curve], metric: str, path: Path) -> None:
    """Accuracy per round; a dot marks the round from which a run relabels."""
    figure, axes = _canvas(7.0, 4.2)
    for place, curve in enumerate(found):
        colour, line = COLOURS[place % len(COLOURS)], LINES[place % len(LINES)]
        axes.plot(curve.rounds, curve.values, color=colour, linestyle=line, linewidth=1.4, label=curve.label)
        if curve.fork_round in curve.rounds:
            at = curve.rounds.index(curve.fork_round)
            axes.plot([curve.fork_round], [curve.values[at]], marker="o", color=colour, markersize=6)
    axes.set(xlabel="completed rounds", ylabel=f"{metric}, accuracy in %")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    if found:
        axes.legend(fontsize=7, frameon=False)
    _save(figure, path)


def draw_pareto(points: Sequence[Point], objectives: Sequence[str], path: Path) -> None:
    """Trials (grey), the front (connected) and the baselines (crosses)."""
    figure, axes = _canvas(5.6, 4.2)
    front = sorted((point for point in points if point.on_front), key=lambda point: point.x)
    rest = [point for point in points if not point.on_front and not point.baseline]
    base = [point for point in points if point.baseline]
    axes.scatter([p.x for p in rest], [p.y for p in rest], s=18, color="#999999", label="trial")
    axes.plot([p.x for p in front], [p.y for p in front], "o-", color=COLOURS[0], label="Pareto front")
    axes.scatter([p.x for p in base], [p.y for p in base], s=60, marker="x", color=COLOURS[1], label="no relabelling")
    axes.set(xlabel=f"{objectives[0]}, selection accuracy in %", ylabel=f"{objectives[1]}, selection accuracy in %")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, frameon=False)
    _save(figure, path)


def draw_client_map(found: ClientMap, title: str, path: Path) -> None:
    """Counts as a heat map on a logarithmic scale; white is no image."""
    import matplotlib as mpl
    from matplotlib.colors import LogNorm

    classes, clients = found.counts.shape
    figure, axes = _canvas(min(14.0, 3.0 + 0.12 * clients), min(14.0, 2.2 + 0.12 * classes))
    shown = np.ma.masked_equal(found.counts, 0)
    largest = max(2, int(found.counts.max(initial=2)))
    image = axes.imshow(
        shown, aspect="auto", cmap=mpl.colormaps["viridis"], norm=LogNorm(1, largest), interpolation="none"
    )
    axes.set(xlabel="clients, largest first", ylabel="class", title=title)
    axes.set_xticks([] if clients > 40 else range(clients), [] if clients > 40 else found.clients, fontsize=6)
    named = range(0, classes, max(1, classes // 25))
    axes.set_yticks(list(named), [found.classes[place] for place in named], fontsize=6)
    figure.colorbar(image, ax=axes, label="images")
    _save(figure, path)


def _run_seeds(arm: Arm) -> list[tuple[str, int]]:
    return list(zip(arm.runs["run_id"], arm.runs["seed"], strict=True))


def _canvas(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


def _save(figure: Any, path: Path) -> None:
    """Write the PNG whole or not at all."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_bytes(buffer.getvalue())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
