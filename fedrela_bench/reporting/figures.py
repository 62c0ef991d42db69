"""The client × class map of a partition: the numbers first, the drawing second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedrela_bench.reporting.canvas import headline, one_panel, save, short_name

if TYPE_CHECKING:
    from fedrela_bench.reporting.source import StudyRuns


@dataclass(frozen=True)
class ClientMap:
    """(C, K) images per class and client; clients ordered by size, largest first."""

    counts: np.ndarray
    classes: tuple[str, ...]
    clients: tuple[int, ...]


def client_map(client_counts: np.ndarray, class_names: Sequence[str]) -> ClientMap:
    """The client × class map of a partition.

    Args:
        client_counts: (K, C) images per client and class.
        class_names: C names.
    """
    order = np.argsort(-client_counts.sum(axis=1), kind="stable")
    return ClientMap(client_counts[order].T, tuple(class_names), tuple(int(client) for client in order))


def client_title(runs: StudyRuns, seed: int, found: ClientMap) -> str:
    """Dataset; how the images are dealt, and the seed that dealt them."""
    row = runs.frame[runs.frame["seed"] == seed].iloc[0]
    alpha = row.get("param:data.alpha")
    even = row.get("param:data.partition") == "iid"
    dealt = "dealt evenly" if even else f"Dirichlet, α = {alpha}" if isinstance(alpha, str) else "as recorded"
    images, clients = int(found.counts.sum()), len(found.clients)
    return f"{short_name(runs.dataset)}: training images per client and class\n" + (
        f"{images} images, {clients} clients, {dealt}, seed {seed}"
    )


def draw_client_map(found: ClientMap, title: str, path: Path) -> None:
    """Counts as a heat map on a logarithmic scale, more images darker; white is no image."""
    import matplotlib as mpl
    from matplotlib.colors import LogNorm

    classes, clients = found.counts.shape
    width = 3.0 + clients * min(0.5, max(0.12, 4.0 / max(1, clients)))
    figure, axes = one_panel(min(14.0, max(5.0, width)), min(9.0, max(3.0, 2.2 + 0.14 * classes)))
    shown = np.ma.masked_equal(found.counts, 0)
    largest = max(2, int(found.counts.max(initial=2)))
    image = axes.imshow(
        shown, aspect="auto", cmap=mpl.colormaps["viridis_r"], norm=LogNorm(1, largest), interpolation="none"
    )
    axes.set(xlabel="clients, largest first", ylabel="class")
    axes.set_xticks([] if clients > 40 else range(clients), [] if clients > 40 else found.clients, fontsize=6)
    named = range(0, classes, max(1, -(-classes // 50)))
    axes.set_yticks(list(named), [found.classes[place] for place in named], fontsize=6)
    figure.colorbar(image, ax=axes, label="images")
    headline(figure, title)
    save(figure, path)
