"""Every trial as a line over its settings and objectives: the numbers first, the drawing second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrela_bench.reporting.arms import objective_means
from fedrela_bench.reporting.canvas import headline, one_panel, save, short_name, what_text
from fedrela_bench.reporting.evidence import NotDrawn
from fedrela_bench.reporting.select import selection_metric
from fedrela_bench.reporting.trials import ALGORITHM, Trial, compared, short_setting, shown_value, trials

if TYPE_CHECKING:
    from fedrela_bench.reporting.source import StudyRuns
    from fedrela_bench.reporting.spec import ReportSpec

LEAST = 3
WIDE = 30.0
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes:
        name: shown above it.
        places: (n,) height of each trial, 0 to 1; NaN where the trial's algorithm does not have the setting.
        ticks: (height, text) pairs.
        objective: whether it is a result.
    """

    name: str
    places: np.ndarray
    ticks: tuple[tuple[float, str], ...]
    objective: bool


@dataclass(frozen=True)
class Parallel:
    """Settings and objectives of n trials, from the worst to the best by the first objective.

    Attributes:
        axes: algorithm and settings first, then objectives.
        values: (n,) first objective in percent.
        keys: of the trials.
        seeds: of their runs.
    """

    axes: tuple[Axis, ...]
    values: np.ndarray
    keys: tuple[str, ...]
    seeds: tuple[int, ...]


def parallel(runs: StudyRuns, spec: ReportSpec) -> Parallel:
    """The configurations with the most seeds of each algorithm, their objectives as measured for choosing.

    Raises:
        NotDrawn: fewer than `LEAST` configurations, or nothing that varies.
    """
    found = compared(trials(runs, spec))
    points = [objective_means(runs, trial.arm.runs, runs.objectives, spec.round_rule) for trial in found]
    measured = [(trial, point) for trial, point in zip(found, points, strict=True) if not np.isnan(point).any()]
    if len(measured) < LEAST:
        raise NotDrawn(f"needs {LEAST} configurations, has {len(measured)}")
    measured.sort(key=lambda pair: (pair[1], pair[0].arm.label))
    ordered, results = [trial for trial, _ in measured], 100 * np.array([point for _, point in measured])
    axes = _setting_axes(ordered)
    if not axes:
        raise NotDrawn("no setting varies")
    axes += [_number_axis(name, results[:, place], True) for place, name in enumerate(runs.objectives)]
    seeds = tuple(sorted({seed for trial in ordered for seed in trial.seeds}))
    return Parallel(tuple(axes), results[:, 0], tuple(trial.arm.label for trial in ordered), seeds)


def _setting_axes(found: Sequence[Trial]) -> list[Axis]:
    algorithms = [trial.algorithm for trial in found]
    axes = [_choice_axis(ALGORITHM, algorithms)] if len(set(algorithms)) > 1 else []
    for name in found[0].settings:
        values = [trial.settings[name] for trial in found]
        if len({str(value) for value in values}) > 1:
            axes.append(_setting_axis(name, values))
    return axes


def _setting_axis(name: str, values: Sequence[Any]) -> Axis:
    if not all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values):
        return _choice_axis(name, values)
    if len({value for value in values if value is not None}) <= 6:
        return _choice_axis(name, values)
    return _number_axis(name, np.array([np.nan if value is None else float(value) for value in values]), False)


def _choice_axis(name: str, values: Sequence[Any]) -> Axis:
    given = {value for value in values if value is not None}
    numbers = all(isinstance(value, int | float) for value in given)
    choices = sorted(given) if numbers else sorted(given, key=str)
    heights = dict(zip(choices, np.linspace(0, 1, len(choices)) if len(choices) > 1 else [0.5], strict=True))
    ticks = tuple((float(height), shown_value(name, value)) for value, height in heights.items())
    return Axis(short_setting(name), np.array([heights.get(value, np.nan) for value in values]), ticks, False)


def _number_axis(name: str, values: np.ndarray, objective: bool) -> Axis:
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    logarithmic = not objective and low > 0 and high / low >= WIDE
    scaled, ends = (np.log(values), np.log([low, high])) if logarithmic else (values, np.array([low, high]))
    width = float(ends[1] - ends[0])
    places = (scaled - ends[0]) / width if width else np.full(len(values), 0.5)
    inner = ends[0] + width * np.linspace(0, 1, 5 if width else 1)
    shown = np.exp(inner) if logarithmic else inner
    heights = np.linspace(0, 1, 5) if width else [0.5]
    texts = [f"{value:.1f}" if objective else shown_value(name, float(f"{value:.3g}")) for value in shown]
    ticks = tuple((float(height), text) for height, text in zip(heights, texts, strict=True))
    return Axis(name if objective else short_setting(name), places, ticks, objective)


def parallel_title(runs: StudyRuns, spec: ReportSpec, found: Parallel) -> str:
    """Dataset and number of trials; split, round rule and seeds of the objectives."""
    selections = sorted(set(runs.frame["selection"]))
    split = selection_metric("", selections[0]).partition("/")[0]
    what = what_text(split, selections, spec.round_rule, found.seeds, "mean accuracy in %")
    first = f"{short_name(runs.dataset)}: {len(found.values)} configurations, dark and thick: best {runs.objectives[0]}"
    return f"{first}\n{what}"


def draw_parallel(found: Parallel, title: str, path: Path) -> None:
    """One line per trial, from light (worst) to dark (best); the best one thick on top."""
    count = len(found.axes)
    figure, panel = one_panel(max(7.0, 1.5 * count + 1.2), 4.8)
    image = _draw_lines(panel, found)
    for place, axis in enumerate(found.axes):
        panel.axvline(place, color="black", linewidth=1.2 if axis.objective else 0.8, zorder=3)
        for height, text in axis.ticks:
            box = {"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.8}
            panel.annotate(
                text, (place, height), (4, 0), textcoords="offset points", fontsize=7, va="center", bbox=box, zorder=5
            )
    names = [f"{axis.name}\n(result)" if axis.objective else axis.name for axis in found.axes]
    panel.set_xticks(range(count), names, fontsize=9)
    panel.tick_params("x", length=0)
    panel.set(yticks=[], xlim=(-0.1, count - 0.55), ylim=(-0.13, 1.05))
    for spine in panel.spines.values():
        spine.set_visible(False)
    figure.colorbar(image, ax=panel, label=f"{found.axes[_first_objective(found)].name} accuracy in %", pad=0.01)
    headline(figure, title)
    save(figure, path)


def _first_objective(found: Parallel) -> int:
    return next(place for place, axis in enumerate(found.axes) if axis.objective)


def _draw_lines(panel: Any, found: Parallel) -> Any:
    import matplotlib as mpl
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import LineCollection
    from matplotlib.colors import Normalize

    low, high = float(found.values.min()), float(found.values.max())
    colours = ScalarMappable(Normalize(low, high if high > low else low + 1.0), mpl.colormaps["viridis_r"])
    heights = np.array([np.where(np.isnan(axis.places), -0.1, axis.places) for axis in found.axes])
    if any(np.isnan(axis.places).any() for axis in found.axes):
        panel.annotate("not a setting of the algorithm", (0.0, -0.1), fontsize=7, va="bottom", style="italic")
    x = np.broadcast_to(np.arange(len(found.axes)), heights.T.shape)
    lines, shades = np.stack([x, heights.T], axis=-1), colours.to_rgba(found.values)
    panel.add_collection(LineCollection(list(lines[:-1]), colors=shades[:-1], linewidths=1.1, alpha=0.75, zorder=2))
    panel.add_collection(LineCollection([lines[-1]], colors=shades[-1:], linewidths=3.0, zorder=4))
    return colours
