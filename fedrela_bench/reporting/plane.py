"""The search in the plane of its two objectives: the numbers first, the drawing second."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrela_bench.choice import balanced
from fedrela_bench.reporting.arms import (
    automatic_label,
    configurations,
    front,
    most_seeds,
    objective_means,
    pareto,
    usable,
)
from fedrela_bench.reporting.canvas import headline, one_panel, save, short_name, style_of, what_text
from fedrela_bench.reporting.select import selection_metric

if TYPE_CHECKING:
    import pandas as pd

    from fedrela_bench.reporting.select import RoundRule
    from fedrela_bench.reporting.source import StudyRuns


RIM = {"markeredgecolor": "black", "markeredgewidth": 1.8}
RING: dict[str, Any] = {
    "marker": "o",
    "markersize": 16,
    "fillstyle": "none",
    "color": "black",
    "linestyle": "none",
    "markeredgewidth": 1.2,
}


@dataclass(frozen=True)
class Point:
    """One configuration in the plane of the two objectives, in percent, as measured for choosing.

    Attributes:
        label: what it sets, for baselines and the front; of other trials their key.
        algorithm: its base algorithm.
        x, y: mean over seeds of the first and the second objective.
        seeds: over which seeds; a baseline's are those of its algorithm's relabelled points.
        baseline: whether it is a run without relabelling.
        on_front: whether it is on the Pareto front of its algorithm.
        scores: mean over seeds of every objective, in percent.
    """

    label: str
    algorithm: str
    x: float
    y: float
    seeds: tuple[int, ...]
    baseline: bool
    on_front: bool
    scores: tuple[float, ...] = ()


def chosen(points: Sequence[Point], objectives: Sequence[str]) -> dict[str, Point]:
    """The configurations to recommend: the best of each objective, and the balanced one.

    Balanced is nearest to all bests after scaling each objective to 0..1 over the Pareto front of all algorithms.
    """
    relabelled = [point for point in points if not point.baseline]
    best = set(pareto({str(place): point.scores for place, point in enumerate(relabelled)}))
    listed = [point for place, point in enumerate(relabelled) if str(place) in best]
    if not listed:
        return {}
    listed.sort(key=lambda point: point.scores, reverse=True)
    found = {f"best {name}": max(listed, key=_first(place)) for place, name in enumerate(objectives)}
    if len(objectives) > 1:
        found["balanced"] = listed[balanced([point.scores for point in listed])]
    return found


def _first(place: int) -> Callable[[Point], tuple[float, ...]]:
    return lambda point: (point.scores[place], *point.scores)


def pareto_points(runs: StudyRuns, rule: RoundRule) -> list[Point]:
    """Baselines and the configurations that have all seeds, algorithm by algorithm, from the largest x down."""
    good = usable(runs.frame, None)
    return [
        point
        for algorithm in sorted(set(good["algorithm"]))
        for point in sorted(
            _points(runs, good[good["algorithm"] == algorithm], rule),
            key=lambda point: (-point.x, -point.y, point.label),
        )
    ]


def plane_texts(runs: StudyRuns, points: Sequence[Point], rule: RoundRule) -> tuple[str, str, str]:
    """Title, x label and y label: dataset, objectives, split, round rule and seeds."""
    selections = sorted(set(runs.frame["selection"]))
    split = selection_metric("", selections[0]).partition("/")[0]
    seeds = {seed for point in points for seed in point.seeds}
    what = what_text(split, selections, rule, seeds, "mean")
    title = f"{short_name(runs.dataset)}: the search on the selecting images\n{what}"
    x, y = (f"{objective} accuracy in % ({split})" for objective in runs.objectives[:2])
    return title, x, y


def draw_pareto(points: Sequence[Point], picks: Mapping[str, Point], texts: tuple[str, str, str], path: Path) -> None:
    """Each algorithm in its colour: trials hollow, its front filled and connected, its baseline in a thick black rim.

    Args:
        points: see `pareto_points`.
        picks: name to point, see `chosen`; ringed and named.
        texts: see `plane_texts`.
        path: of the PNG.
    """
    figure, axes = one_panel(7.2, 5.6)
    for algorithm, (colour, marker) in style_of(point.algorithm for point in points).items():
        own = [point for point in points if point.algorithm == algorithm]
        _draw_trials(axes, own, algorithm, colour, marker)
        _draw_baselines(axes, [point for point in own if point.baseline], colour, marker)
    title, x, y = texts
    axes.set(xlabel=x, ylabel=y)
    axes.margins(0.12)
    _draw_picks(axes, picks)
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:  # baselines alone are labelled where they stand
        _draw_legend(figure, axes)
    headline(figure, title)
    save(figure, path)


def _points(runs: StudyRuns, own: pd.DataFrame, rule: RoundRule) -> Iterator[Point]:
    cells = most_seeds(configurations(own[(own["kind"] == "cell") & (own["arm"] == "")]))
    shared = {seed for group in cells.values() for seed in group["seed"]}
    trunks = own[own["kind"] == "trunk"]
    bases = configurations(trunks[trunks["seed"].isin(list(shared))] if shared else trunks)
    best = set(front(runs, cells, rule))
    for key, group in [*bases.items(), *cells.items()]:
        scores = tuple(100 * mean for mean in objective_means(runs, group, runs.objectives, rule))
        if any(math.isnan(score) for score in scores):
            continue
        first = group.iloc[0]
        shown = key in best or first["kind"] == "trunk"
        yield Point(
            label=automatic_label(runs.frame, group) if shown else key,
            algorithm=str(first["algorithm"]),
            x=scores[0],
            y=scores[1],
            seeds=tuple(sorted(int(seed) for seed in group["seed"])),
            baseline=first["kind"] == "trunk",
            on_front=key in best,
            scores=scores,
        )


def _draw_trials(axes: Any, own: Sequence[Point], algorithm: str, colour: str, marker: str) -> None:
    front = sorted((point for point in own if point.on_front), key=lambda point: point.x)
    rest = [point for point in own if not point.on_front and not point.baseline]
    shape = {"color": colour, "marker": marker}
    axes.plot([], [], linestyle="none", markersize=6, label=algorithm, **shape)
    axes.plot(*_xy(rest), linestyle="none", markersize=5, fillstyle="none", **shape)
    axes.plot(*_xy(front), linewidth=1.4, markersize=7, **shape)


def _draw_baselines(axes: Any, base: Sequence[Point], colour: str, marker: str) -> None:
    axes.plot(*_xy(base), linestyle="none", markersize=11, marker=marker, markerfacecolor=colour, **RIM)


def _xy(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [point.x for point in points], [point.y for point in points]


def _draw_picks(axes: Any, picks: Mapping[str, Point]) -> None:
    from matplotlib.patheffects import withStroke

    places: dict[tuple[float, float], list[str]] = {}
    for name, point in picks.items():
        places.setdefault((point.x, point.y), []).append(name)
    middle = sum(axes.get_xlim()) / 2
    for (x, y), names in places.items():
        axes.plot([x], [y], **RING)
        side, offset = ("left", 11) if x < middle else ("right", -11)
        style = {"textcoords": "offset points", "fontsize": 8, "ha": side, "va": "center", "zorder": 5}
        rim = [withStroke(linewidth=2.5, foreground="white")]
        axes.annotate("\n".join(names), (x, y), (offset, 0), path_effects=rim, **style)


def _draw_legend(figure: Any, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    grey = {"color": "#555555", "linestyle": "none", "marker": "o"}
    shapes = [
        axes.plot([], [], fillstyle="none", markersize=5, **grey)[0],
        axes.plot([], [], markersize=7, **{**grey, "linestyle": "-"})[0],
        axes.plot([], [], linestyle="none", marker="o", markersize=11, markerfacecolor="#BBBBBB", **RIM)[0],
        axes.plot([], [], **RING)[0],
    ]
    words = ["trial", "Pareto front of the algorithm", "no relabelling", "chosen"]
    style = {"fontsize": 8, "frameon": False, "ncols": 4, "labelspacing": 1.0, "loc": "outside lower center"}
    figure.legend([*handles, *shapes], [*labels, *words], **style)
