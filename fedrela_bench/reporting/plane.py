"""The search in the plane of its two objectives: the numbers first, the drawing second."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrela_bench.reporting.canvas import one_panel, save, seeds_text, short_name, style_of
from fedrela_bench.reporting.select import selection_metric, split_text

if TYPE_CHECKING:
    import pandas as pd

    from fedrela_bench.reporting.select import RoundRule
    from fedrela_bench.reporting.source import StudyRuns


@dataclass(frozen=True)
class Point:
    """One configuration in the plane of the two objectives, in percent, as measured for choosing.

    Attributes:
        label: what it sets.
        algorithm: its base algorithm.
        x, y: mean over seeds of the first and the second objective.
        seeds: over which seeds; a baseline's are those of its algorithm's relabelled points.
        baseline: whether it is a run without relabelling.
        on_front: whether it is on the Pareto front of its algorithm.
    """

    label: str
    algorithm: str
    x: float
    y: float
    seeds: tuple[int, ...]
    baseline: bool
    on_front: bool


def pareto_points(runs: StudyRuns, rule: RoundRule) -> list[Point]:
    """Baselines and the configurations that have all seeds, algorithm by algorithm, from the largest x down."""
    from fedrela_bench.reporting.arms import usable

    good = usable(runs.frame, None)
    return [
        point
        for algorithm in sorted(set(good["algorithm"]))
        for point in sorted(
            _points(runs, good[good["algorithm"] == algorithm], rule),
            key=lambda point: (-point.x, -point.y, point.label),
        )
    ]


def plane_texts(runs: StudyRuns, points: Sequence[Point]) -> tuple[str, str, str]:
    """Title, x label and y label: dataset, objectives, split and seeds."""
    selections = sorted(set(runs.frame["selection"]))
    split = selection_metric("", selections[0]).partition("/")[0]
    seeds = seeds_text(seed for point in points for seed in point.seeds)
    what = f"{short_name(runs.dataset)}: the search on the selecting images"
    title = f"{what}\n{split_text(split, selections)}; mean, {seeds}"
    x, y = (f"{objective} accuracy in % ({split})" for objective in runs.objectives[:2])
    return title, x, y


def draw_pareto(points: Sequence[Point], texts: tuple[str, str, str], path: Path) -> None:
    """Each algorithm in its colour: trials hollow, its front filled and connected, its baseline a labelled star."""
    figure, axes = one_panel(6.4, 5.0)
    for algorithm, (colour, marker) in style_of(point.algorithm for point in points).items():
        own = [point for point in points if point.algorithm == algorithm]
        _draw_trials(axes, own, algorithm, colour, marker)
        _draw_baselines(axes, [point for point in own if point.baseline], colour)
    title, x, y = texts
    axes.set(xlabel=x, ylabel=y)
    axes.set_title(title, fontsize=9, parse_math=False)
    axes.margins(0.12)
    axes.grid(alpha=0.3)
    if points:
        axes.legend(fontsize=8, frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.12))
    save(figure, path)


def _points(runs: StudyRuns, own: pd.DataFrame, rule: RoundRule) -> Iterator[Point]:
    from fedrela_bench.reporting.arms import automatic_label, configurations, front, most_seeds, objective_means

    cells = most_seeds(configurations(own[own["kind"] == "cell"]))
    shared = {seed for group in cells.values() for seed in group["seed"]}
    trunks = own[own["kind"] == "trunk"]
    bases = configurations(trunks[trunks["seed"].isin(list(shared))] if shared else trunks)
    best = set(front(runs, cells, rule))
    for key, group in [*bases.items(), *cells.items()]:
        x, y = objective_means(runs, group, runs.objectives[:2], rule)
        if math.isnan(x) or math.isnan(y):
            continue
        first = group.iloc[0]
        yield Point(
            label=automatic_label(runs.frame, group),
            algorithm=str(first["algorithm"]),
            x=100 * x,
            y=100 * y,
            seeds=tuple(sorted(int(seed) for seed in group["seed"])),
            baseline=first["kind"] == "trunk",
            on_front=key in best,
        )


def _draw_trials(axes: Any, own: Sequence[Point], algorithm: str, colour: str, marker: str) -> None:
    front = sorted((point for point in own if point.on_front), key=lambda point: point.x)
    rest = [point for point in own if not point.on_front and not point.baseline]
    shape = {"color": colour, "marker": marker}
    if rest:
        x, y = [point.x for point in rest], [point.y for point in rest]
        axes.plot(x, y, linestyle="none", markersize=5, fillstyle="none", label=f"{algorithm}: trials", **shape)
    if front:
        x, y = [point.x for point in front], [point.y for point in front]
        axes.plot(x, y, linewidth=1.4, markersize=7, label=f"{algorithm}: Pareto front", **shape)


def _draw_baselines(axes: Any, base: Sequence[Point], colour: str) -> None:
    for point in base:
        axes.plot(
            [point.x], [point.y], linestyle="none", marker="*", markersize=15, color=colour, markeredgecolor="black"
        )
        text = f"{point.label} (baseline)"
        axes.annotate(
            text, (point.x, point.y), (0, -14), textcoords="offset points", fontsize=8, ha="center", va="center"
        )
