"""Accuracy of every class before and after relabelling, by class size: the numbers first, the drawing second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrela_bench.reporting.canvas import headline, panels, save, short_name, style_of, tint, what_text
from fedrela_bench.reporting.evidence import Classes, NotDrawn
from fedrela_bench.rounds import LAST

if TYPE_CHECKING:
    from fedrela_bench.reporting.pairs import Pair
    from fedrela_bench.reporting.select import RoundRule
    from fedrela_bench.reporting.source import StudyRuns
    from fedrela_bench.reporting.spec import ReportSpec

MANY = 30
"""Classes from which on names are left out and the figure is wider."""
BANDS = {"head": "#FFFFFF", "medium": "#ECECEC", "tail": "#D6D6D6", "majority": "#FFFFFF", "minority": "#D6D6D6"}


@dataclass(frozen=True)
class ClassGains:
    """Per-class accuracies in percent of one relabelled arm and of the trunks it forked from, paired by seed.

    Attributes:
        label: the arm's.
        algorithm: its base algorithm.
        names, groups: C texts, the largest class first; everything is in this order.
        counts: (C,) training images.
        base, relabelled: (C,) means over seeds.
        gain, gain_std: (C,) mean and standard deviation (ddof 1, NaN for one seed) of the paired differences.
        seeds: which seeds.
    """

    label: str
    algorithm: str
    names: tuple[str, ...]
    groups: tuple[str, ...]
    counts: np.ndarray
    base: np.ndarray
    relabelled: np.ndarray
    gain: np.ndarray
    gain_std: np.ndarray
    seeds: tuple[int, ...]


def class_gains(runs: StudyRuns, pair: Pair, classes: Classes, split: str, rule: RoundRule) -> ClassGains:
    """Per-class accuracies by a round rule.

    Args:
        runs: the study.
        pair: the runs to compare.
        classes: of their training set.
        split: test or val.
        rule: which rounds count.

    Raises:
        NotDrawn: no seed has both curves.
    """
    base, relabelled, seeds = [], [], []
    for seed, (trunk, cell) in sorted(pair.runs.items()):
        before, after = (class_accuracies(runs, trunk, run, split, rule) for run in (trunk, cell))
        if before is not None and after is not None:
            base.append(before)
            relabelled.append(after)
            seeds.append(seed)
    if not seeds:
        raise NotDrawn(f"the runs do not record per-class accuracies on {split}")
    order = classes.order
    before, after = 100 * np.array(base)[:, order], 100 * np.array(relabelled)[:, order]
    gaps = after - before
    return ClassGains(
        label=pair.label,
        algorithm=pair.algorithm,
        names=tuple(classes.names[place] for place in order),
        groups=tuple(classes.groups[place] for place in order),
        counts=classes.counts[order],
        base=before.mean(axis=0),
        relabelled=after.mean(axis=0),
        gain=gaps.mean(axis=0),
        gain_std=gaps.std(axis=0, ddof=1) if len(seeds) > 1 else np.full(len(order), np.nan),
        seeds=tuple(seeds),
    )


def class_accuracies(runs: StudyRuns, trunk: str, run_id: str, split: str, rule: RoundRule) -> np.ndarray | None:
    """(C,) accuracies of a run by a round rule, as fractions; None where it records none.

    Args:
        runs: the study.
        trunk: the run whose rounds it shares before T; itself for a trunk.
        run_id: the run.
        split: test or val.
        rule: which rounds count.
    """
    table = _by_round(runs, run_id, split)
    if table and trunk != run_id:
        first = min(table)
        table |= {at: row for at, row in _by_round(runs, trunk, split).items() if at < first}
    counted = [table[at] for at in _counted(runs, run_id, sorted(table), rule) if at in table]
    return np.mean(counted, axis=0) if counted else None


def _by_round(runs: StudyRuns, run_id: str, split: str) -> dict[int, np.ndarray]:
    arrays = runs.arrays(run_id, "curves.npz") or {}
    if f"per_class_{split}" not in arrays:
        return {}
    return {int(at): row for at, row in zip(arrays["per_class_rounds"], arrays[f"per_class_{split}"], strict=True)}


def _counted(runs: StudyRuns, run_id: str, rounds: Sequence[int], rule: RoundRule) -> Sequence[int]:
    if rule in ("last", "last5"):
        return rounds[-1:] if rule == "last" else rounds[-LAST:]
    selector = runs.history(run_id, "val/overall" if rule == "best_selected" else "test/overall").dropna()
    return [] if selector.empty else [int(selector.index[int(selector.to_numpy().argmax())])]


def classes_title(runs: StudyRuns, spec: ReportSpec, found: Sequence[ClassGains]) -> str:
    """Dataset; split, round rule, statistic and seeds."""
    seeds = {seed for gains in found for seed in gains.seeds}
    spread = "mean, bars: std of the paired difference" if len(seeds) > 1 else "accuracy"
    what = what_text(spec.split, runs.frame["selection"], spec.round_rule, seeds, spread)
    return f"{short_name(runs.dataset)}: accuracy of every class, the largest class first\n{what}"


def draw_classes(found: Sequence[ClassGains], title: str, split: str, path: Path) -> None:
    """Class sizes as bars above; for each base algorithm a panel with a line from before to after for every class."""
    count = max(len(gains.counts) for gains in found)
    width = 9.5 if count <= MANY else 13.0
    ratios = {"height_ratios": [0.8, *(2.2 for _ in found)]}
    size = (width, 1.9 + 2.3 * len(found) + (0.6 if count <= MANY else 0.0))
    figure, axes = panels(*size, 1 + len(found), 1, sharey=False, sharex=True, gridspec_kw=ratios)
    _draw_sizes(axes[0], found[0])
    styles = style_of(gains.algorithm for gains in found)
    for panel, gains in zip(axes[1:], found, strict=True):
        _draw_gains(panel, gains, styles[gains.algorithm][0], split)
    names = found[0].names
    axes[-1].set_xlabel("class, the largest first" + (" (number in the data)" if _are_numbers(names) else ""))
    step = max(1, -(-count // (MANY if _are_numbers(names) else 2 * MANY)))
    longest = max(len(name) for name in names)
    places = list(range(0, count, step))
    axes[-1].set_xticks(places, [short_name(names[place]) for place in places], fontsize=8 if count <= MANY else 6)
    if longest > 3:
        axes[-1].tick_params("x", rotation=90 if count > MANY else 35)
        for label in axes[-1].get_xticklabels():
            label.set_horizontalalignment("center" if count > MANY else "right")
    headline(figure, title)
    save(figure, path)


def _are_numbers(names: Sequence[str]) -> bool:
    return all(name.isdigit() for name in names)


def _draw_sizes(panel: Any, gains: ClassGains) -> None:
    places = range(len(gains.counts))
    panel.bar(places, gains.counts, width=0.8, color="#7F7F7F")
    panel.set_yscale("log")
    ends = sorted({max(1, int(gains.counts.min())), max(1, int(gains.counts.max()))})
    panel.set_ylim(ends[0] / 2, 1.3 * ends[-1])
    panel.set_yticks(ends, [str(end) for end in ends], fontsize=8)
    panel.set_yticks([], minor=True)
    panel.set_ylabel("training\nimages")
    panel.set_xlim(-0.8, len(gains.counts) - 0.2)
    _draw_bands(panel, gains)
    for group in dict.fromkeys(name for name in gains.groups if name):
        own = [place for place in places if gains.groups[place] == group]
        panel.annotate(group, (float(np.mean(own)), 1.02), xycoords=("data", "axes fraction"), ha="center", fontsize=8)


def _draw_bands(panel: Any, gains: ClassGains) -> None:
    for place, group in enumerate(gains.groups):
        if group in BANDS:
            panel.axvspan(place - 0.5, place + 0.5, color=BANDS[group], linewidth=0, zorder=0)


def _draw_gains(panel: Any, gains: ClassGains, colour: str, split: str) -> None:
    places, size = np.arange(len(gains.counts)), 5.5 if len(gains.counts) <= MANY else 3.5
    _draw_bands(panel, gains)
    panel.vlines(places, gains.base, gains.relabelled, color=tint(colour, 0.3), linewidth=size / 2.5, zorder=2)
    base = {"linestyle": "none", "marker": "o", "fillstyle": "none", "color": "black", "markersize": size, "zorder": 3}
    panel.plot(places, gains.base, label="no relabelling", **base)
    after = {"linestyle": "none", "marker": "D", "color": colour, "markersize": size - 1, "zorder": 4}
    panel.plot(places, gains.relabelled, label=gains.label, **after)
    if not np.isnan(gains.gain_std).all():
        bars = {"linestyle": "none", "ecolor": colour, "elinewidth": 0.8, "capsize": size / 2.5, "zorder": 3}
        panel.errorbar(places, gains.relabelled, gains.gain_std, **bars)
    panel.set_ylabel(f"accuracy in % ({split})")
    panel.set_ylim(max(-6.0, min(0.0, panel.get_ylim()[0])), min(106.0, panel.get_ylim()[1]))
    panel.grid(alpha=0.3, axis="y")
    panel.legend(fontsize=8, frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.1)
