"""What all figures share: palette, shapes, canvas, saving, titles."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedrela_bench.files import write_atomically

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette, for readers of any colour vision; shapes change with it, for print in grey."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LONGEST_NAME = 48


def panels(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Any, list[Any]]:
    """A figure with rows × columns panels of a common y axis, in inches altogether; the panels row by row."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(rows, columns, squeeze=False, sharey=True).flat)


def one_panel(width: float, height: float) -> tuple[Any, Any]:
    """A figure with a single panel, in inches."""
    figure, axes = panels(width, height)
    return figure, axes[0]


def save(figure: Any, path: Path) -> None:
    """Write the PNG whole or not at all; equal figures give equal bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    write_atomically(path, buffer.getvalue())


def style_of(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Name to its colour and marker, in order of first appearance."""
    places = enumerate(dict.fromkeys(names))
    return {name: (COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]) for place, name in places}


def seeds_text(seeds: Iterable[int]) -> str:
    """Seeds and their number, such as ``seeds 1, 2 (n = 2)``."""
    given = sorted(set(seeds))
    return f"{'seed' if len(given) == 1 else 'seeds'} {', '.join(map(str, given)) or '–'} (n = {len(given)})"


def short_name(name: str) -> str:
    """A dataset's name that fits a title; of a long path its end."""
    return name if len(name) <= LONGEST_NAME else f"…{name[1 - LONGEST_NAME :]}"
