"""Accuracy per round of a report's arms: the numbers first, the drawing second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrela_bench.reporting.canvas import BLACK, MARKERS, headline, panels, save, short_name, style_of, tint, what_text

if TYPE_CHECKING:
    import pandas as pd

    from fedrela_bench.reporting.arms import Arm
    from fedrela_bench.reporting.source import StudyRuns

LINES = ("-", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
"""Of the relabelled arms of one algorithm; its baseline is dashed."""
SHADES = (0.0, -0.6, 0.45, -0.3)
"""Of one algorithm's colour: towards white, or (negative) towards black."""
BANDED = 6
"""Relabelled arms of a panel up to which their deviation is shown; more bands hide the curves."""
STACKED = 4
"""Panels up to this number stand one below the other, where the rounds after T have most room."""


@dataclass(frozen=True)
class Curve:
    """Mean and spread over seeds, in percent, by completed rounds.

    Attributes:
        label: the arm's.
        algorithm: its base algorithm.
        baseline: whether it is a run without relabelling.
        rounds: completed rounds that every seed has; of a relabelled arm from `fork_round` on, since it is its
            baseline before.
        values: mean over seeds at each of them.
        std: standard deviation (ddof 1) over seeds at each of them; empty for one seed.
        seeds: which seeds.
        fork_round: T of a relabelled arm.
    """

    label: str
    algorithm: str
    baseline: bool
    rounds: tuple[int, ...]
    values: tuple[float, ...]
    std: tuple[float, ...]
    seeds: tuple[int, ...]
    fork_round: int | None


def curves(runs: StudyRuns, arms: Sequence[Arm], metric: str) -> list[Curve]:
    """One curve per arm for a metric such as ``test/overall``; arms without a round to show are left out."""
    made = (_curve(runs, arm, metric) for arm in arms)
    return [curve for curve in made if curve is not None]


def curves_title(runs: StudyRuns, arms: Sequence[Arm], found: Sequence[Curve], metric: str) -> str:
    """Dataset and metric; then split, statistic and seeds."""
    split, _, name = metric.partition("/")
    selections = {str(value) for arm in arms for value in arm.runs["selection"]}
    spread = "mean ± std" if any(curve.std for curve in found) else "accuracy"
    seeds = {seed for curve in found for seed in curve.seeds}
    what = what_text(split, selections, None, seeds, spread)
    return f"{short_name(runs.dataset)}: {name} accuracy per round\n{what}"


def draw_curves(found: Sequence[Curve], metric: str, title: str, path: Path) -> None:
    """A panel per base algorithm: its baseline dashed, its relabelled arms from T on with a marker there."""
    styles = style_of(curve.algorithm for curve in found)
    columns = 1 if len(styles) <= STACKED else 2
    rows = max(1, math.ceil(len(styles) / columns))
    figure, axes = panels(9.5 * columns, 0.9 + 3.1 * rows, rows, columns)
    most = {seed for curve in found for seed in curve.seeds}
    for panel, (algorithm, (colour, _)) in zip(axes, styles.items(), strict=False):
        _draw_panel(panel, [curve for curve in found if curve.algorithm == algorithm], colour, len(most))
        panel.set_title(algorithm, fontsize=9, loc="left", parse_math=False)
        panel.margins(x=0.02)
    for panel in axes[max(1, len(styles)) :]:
        panel.set_axis_off()
    for panel in axes[max(0, len(styles) - columns) :]:
        panel.set(xlabel="completed rounds")
    for panel in axes[::columns]:
        panel.set(ylabel=f"{metric.rpartition('/')[2]} accuracy in % ({metric.partition('/')[0]})")
    headline(figure, title)
    save(figure, path)


def _curve(runs: StudyRuns, arm: Arm, metric: str) -> Curve | None:
    read = zip(arm.runs["seed"], arm.runs["run_id"], strict=True)
    series = {int(seed): runs.history(str(run), metric).dropna() for seed, run in read}
    series = {seed: values for seed, values in sorted(series.items()) if not values.empty}
    rounds = _common_rounds(list(series.values()), arm.fork_round or 0)
    if not rounds:
        return None
    values = 100 * np.array([[line[at] for at in rounds] for line in series.values()], dtype=float)
    std = values.std(axis=0, ddof=1) if len(series) > 1 else np.empty(0)
    return Curve(
        label=arm.label,
        algorithm=arm.algorithm,
        baseline=arm.is_baseline,
        rounds=tuple(rounds),
        values=tuple(map(float, values.mean(axis=0))),
        std=tuple(map(float, std)),
        seeds=tuple(series),
        fork_round=arm.fork_round,
    )


def _common_rounds(series: Sequence[pd.Series[float]], first: int) -> list[int]:
    if not series:
        return []
    common = set.intersection(*({int(at) for at in values.index} for values in series))
    return sorted(at for at in common if at >= first)


def _draw_panel(panel: Any, found: Sequence[Curve], colour: str, most: int) -> None:
    base = [curve for curve in found if curve.baseline]
    relabelled = [curve for curve in found if not curve.baseline]
    for curve in base:
        _draw_curve(panel, curve, most, color=colour, linestyle="--", linewidth=1.2)
    for place, curve in enumerate(relabelled):
        line, marker = LINES[place % len(LINES)], MARKERS[place % len(MARKERS)]
        amount = SHADES[place % len(SHADES)]
        # Black has no darker shade.
        shade = tint(colour, abs(amount) if colour == BLACK else amount)
        style = {"color": shade, "linestyle": line, "linewidth": 1.6, "marker": marker, "markersize": 6}
        _draw_curve(panel, curve, most, banded=len(relabelled) <= BANDED, markevery=[0], **style)
    panel.xaxis.get_major_locator().set_params(integer=True)
    panel.grid(alpha=0.3)
    legend = panel.legend(fontsize=7.5, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    legend.set_alignment("left")
    notes = ["marker: T, first relabelling"] if relabelled else []
    notes += ["std not shown, too many arms"] if len(relabelled) > BANDED else []
    legend.set_title("\n".join(notes), prop={"size": 7.5})


def _draw_curve(panel: Any, curve: Curve, most: int, banded: bool = True, **style: Any) -> None:
    few = "" if len(curve.seeds) == most else f" (n = {len(curve.seeds)})"
    panel.plot(curve.rounds, curve.values, label=f"{curve.label}{few}", **style)
    if curve.std and banded:
        mean, std = np.array(curve.values), np.array(curve.std)
        low, high = np.maximum(mean - std, 0), np.minimum(mean + std, 100)
        panel.fill_between(curve.rounds, low, high, color=style["color"], alpha=0.12, linewidth=0)
