"""From the columns of a table to what a network sees: standardised numbers, and one input per category."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedrela_bench.data.sources.cache import load_or_build
from fedrela_bench.data.sources.raw import Column, RawData
from fedrela_bench.errors import DataError

LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Scale:
    """How one column becomes inputs."""

    mean: float = 0.0
    std: float = 1.0
    places: tuple[int, ...] = ()
    """Of a column of categories: those that the training rows hold, each of which becomes one input."""


def standardized(raw: RawData, kept: np.ndarray, cache_dir: Path) -> RawData:
    """The table with its rows as (N, 1, D, 1) float32, memory-mapped from the cache.

    Numbers become (x - mean) / std with mean and population standard deviation of the kept training rows; a column
    without variation becomes 0. A category becomes one input that is 1 where a row has it, in sorted order; only those
    of the kept training rows have an input, so that an unknown one is all zeros. A missing number is 0, the mean.

    Args:
        raw: as the reader made it.
        kept: (n,) rows of the training split that are trained on.
        cache_dir: of decoded arrays.

    Raises:
        DataError: a column that is too spread for float32.
    """
    rows = hashlib.sha256(np.ascontiguousarray(kept, dtype="<i8").tobytes()).hexdigest()
    made = load_or_build(cache_dir, "rows", [], {"table": raw.key, "kept": rows}, lambda: _build(raw, kept))
    notes = tuple(dict.fromkeys((*raw.notes, *made.notes)))
    return replace(made, notes=notes, stated=(*raw.stated, *made.stated))


def _build(raw: RawData, kept: np.ndarray) -> RawData:
    scales = [_scale(column, raw.train_images[kept, 0, place, 0]) for place, column in enumerate(raw.columns)]
    return replace(
        raw,
        train_images=_apply(raw.train_images, scales, raw.columns),
        test_images=_apply(raw.test_images, scales, raw.columns),
        notes=tuple(_constant(raw.columns, scales)),
        stated=tuple(_unknown(raw, scales)),
    )


def _scale(column: Column, values: np.ndarray) -> Scale:
    if column.categories is not None:
        return Scale(places=tuple(int(place) for place in np.unique(values) if place >= 0))
    there = values[~np.isnan(values)]
    if not len(there) or there.min() == there.max():
        return Scale(std=0.0)
    # Exact sums: every machine gets the same bits.
    try:
        mean = math.fsum(there.tolist()) / len(there)
        with np.errstate(over="ignore"):
            std = math.sqrt(math.fsum(((there - mean) ** 2).tolist()) / len(there))
    except OverflowError:
        mean, std = 0.0, math.inf
    if not math.isfinite(std):
        raise DataError(f"column {column.name} is spread too widely for its statistics; rescale it")
    return Scale(mean, std)


def _apply(values: np.ndarray, scales: list[Scale], columns: tuple[Column, ...]) -> np.ndarray:
    sizes = [
        1 if column.categories is None else len(scale.places) for column, scale in zip(columns, scales, strict=True)
    ]
    if not sum(sizes):
        raise DataError("no training row holds a value of any feature; give the table columns with values")
    rows = np.zeros((len(values), 1, sum(sizes), 1), dtype=np.float32)
    start = 0
    for place, (column, scale, size) in enumerate(zip(columns, scales, sizes, strict=True)):
        given = values[:, 0, place, 0]
        if column.categories is None:
            standard = (given - scale.mean) / (scale.std or 1.0)
            standard = np.where(np.isnan(given) | (scale.std == 0), 0.0, standard)
            if np.abs(standard).max(initial=0.0) > LARGEST:
                raise DataError(f"column {column.name} is spread too widely for float32; rescale it")
            rows[:, 0, start, 0] = standard
        else:
            rows[:, 0, start : start + size, 0] = given[:, None] == np.array(scale.places, dtype=np.float64)
        start += size
    return rows


def _constant(columns: tuple[Column, ...], scales: list[Scale]) -> Iterator[str]:
    flat = [
        column.name
        for column, scale in zip(columns, scales, strict=True)
        if (scale.std == 0 if column.categories is None else len(scale.places) < 2)
    ]
    if flat:
        shown = ", ".join(flat[:10]) + (" ..." if len(flat) > 10 else "")
        yield f"columns without any variation in the training rows: {shown}"


def _unknown(raw: RawData, scales: list[Scale]) -> Iterator[str]:
    found = []
    for place, (column, scale) in enumerate(zip(raw.columns, scales, strict=True)):
        given = raw.test_images[:, 0, place, 0]
        count = int((~np.isin(given, scale.places) & (given >= 0)).sum()) if column.categories is not None else 0
        found += [f"{column.name}: {count:,}"] if count else []
    if found:
        yield f"test rows with categories that no training row has, which are left out: {', '.join(found)}"
