"""Which settings decide the gain of a study's trials: the numbers first, the drawing second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrela_bench.reporting.canvas import COLOURS, HATCHES, headline, panels, save, short_name, what_text
from fedrela_bench.reporting.evidence import NotDrawn
from fedrela_bench.reporting.select import selection_metric
from fedrela_bench.reporting.stats import paired_difference
from fedrela_bench.reporting.trials import ALGORITHM, Trial, short_setting, trials

if TYPE_CHECKING:
    from fedrela_bench.reporting.source import StudyRuns
    from fedrela_bench.reporting.spec import ReportSpec

LEAST = 12
"""Configurations below which a forest tells nothing."""
TREES = 100
MISSING = -1.0e6
"""Stands for a setting that an algorithm does not have: a split can tell it from every value."""


@dataclass(frozen=True)
class Importance:
    """How much of the gain's variance each setting explains in a random forest.

    Attributes:
        settings: S names, the most important for the first objective first.
        objectives: O names.
        shares: (O, S) mean decrease in impurity; sums to 1, or to 0 where the gain does not vary.
        explained: (O,) R² on configurations that a tree has not seen; 0 or less: the forest predicts nothing.
        configurations: how many.
        seeds: of their runs.
    """

    settings: tuple[str, ...]
    objectives: tuple[str, ...]
    shares: np.ndarray
    explained: np.ndarray
    configurations: int
    seeds: tuple[int, ...]


def importance(runs: StudyRuns, spec: ReportSpec) -> Importance:
    """Importance of what varies among the relabelled configurations, the base algorithm included.

    The forest predicts the gain over the run without relabelling of the same seed, on the images that choose; where the
    study relabels nothing, the accuracy itself. Its random numbers are fixed.

    Raises:
        NotDrawn: fewer than `LEAST` configurations, or only one setting that varies.
    """
    pairs = [(trial, _targets(runs, trial, spec)) for trial in trials(runs, spec)]
    pairs = [(trial, target) for trial, target in pairs if not np.isnan(target).any()]
    measured, targets = [trial for trial, _ in pairs], np.array([target for _, target in pairs])
    settings = _settings(measured)
    if len(measured) < LEAST or len(settings) < 2:
        raise NotDrawn(
            f"needs {LEAST} configurations and 2 settings that vary, has {len(measured)} and {len(settings)}"
        )
    columns, owners = _encode(measured, settings)
    fits = [_fit(columns, targets[:, place]) for place in range(len(runs.objectives))]
    shares = np.array([[sum(fit[0][owners == place]) for place in range(len(settings))] for fit in fits])
    order = np.argsort(-shares[0], kind="stable")
    return Importance(
        settings=tuple(settings[place] for place in order),
        objectives=tuple(runs.objectives),
        shares=shares[:, order],
        explained=np.array([fit[1] for fit in fits]),
        configurations=len(measured),
        seeds=tuple(sorted({seed for trial in measured for seed in trial.seeds})),
    )


def _targets(runs: StudyRuns, trial: Trial, spec: ReportSpec) -> np.ndarray:
    """(O,) mean gain, or of a trial that relabels nothing mean accuracy; NaN where it was not measured."""
    selection = str(trial.arm.runs["selection"].iloc[0])
    found = []
    for objective in runs.objectives:
        metric = selection_metric(objective, selection)
        values = trial.arm.values(runs, metric, spec.round_rule)
        base = dict.fromkeys(values, 0.0)
        if not trial.arm.is_baseline:
            base = trial.arm.baseline_values(runs, metric, spec.round_rule)
        gap = paired_difference(values, base)
        found.append(math.nan if gap is None else gap.mean)
    return np.array(found)


def _settings(found: Sequence[Trial]) -> list[str]:
    names = [ALGORITHM] if len({trial.algorithm for trial in found}) > 1 else []
    return names + [name for name in (found[0].settings if found else ()) if len(_values(found, name)) > 1]


def _values(found: Sequence[Trial], name: str) -> list[str]:
    return sorted({str(_value(trial, name)) for trial in found})


def _value(trial: Trial, name: str) -> Any:
    return trial.algorithm if name == ALGORITHM else trial.settings[name]


def _encode(found: Sequence[Trial], settings: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """(n, F) numbers, a 0/1 column for every value of a setting that is not a number, and (F,) whose column it is."""
    columns, owners = [], []
    for place, name in enumerate(settings):
        own = [_value(trial, name) for trial in found]
        if all(value is None or _is_number(value) for value in own):
            columns.append([MISSING if value is None else float(value) for value in own])
            owners.append(place)
        else:
            for choice in _values(found, name):
                columns.append([float(str(value) == choice) for value in own])
                owners.append(place)
    return np.array(columns).T, np.array(owners)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fit(columns: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, float]:
    from sklearn.ensemble import RandomForestRegressor

    if np.ptp(target) == 0:
        return np.zeros(columns.shape[1]), 0.0
    forest = RandomForestRegressor(TREES, max_features=0.5, oob_score=True, random_state=0, n_jobs=1)
    forest.fit(columns, target)
    return forest.feature_importances_, float(forest.oob_score_)


def importance_title(runs: StudyRuns, spec: ReportSpec, found: Importance) -> str:
    """Dataset; what is explained; split, round rule and seeds."""
    selections = sorted(set(runs.frame["selection"]))
    split = selection_metric("", selections[0]).partition("/")[0]
    lines = [
        f"{short_name(runs.dataset)}: which settings decide the gain over no relabelling",
        f"random forest on {found.configurations} configurations, mean decrease in impurity; R²: out of bag, "
        "0 or less: no setting predicts the gain",
        what_text(split, selections, spec.round_rule, found.seeds, "mean"),
    ]
    return "\n".join(lines)


def draw_importance(found: Importance, title: str, path: Path) -> None:
    """Bars per setting, one for every objective."""
    count, objectives = len(found.settings), len(found.objectives)
    figure, axes = panels(8.5, 1.9 + 0.3 * count * objectives)
    panel, height = axes[0], 0.8 / objectives
    for place, objective in enumerate(found.objectives):
        at = np.arange(count) + (place - (objectives - 1) / 2) * height
        label = f"gain in {objective} (R² {found.explained[place]:.2f})"
        style = {"color": COLOURS[place % len(COLOURS)], "hatch": HATCHES[place % len(HATCHES)], "edgecolor": "white"}
        bars = panel.barh(at, 100 * found.shares[place], height=0.92 * height, label=label, **style)
        panel.bar_label(bars, [f"{100 * share:.0f}" for share in found.shares[place]], padding=2, fontsize=8)
    panel.set_yticks(range(count), [short_setting(name) for name in found.settings])
    panel.invert_yaxis()
    panel.set_xlabel("share of the explained variance in %")
    panel.margins(x=0.08)
    panel.grid(alpha=0.3, axis="x")
    panel.legend(fontsize=8, frameon=False, loc="lower right")
    headline(figure, title)
    save(figure, path)
