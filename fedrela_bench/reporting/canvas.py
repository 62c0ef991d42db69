"""What all figures share: palette, shapes, canvas, saving, titles."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fedrela_bench.files import write_atomically
from fedrela_bench.reporting.select import DAGGER, ROUND_RULES, RoundRule, split_text

BLACK = "#000000"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", BLACK)
"""Okabe and Ito's palette, for readers of any colour vision; shapes change with it, for print in grey."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HATCHES = ("", "////", "....", "xx", "----")
"""Of bars, for print in grey."""
LONGEST_NAME = 48
DPI = 150


def panels(
    width: float, height: float, rows: int = 1, columns: int = 1, sharey: bool = True, **grid: Any
) -> tuple[Any, list[Any]]:
    """A figure with rows × columns panels, in inches altogether; the panels row by row.

    Args:
        width: of the figure.
        height: of the figure.
        rows: of panels.
        columns: of panels.
        sharey: whether all panels have one y axis.
        grid: what else matplotlib's `subplots` takes, such as ``gridspec_kw``.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(rows, columns, squeeze=False, sharey=sharey, **grid).flat)


def one_panel(width: float, height: float) -> tuple[Any, Any]:
    """A figure with a single panel, in inches."""
    figure, axes = panels(width, height)
    return figure, axes[0]


def headline(figure: Any, title: str, size: float = 9.5) -> None:
    """A title above all panels; each of its lines is broken where it would not fit the figure's width."""
    letters = int(figure.get_figwidth() * 136 / size)
    lines = [textwrap.fill(line.replace("n = ", "n\u00a0=\u00a0"), letters) for line in title.splitlines()]
    figure.suptitle("\n".join(lines), fontsize=size, parse_math=False)


def save(figure: Any, path: Path, photos: bool = False) -> None:
    """Write the PNG whole or not at all; equal figures give equal bytes.

    Args:
        figure: of `panels`.
        path: of the PNG.
        photos: whether it shows photographs; all else is as good, and a third as large, with a palette of 256 colours.
    """
    from PIL import Image

    figure.set_dpi(DPI)
    with warnings.catch_warnings():
        # Names of classes may be in any script; what the font lacks is drawn as a box, and stands in the tables.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.canvas.draw()
    image = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")
    if not photos:
        image = image.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    image.save(buffer, format="png", dpi=(DPI, DPI))
    write_atomically(path, buffer.getvalue())


def tint(colour: str, amount: float) -> tuple[float, ...]:
    """A colour mixed with white (`amount` from 0 to 1) or with black (from 0 to -1)."""
    from matplotlib.colors import to_rgb

    target = 1.0 if amount > 0 else 0.0
    return tuple(part + abs(amount) * (target - part) for part in to_rgb(colour))


def style_of(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Name to its colour and marker, in order of first appearance."""
    places = enumerate(dict.fromkeys(names))
    return {name: (COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]) for place, name in places}


def seeds_text(seeds: Iterable[int]) -> str:
    """Seeds and their number, such as ``seeds 1, 2 (n = 2)``."""
    given = sorted(set(seeds))
    return f"{'seed' if len(given) == 1 else 'seeds'} {', '.join(map(str, given)) or '–'} (n = {len(given)})"


def what_text(split: str, selections: Iterable[str], rule: RoundRule | None, seeds: Iterable[int], mean: str) -> str:
    """What every number of a figure is: split, round rule, statistic and seeds; a dagger where the split also chose.

    Args:
        split: test or val.
        selections: the values of ``evaluation.selection`` of the runs.
        rule: None where the figure shows every round.
        seeds: of the runs.
        mean: the statistic, such as ``mean ± std``.
    """
    given = set(selections)
    oracle = f" {DAGGER} chosen on these images" if "oracle" in given or rule == "best_oracle" else ""
    parts = [f"{split_text(split, given)}{oracle}", *([] if rule is None else [ROUND_RULES[rule]])]
    return "; ".join([*parts, f"{mean}, {seeds_text(seeds)}"])


def short_name(name: str) -> str:
    """A dataset's name that fits a title; of a long path its end."""
    return name if len(name) <= LONGEST_NAME else f"…{name[1 - LONGEST_NAME :]}"
