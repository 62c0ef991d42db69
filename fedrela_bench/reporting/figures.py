"""The client × class map of a partition: the numbers first, the drawing second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedrela_bench.reporting.canvas import one_panel, save


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


def draw_client_map(found: ClientMap, title: str, path: Path) -> None:
    """Counts as a heat map on a logarithmic scale; white is no image."""
    import matplotlib as mpl
    from matplotlib.colors import LogNorm

    classes, clients = found.counts.shape
    figure, axes = one_panel(min(14.0, 3.0 + 0.12 * clients), min(14.0, 2.2 + 0.12 * classes))
    shown = np.ma.masked_equal(found.counts, 0)
    largest = max(2, int(found.counts.max(initial=2)))
    image = axes.imshow(
        shown, aspect="auto", cmap=mpl.colormaps["viridis"], norm=LogNorm(1, largest), interpolation="none"
    )
    axes.set(xlabel="clients, largest first", ylabel="class", title=title)
    axes.set_xticks([] if clients > 40 else range(clients), [] if clients > 40 else found.clients, fontsize=6)
    named = range(0, classes, max(1, classes // 25))
    axes.set_yticks(list(named), [found.classes[place] for place in named], fontsize=6)
    figure.colorbar(image, ax=axes, label="images")
    save(figure, path)
