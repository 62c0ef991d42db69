"""Accuracy over one relabelling setting, τ or T, with the others held fixed: the numbers first, the drawing second."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrela_bench.config import FEDRELA
from fedrela_bench.reporting.canvas import headline, panels, save, short_name, style_of, tint, what_text
from fedrela_bench.reporting.evidence import NotDrawn
from fedrela_bench.reporting.published_lines import PublishedLine, published_lines
from fedrela_bench.reporting.select import relabeled_per_client
from fedrela_bench.reporting.trials import START, Trial, compared, short_setting, shown_value, trials

if TYPE_CHECKING:
    from fedrela_bench.reporting.published import Published
    from fedrela_bench.reporting.source import StudyRuns
    from fedrela_bench.reporting.spec import ReportSpec

TAU = "relabel.tau"
LEAST = 2
"""Values that a line needs."""
BARS = 12
"""Values up to which the deviation is drawn as bars; more of them hide the lines."""


@dataclass(frozen=True)
class Line:
    """One base algorithm.

    Attributes:
        algorithm: its name.
        x: (n,) values of the setting, in percent; n is 0 where no two configurations differ in the setting alone.
        mean, std: (M + 1, n) over seeds: accuracies in percent, then relabelled images per client; std is NaN for one
            seed.
        gain, gain_std: (M, n) paired difference to the run without relabelling of the same seed, in points.
        base: (M,) mean of the runs without relabelling in percent.
        cloud_x: (m,), cloud: (M + 1, m), cloud_gain: (M, m): means of all configurations, whatever else they set.
        fixed: what the points of the line share, in words.
        seeds: of the line and the cloud.
    """

    algorithm: str
    x: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    gain: np.ndarray
    gain_std: np.ndarray
    base: np.ndarray
    cloud_x: np.ndarray
    cloud: np.ndarray
    cloud_gain: np.ndarray
    fixed: str
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Sensitivity:
    """Everything that the figure shows of `parameter` for the M `metrics`."""

    parameter: str
    metrics: tuple[str, ...]
    lines: tuple[Line, ...]
    published: tuple[PublishedLine, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of all lines."""
        return tuple(sorted({seed for line in self.lines for seed in line.seeds}))


def sensitivity(
    runs: StudyRuns, spec: ReportSpec, parameter: str, metrics: Sequence[str], published: Published | None = None
) -> Sensitivity:
    """Accuracy over a setting, per base algorithm.

    A line goes through the configurations that differ in the setting alone. Of several such families it is the one with
    most values, then the one nearest to FedReLa's recommended setting; `where` of the spec can name another.

    Args:
        runs: the study.
        spec: its filters, seeds, split and round rule.
        parameter: `TAU` or `START`.
        metrics: M names such as overall.
        published: numbers to put beside ours where they are of the same dataset and algorithm.

    Raises:
        NotDrawn: no algorithm has two values of the setting.
    """
    found = [trial for trial in compared(trials(runs, spec)) if trial.settings.get(parameter) is not None]
    names = sorted({trial.algorithm for trial in found})
    parts = [[trial for trial in found if trial.algorithm == name] for name in names]
    lines = [
        _line(runs, spec, parameter, metrics, part)
        for part in parts
        if len({trial.settings[parameter] for trial in part}) >= LEAST
    ]
    if not lines:
        raise NotDrawn(f"no algorithm was run with {LEAST} values of {short_setting(parameter)} or more")
    theirs = () if published is None else published_lines(runs, names, parameter, metrics, published)
    return Sensitivity(parameter, tuple(metrics), tuple(lines), tuple(theirs))


def _line(runs: StudyRuns, spec: ReportSpec, parameter: str, metrics: Sequence[str], found: Sequence[Trial]) -> Line:
    cloud = [_numbers(runs, trial, spec, metrics) for trial in found]
    places = _family(found, parameter)
    family, numbers = [found[place] for place in places], [cloud[place] for place in places]
    others = _others(family[0], parameter) if family else []
    fixed = [f"{short_setting(name)} {shown_value(name, value)}" for name, value in others]
    rows = len(metrics)
    return Line(
        algorithm=found[0].algorithm,
        x=_percent(family, parameter),
        mean=_columns([own.mean(axis=1) for own, _, _ in numbers], rows + 1),
        std=_columns([_std(own) for own, _, _ in numbers], rows + 1),
        gain=_columns([gap.mean(axis=1) for _, gap, _ in numbers], rows),
        gain_std=_columns([_std(gap) for _, gap, _ in numbers], rows),
        base=_mean_of_known([base.mean(axis=1) for _, _, base in cloud]),
        cloud_x=_percent(found, parameter),
        cloud=_columns([own.mean(axis=1) for own, _, _ in cloud], rows + 1),
        cloud_gain=_columns([gap.mean(axis=1) for _, gap, _ in cloud], rows),
        fixed=", ".join(fixed),
        seeds=tuple(sorted({seed for trial in found for seed in trial.seeds})),
    )


def _mean_of_known(parts: Sequence[np.ndarray]) -> np.ndarray:
    """(M,) mean over trials; those without a baseline of their own have none to give."""
    return np.asarray(np.ma.masked_invalid(np.array(parts)).mean(axis=0).filled(np.nan))


def _columns(parts: Sequence[np.ndarray], rows: int) -> np.ndarray:
    return np.array(parts).reshape(len(parts), rows).T


def _family(found: Sequence[Trial], parameter: str) -> list[int]:
    """Places of the trials that the line goes through, by the parameter; [] where all families have one value."""
    families: dict[str, list[int]] = {}
    for place, trial in enumerate(found):
        families.setdefault(str(_others(trial, parameter)), []).append(place)
    chosen = max(families.values(), key=lambda places: _rank([found[place] for place in places], parameter))
    values = {found[place].settings[parameter] for place in chosen}
    return sorted(chosen, key=lambda place: float(found[place].settings[parameter])) if len(values) >= LEAST else []


def _rank(family: Sequence[Trial], parameter: str) -> tuple[float, ...]:
    recommended = {TAU: 0.05, START: 0.8, "relabel.period": 0, "relabel.post_relabel_lr_scale": 1.0}
    settings = family[0].settings
    away = [abs(float(settings[name]) - value) for name, value in recommended.items() if _is_number(settings.get(name))]
    plain = settings.get("relabel.method", FEDRELA) == FEDRELA
    return (plain, len({trial.settings[parameter] for trial in family}), -sum(away), len(family))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _others(trial: Trial, parameter: str) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in trial.settings.items() if name != parameter]


def _percent(found: Sequence[Trial], parameter: str) -> np.ndarray:
    return np.array([100.0 * float(trial.settings[parameter]) for trial in found])


def _numbers(
    runs: StudyRuns, trial: Trial, spec: ReportSpec, metrics: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Accuracies and relabelled images (M + 1, seeds), gains (M, seeds) and baselines (M, seeds) of one trial."""
    names = [f"{spec.split}/{metric}" for metric in metrics]
    own = [trial.arm.values(runs, name, spec.round_rule) for name in names]
    base = [trial.arm.baseline_values(runs, name, spec.round_rule) for name in names]
    seeds = trial.seeds
    values = 100 * np.array([[row[seed] for seed in seeds] for row in own])
    before = 100 * np.array([[row.get(seed, np.nan) for seed in seeds] for row in base])
    return np.vstack([values, _relabelled(runs, trial)]), values - before, before


def _relabelled(runs: StudyRuns, trial: Trial) -> np.ndarray:
    """(seeds,) relabelled training images per client."""
    ordered = trial.arm.runs.sort_values("seed")
    return np.array([relabeled_per_client(runs, str(run)) for run in ordered["run_id"]])


def _std(values: np.ndarray) -> np.ndarray:
    spread = values.std(axis=1, ddof=1) if values.shape[1] > 1 else np.full(len(values), np.nan)
    return np.asarray(spread)


def sensitivity_title(runs: StudyRuns, spec: ReportSpec, found: Sensitivity) -> str:
    """Dataset and setting; split, round rule, statistic and seeds; what each line holds fixed."""
    alone = f"no two configurations of {{}} differ in {short_setting(found.parameter)} alone"
    fixed = [f"{line.algorithm} at {line.fixed}" for line in found.lines if line.fixed and len(line.x)]
    loose = [line.algorithm for line in found.lines if not len(line.x)]
    spread = "mean ± std" if len(found.seeds) > 1 else "accuracy"
    what = what_text(spec.split, runs.frame["selection"], spec.round_rule, found.seeds, spread)
    name = "τ" if found.parameter == TAU else "the round of the first relabelling"
    drawn = [f"lines: {'; '.join(fixed)}"] if fixed else []
    drawn += [alone.format(" or ".join(loose))] if loose else []
    first = f"{short_name(runs.dataset)}: sensitivity to {name}"
    return f"{first}\n{what}\n{'; '.join([*drawn, 'hollow: all configurations'])}"


def draw_sensitivity(found: Sensitivity, title: str, split: str, path: Path) -> None:
    """A column per metric, accuracy above and gain below; then relabelled images per client and the legend."""
    columns = len(found.metrics) + 1
    figure, axes = panels(max(9.0, 3.1 * columns), 6.4, 2, columns, sharey=False, sharex=True)
    above, below = axes[:columns], axes[columns:]
    styles = style_of(line.algorithm for line in found.lines)
    for line in found.lines:
        _draw_line(line, above, below, *styles[line.algorithm])
    for theirs in found.published:
        _draw_published(theirs, above, below, styles[theirs.algorithm][0])
    for place, metric in enumerate(found.metrics):
        above[place].set_title(metric, fontsize=10)
        below[place].axhline(0.0, color="black", linewidth=0.8)
    above[0].set_ylabel(f"accuracy in % ({split})")
    below[0].set_ylabel("gain over no relabelling in points")
    above[-1].set_title("relabelled images per client", fontsize=10)
    for panel in (*above, *below[:-1]):
        panel.grid(alpha=0.3)
    for panel in (above[-1], *below[:-1]):
        panel.set_xlabel("τ in %" if found.parameter == TAU else "T in % of the rounds")
    above[-1].tick_params(labelbottom=True)
    handles, labels = above[0].get_legend_handles_labels()
    below[-1].set_axis_off()
    below[-1].legend(handles, [textwrap.fill(label, 34) for label in labels], fontsize=8, frameon=False, loc="center")
    headline(figure, title)
    save(figure, path)


def _draw_line(line: Line, above: Sequence[Any], below: Sequence[Any], colour: str, marker: str) -> None:
    shape: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 5}
    hollow = {**shape, "linestyle": "none", "fillstyle": "none", "alpha": 0.5, "markersize": 4}
    for place, panel in enumerate(above):
        panel.plot(line.cloud_x, line.cloud[place], **hollow)
        _draw_spread(panel, line.x, line.mean[place], line.std[place], label=line.algorithm, **shape)
    for place, panel in enumerate(above[:-1]):
        ends = [line.cloud_x.min(), line.cloud_x.max()]
        dots = {**hollow, "linestyle": ":", "linewidth": 1.3, "alpha": 1.0, "markevery": [1], "markersize": 7}
        panel.plot(ends, [line.base[place]] * 2, label=f"{line.algorithm}: no relabelling", **dots)
        below[place].plot(line.cloud_x, line.cloud_gain[place], **hollow)
        _draw_spread(below[place], line.x, line.gain[place], line.gain_std[place], **shape)


def _draw_published(line: PublishedLine, above: Sequence[Any], below: Sequence[Any], colour: str) -> None:
    style: dict[str, Any] = {"color": tint(colour, -0.4), "linestyle": "--", "marker": "x", "markersize": 5}
    for place, panel in enumerate(above):
        panel.plot(line.x, line.mean[place], linewidth=1.2, label=line.label, **style)
    for place, panel in enumerate(below[:-1]):
        panel.plot(line.x, line.gain[place], linewidth=1.2, **style)


def _draw_spread(panel: Any, x: np.ndarray, mean: np.ndarray, std: np.ndarray, **shape: Any) -> None:
    """A line with its deviation: bars while they can be told apart, then a band."""
    known = not np.isnan(std).all()
    if len(x) <= BARS:
        panel.errorbar(x, mean, std if known else None, linewidth=1.5, capsize=2.5, elinewidth=1.0, **shape)
        return
    panel.plot(x, mean, linewidth=1.2, **{**shape, "markersize": 3})
    if known:
        panel.fill_between(x, mean - std, mean + std, color=shape["color"], alpha=0.12, linewidth=0)
