"""Pictures that need no plotting library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

SIDE = 520
"""Pixels of the matrix."""
MARGIN = 120
MOST_LABELLED = 25
"""Classes up to which rows and numbers are written."""


def draw_confusion(matrix: np.ndarray, names: Sequence[str], title: str, path: Path) -> None:
    """Draw a confusion matrix: rows true classes, columns predictions, darker is a larger share of the row.

    Args:
        matrix: (C, C) counts.
        names: (C,) of the classes.
        title: above it.
        path: of the PNG.
    """
    from PIL import Image, ImageDraw, ImageFont

    classes = len(matrix)
    cell = max(2, SIDE // classes)
    side = cell * classes
    image = Image.new("L", (side + MARGIN + 20, side + MARGIN), 255)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    pixels = np.kron(255 - np.rint(215 * shares), np.ones((cell, cell))).astype(np.uint8)
    image.paste(Image.fromarray(pixels), (MARGIN, MARGIN - 40))
    draw = ImageDraw.Draw(image)
    draw.rectangle((MARGIN - 1, MARGIN - 41, MARGIN + side, MARGIN - 40 + side), outline=0)
    font = ImageFont.load_default(size=min(16, max(10, cell // 3)))
    heading = ImageFont.load_default(size=16)
    draw.text((MARGIN, 8), title, fill=0, font=heading)
    draw.text((MARGIN, 32), "columns: predicted class; rows: true class", fill=60, font=ImageFont.load_default(size=13))
    if classes <= MOST_LABELLED:
        _write(draw, matrix, shares, names, cell, font)
    image.save(path, optimize=True)


def _write(draw: Any, matrix: np.ndarray, shares: np.ndarray, names: Sequence[str], cell: int, font: Any) -> None:
    top = MARGIN - 40
    for row, name in enumerate(names):
        middle = top + row * cell + cell / 2
        draw.text((MARGIN - 8, middle), str(name)[:16], fill=0, font=font, anchor="rm")
        draw.text((MARGIN + row * cell + cell / 2, top - 6), str(name)[: max(2, cell // 8)], 0, font, "mb")
        for column in np.flatnonzero(matrix[row]):
            ink = 255 if shares[row, column] > 0.5 else 0
            draw.text((MARGIN + column * cell + cell / 2, middle), str(matrix[row, column]), ink, font, "mm")
