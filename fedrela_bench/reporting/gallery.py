"""Relabelled images beside the nearest image of the class they were given: the numbers first, the drawing second."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrela_bench.reporting.canvas import headline, panels, save, short_name
from fedrela_bench.reporting.evidence import NotDrawn, TrainingData, relabelling_files

if TYPE_CHECKING:
    from fedrela_bench.reporting.pairs import Pair
    from fedrela_bench.reporting.source import StudyRuns

SHOWN = 12
CHUNK = 256
"""Images compared at a time; bounds the memory."""


@dataclass(frozen=True)
class Gallery:
    """n relabelled training images.

    Attributes:
        position: (n,) of each in the training set.
        original, label: (n,) class before and after.
        posterior, rho: (n,) of the class after, at the moment of relabelling.
        neighbour: (n,) position of the nearest image that is of the class after originally; -1 where there is none.
        distance: (n,) distance to it; NaN where there is none.
        own_distance: (n,) distance to the nearest other image of the class before; NaN where there is none.
    """

    position: np.ndarray
    original: np.ndarray
    label: np.ndarray
    posterior: np.ndarray
    rho: np.ndarray
    neighbour: np.ndarray
    distance: np.ndarray
    own_distance: np.ndarray

    @property
    def ratio(self) -> np.ndarray:
        """(n,) distance to the class after over distance to the class before: below 1, it looks more like the new."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(self.distance / self.own_distance)


def relabelled_log(runs: StudyRuns, run_id: str) -> dict[str, np.ndarray]:
    """The images that a run relabelled first: position, client, original, label, posterior and rho, each (m,).

    Raises:
        NotDrawn: the run records none.
    """
    for name in relabelling_files(runs, run_id):
        arrays = runs.arrays(run_id, name) or {}
        if len(arrays.get("position", ())):
            return arrays
    raise NotDrawn("the runs do not record which images they relabelled")


def choose(log: Mapping[str, np.ndarray], most: int = SHOWN) -> np.ndarray:
    """Rows of the log with the highest rho, spread over classes.

    First the best image of every pair of classes, those of a target class not shown so far before the others; then the
    second of every pair, and so on. Equal rho: the larger posterior, then the smaller position.

    Args:
        log: see `relabelled_log`.
        most: rows wanted.

    Returns:
        At most `most` rows of the log, in the order of rho.
    """
    best = np.lexsort((log["position"], -log["posterior"], -log["rho"]))
    in_pair = _repeats(zip(log["original"][best], log["label"][best], strict=True))
    in_target = _repeats(zip(in_pair, log["label"][best], strict=True))
    spread = np.lexsort((np.arange(len(best)), in_target, in_pair))[:most]
    return best[np.sort(spread)]


def gallery(
    log: Mapping[str, np.ndarray],
    labels: np.ndarray,
    features: Callable[[np.ndarray], np.ndarray],
    most: int = SHOWN,
) -> Gallery:
    """What to show of a run's relabelled images.

    Args:
        log: see `relabelled_log`.
        labels: (N,) original labels of the training set.
        features: positions (m,) to what images are compared by, (m, ...): pixels, or features of a network.
        most: images wanted.
    """
    rows = choose(log, most)
    position, label, original = (log[name][rows].astype(np.int64) for name in ("position", "label", "original"))
    to, own = (
        [nearest(features, int(at), np.flatnonzero(labels == c)) for at, c in zip(position, classes, strict=True)]
        for classes in (label, original)
    )
    return Gallery(
        position=position,
        original=original,
        label=label,
        posterior=log["posterior"][rows],
        rho=log["rho"][rows],
        neighbour=np.array([place for place, _ in to], dtype=np.int64),
        distance=np.array([distance for _, distance in to]),
        own_distance=np.array([distance for _, distance in own]),
    )


def nearest(features: Callable[[np.ndarray], np.ndarray], position: int, candidates: np.ndarray) -> tuple[int, float]:
    """The candidate nearest to an image by Euclidean distance, the first of equal ones, and the distance.

    Args:
        features: positions (m,) to (m, ...).
        position: of the image; it is never its own neighbour.
        candidates: (m,) positions.

    Returns:
        (-1, NaN) without a candidate.
    """
    others = candidates[candidates != position]
    if not len(others):
        return -1, float("nan")
    own = features(np.array([position])).reshape(1, -1).astype(np.float64)
    parts = (features(others[start : start + CHUNK]) for start in range(0, len(others), CHUNK))
    squares = np.concatenate([((part.reshape(len(part), -1) - own) ** 2).sum(axis=1) for part in parts])
    first = int(squares.argmin())
    return int(others[first]), float(np.sqrt(squares[first]))


def gallery_title(runs: StudyRuns, pair: Pair, seed: int, found: Gallery) -> str:
    """Dataset, arm and seed; what the pictures are."""
    first = f"{short_name(runs.dataset)}: relabelled images, {pair.label}, seed {seed}"
    given = found.ratio[~np.isnan(found.ratio)]
    nearer = f"{int((given < 1).sum())} of {len(given)} nearer to the new class than to their own (d < 1)"
    second = (
        f"left: relabelled image, right: nearest training image of the new class; the {len(found.position)} highest ρ, "
        "spread over pairs of classes; P: posterior of the new class; d: pixel distance to the new over the old class, "
        f"{nearer}"
    )
    return f"{first}\n{second}"


def draw_gallery(found: Gallery, data: TrainingData, title: str, path: Path) -> None:
    """Pairs of pictures: the relabelled image under its two classes, and its nearest image of the new class."""
    count = len(found.position)
    columns = min(4, count)
    rows = -(-count // columns)
    figure, axes = panels(2.9 * columns, 0.9 + 2.05 * rows, rows, 2 * columns, sharey=False)
    pictures, beside = data.images(found.position), data.images(np.maximum(found.neighbour, 0))
    for place in range(count):
        left, right = axes[2 * place], axes[2 * place + 1]
        before, after = (_class_name(data, int(labels[place])) for labels in (found.original, found.label))
        _show(left, pictures[place], "#D55E00", "-")
        left.set_title(before, fontsize=8, color="#A04000", parse_math=False)
        left.set_xlabel(f"P = {found.posterior[place]:.2g}\nρ = {found.rho[place]:.2g}", fontsize=8)
        if found.neighbour[place] >= 0:
            _show(right, beside[place], "#0072B2", "--")
            right.set_xlabel(f"d = {found.ratio[place]:.2f}", fontsize=8)
        else:
            right.set(xticks=[], yticks=[], xlabel="no image")
        right.set_title(f"→ {after}", fontsize=8, color="#005A8C", parse_math=False)
    for panel in axes[2 * count :]:
        panel.set_axis_off()
    headline(figure, title)
    save(figure, path, photos=True)


def _repeats(values: Iterator[Any]) -> np.ndarray:
    """(m,) how often each value stood before."""
    seen: dict[Any, int] = {}
    found = []
    for value in values:
        found.append(seen.get(value, 0))
        seen[value] = found[-1] + 1
    return np.array(found, dtype=np.int64)


def _class_name(data: TrainingData, label: int) -> str:
    name = data.names[label]
    return name if len(name) <= 16 else f"{name[:15]}…"


def _show(panel: Any, picture: np.ndarray, colour: str, line: str) -> None:
    shown = picture[..., 0] if picture.shape[-1] == 1 else picture
    panel.imshow(shown, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    panel.set(xticks=[], yticks=[])
    for spine in panel.spines.values():
        spine.set(color=colour, linewidth=1.6, linestyle=line)
