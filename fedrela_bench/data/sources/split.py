"""Setting test rows aside where a source has none of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fedrela_bench.data.sources.raw import RawData, Reading, meant
from fedrela_bench.errors import DataError
from fedrela_bench.rng import generator

Place = Callable[[int], str]
"""From the position of a row to what messages call it."""


def stratified_test_rows(
    labels: np.ndarray, class_names: Sequence[str], fraction: float, seed: int, place: Place
) -> np.ndarray:
    """A share of every class, drawn without regard to clients or anything else.

    Args:
        labels: (N,) int in 0..C-1.
        class_names: C names.
        fraction: of each class, rounded to whole rows; at least one stays on either side.
        seed: of the draw; the stream is keyed (seed, class).
        place: of a row, for messages.

    Returns:
        (N,) bool, True for test rows.

    Raises:
        DataError: classes with a single row.
    """
    counts = np.bincount(labels, minlength=len(class_names))
    if (counts < 2).any():
        raise DataError(_too_small(labels, class_names, np.flatnonzero(counts < 2), place))
    chosen = np.zeros(len(labels), dtype=bool)
    for c, count in enumerate(counts):
        rows = np.flatnonzero(labels == c)
        size = min(max(round(fraction * int(count)), 1), int(count) - 1)
        chosen[rows[generator(seed, "test-split", c).permutation(count)[:size]]] = True
    return chosen


def _too_small(labels: np.ndarray, class_names: Sequence[str], classes: np.ndarray, place: Place) -> str:
    alone = [class_names[c] for c in classes[:10]]
    more = " ..." if len(classes) > 10 else ""
    found = [np.flatnonzero(labels == c) for c in classes[:10]]
    places = [
        f"{name}: {place(int(rows[0])) if len(rows) else 'no row'}{meant(name, class_names)}"
        for name, rows in zip(alone, found, strict=True)
    ]
    return (
        f"no test rows are given, and of class {', '.join(alone)}{more} there are fewer than 2 rows, which cannot be "
        "both trained on and tested: correct the label, add rows, remove the class, or give a test split "
        f"({'; '.join(places)}{more})"
    )


def draw_test(raw: RawData, reading: Reading, place: Place) -> RawData:
    """Move a share of every class from a source's only split to its test split, and state that.

    Args:
        raw: all samples as training data.
        reading: share and seed.
        place: of a sample, for messages.

    Raises:
        DataError: classes with a single row.
    """
    chosen = stratified_test_rows(raw.train_labels, raw.class_names, reading.test_fraction, reading.test_seed, place)
    statement = (
        f"the source has no test split: {int(chosen.sum()):,} of {len(chosen):,} {raw.unit}s, "
        f"{reading.test_fraction:g} of each class, were set aside to test (data.test_seed = {reading.test_seed})"
    )
    return replace(
        raw,
        train_images=raw.train_images[~chosen],
        train_labels=raw.train_labels[~chosen],
        test_images=raw.train_images[chosen],
        test_labels=raw.train_labels[chosen],
        train_clients=None if raw.train_clients is None else raw.train_clients[~chosen],
        stated=(statement, *raw.stated),
    )
