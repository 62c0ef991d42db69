"""Where relabelled training images went, class by class: the numbers first, the drawing second."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrela_bench.reporting.canvas import headline, panels, save, seeds_text, short_name
from fedrela_bench.reporting.evidence import Classes, NotDrawn, last_flow

if TYPE_CHECKING:
    from fedrela_bench.reporting.pairs import Pair
    from fedrela_bench.reporting.source import StudyRuns

MATRIX = 20
"""Classes up to which all pairs are shown."""
TOP = 20
"""Pairs that are listed where there are more classes."""


@dataclass(frozen=True)
class Flow:
    """Training images by original class and by class in force after the last relabelling, mean over seeds.

    Attributes:
        label: of the relabelled arm.
        algorithm: its base algorithm.
        names, groups: C texts, the largest class first; everything is in this order.
        counts: (C, C) images, rows original classes, columns classes in force; those that kept theirs on the diagonal.
        seeds: which seeds.
    """

    label: str
    algorithm: str
    names: tuple[str, ...]
    groups: tuple[str, ...]
    counts: np.ndarray
    seeds: tuple[int, ...]

    @property
    def moved(self) -> np.ndarray:
        """(C, C) images whose class changed; 0 on the diagonal."""
        return np.asarray(self.counts * (1 - np.eye(len(self.counts))))


@dataclass(frozen=True)
class GroupFlow:
    """A flow between groups of classes, such as head, medium and tail.

    Attributes:
        groups: G names, the largest classes first.
        moved: (G, G) images that changed class, rows by the group of the original class; moves inside a group count.
        sizes: (G,) images before.
    """

    groups: tuple[str, ...]
    moved: np.ndarray
    sizes: np.ndarray


def flow_between(runs: StudyRuns, pair: Pair, classes: Classes) -> Flow:
    """The relabel flow of an arm.

    Raises:
        NotDrawn: none of its runs records one.
    """
    found = {seed: last_flow(runs, run) for seed, (_, run) in sorted(pair.runs.items())}
    known = {seed: flow for seed, flow in found.items() if flow is not None}
    if not known:
        raise NotDrawn("the runs do not record what they relabelled")
    order = classes.order
    return Flow(
        label=pair.label,
        algorithm=pair.algorithm,
        names=tuple(classes.names[place] for place in order),
        groups=tuple(classes.groups[place] for place in order),
        counts=np.mean(list(known.values()), axis=0)[np.ix_(order, order)],
        seeds=tuple(known),
    )


def group_flow(flow: Flow) -> GroupFlow | None:
    """The flow between groups; None where groups are not known."""
    groups = tuple(dict.fromkeys(flow.groups))
    if not all(groups):
        return None
    member = np.array([[own == group for own in flow.groups] for group in groups], dtype=float)
    return GroupFlow(groups, member @ flow.moved @ member.T, member @ flow.counts.sum(axis=1))


def top_pairs(flow: Flow, most: int = TOP) -> list[tuple[str, str, float]]:
    """The pairs of classes with most images moved, as (from, to, images); equal ones by class size."""
    moved = flow.moved
    order = np.argsort(-moved, axis=None, kind="stable")[:most]
    listed = [np.unravel_index(place, moved.shape) for place in order]
    return [(flow.names[a], flow.names[b], float(moved[a, b])) for a, b in listed if moved[a, b] > 0]


def flow_title(runs: StudyRuns, found: Sequence[Flow]) -> str:
    """Dataset, what is counted, and seeds."""
    seeds = {seed for flow in found for seed in flow.seeds}
    what = f"training images by original class and class after the last relabelling; mean, {seeds_text(seeds)}"
    return f"{short_name(runs.dataset)}: where relabelled images went\n{what}"


def draw_flow(found: Sequence[Flow], title: str, path: Path) -> None:
    """Few classes: a matrix for each base algorithm. Many: the flow between groups, and the largest pairs."""
    if len(found[0].counts) <= MATRIX:
        _draw_matrices(found, title, path)
    else:
        _draw_grouped(found, title, path)


def _draw_matrices(found: Sequence[Flow], title: str, path: Path) -> None:
    columns = min(2, len(found))
    rows = -(-len(found) // columns)
    side = max(4.2, 1.6 + 0.42 * len(found[0].counts))
    figure, axes = panels(max(6.4, side * columns), 0.8 + side * rows, rows, columns, sharey=False)
    for panel, flow in zip(axes, found, strict=False):
        _draw_matrix(panel, flow.moved, flow.names, flow.names)
        moved, total = flow.moved.sum(), flow.counts.sum()
        share = f"{moved:.0f} of {total:.0f} images ({100 * moved / total:.1f} %)"
        panel.set_title(f"{textwrap.fill(flow.label, 55)}\n{share}", fontsize=9, parse_math=False)
        panel.set(xlabel="class after, the largest first", ylabel="original class")
    for panel in axes[len(found) :]:
        panel.set_axis_off()
    headline(figure, title)
    save(figure, path)


def _draw_grouped(found: Sequence[Flow], title: str, path: Path) -> None:
    figure, axes = panels(
        11.0, 0.8 + 4.6 * len(found), len(found), 2, sharey=False, gridspec_kw={"width_ratios": [1, 1.6]}
    )
    for flow, left, right in zip(found, axes[::2], axes[1::2], strict=True):
        groups = group_flow(flow)
        moved, total = flow.moved.sum(), flow.counts.sum()
        if groups is None:
            left.set_axis_off()
            left.annotate("groups of classes\nare not recorded", (0.5, 0.5), xycoords="axes fraction", ha="center")
        else:
            sizes = [f"{name}\n({size:.0f})" for name, size in zip(groups.groups, groups.sizes, strict=True)]
            _draw_matrix(left, groups.moved, sizes, groups.groups)
            left.set(xlabel="group after", ylabel="original group (images)")
        share = f"{moved:.0f} of {total:.0f} images ({100 * moved / total:.1f} %)"
        left.set_title(f"{textwrap.fill(flow.label, 42)}\n{share}", fontsize=9, parse_math=False)
        _draw_pairs(right, top_pairs(flow), moved)
    headline(figure, title)
    save(figure, path)


def _draw_matrix(panel: Any, values: np.ndarray, rows: Sequence[str], columns: Sequence[str]) -> None:
    import matplotlib as mpl

    largest = max(1.0, float(values.max(initial=0.0)))
    panel.imshow(values, cmap=mpl.colormaps["Blues"], vmin=0, vmax=largest, interpolation="none")
    for (a, b), value in np.ndenumerate(values):
        if value > 0:
            colour = "white" if value > 0.6 * largest else "black"
            text = f"{value:.0f}" if value >= 9.95 or value == round(value) else f"{value:.1f}"
            panel.annotate(text, (b, a), ha="center", va="center", fontsize=7 if len(values) > 4 else 9, color=colour)
    longest = max(len(name) for name in columns)
    names = [short_name(name) for name in columns]
    panel.set_xticks(range(len(columns)), names, fontsize=8, rotation=45 if longest > 6 else 0)
    if longest > 6:
        for label in panel.get_xticklabels():
            label.set_horizontalalignment("right")
            label.set_rotation_mode("anchor")
    panel.set_yticks(range(len(rows)), [short_name(name) for name in rows], fontsize=8)


def _draw_pairs(panel: Any, listed: Sequence[tuple[str, str, float]], moved: float) -> None:
    places = range(len(listed))
    bars = panel.barh(places, [count for _, _, count in listed], color="#0072B2", height=0.7)
    panel.bar_label(bars, [f"{count:.4g}" for _, _, count in listed], padding=2, fontsize=7)
    panel.set_yticks(places, [f"{short_name(a)} → {short_name(b)}" for a, b, _ in listed], fontsize=7)
    panel.invert_yaxis()
    panel.margins(x=0.1)
    share = sum(count for _, _, count in listed) / moved if moved else 0.0
    panel.set_title(f"the {len(listed)} largest pairs: {100 * share:.0f} % of the moves", fontsize=9)
    panel.set_xlabel("images")
    panel.grid(alpha=0.3, axis="x")
