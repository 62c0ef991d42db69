"""Imbalance profiles: how many images each class keeps, and which.

The exponential profile is that of Cao et al., "Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss"
(NeurIPS 2019); the step profile is that of the FedReLa paper's Table 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedrela_bench.errors import ConfigError

Minority = Literal["even", "last"] | Sequence[int]


def longtail_counts(n_max: int, num_classes: int, imbalance_factor: float) -> np.ndarray:
    """Exponentially falling class counts: n_c = int(n_max * (1/IF)^(c/(C-1))), truncated.

    The arithmetic is the released code's, step by step in binary floating point, so that counts agree everywhere.

    Args:
        n_max: images of class 0.
        num_classes: C; with one class there is nothing to imbalance.
        imbalance_factor: largest over smallest class, at least 1.

    Returns:
        (C,) int64, class id order = size order. Large factors can leave classes with 0.

    Raises:
        ConfigError: a number out of range.
    """
    _check(n_max, num_classes, imbalance_factor)
    ratio = 1.0 / imbalance_factor
    last = max(num_classes - 1, 1)
    return np.array([int(n_max * ratio ** (c / last)) for c in range(num_classes)], dtype=np.int64)


def minority_classes(num_classes: int, minority: Minority, minority_fraction: float) -> tuple[int, ...]:
    """The ids of the minority classes, ascending.

    Args:
        num_classes: C.
        minority: "even": the first even ids (0, 2, 4, ...), "last": the last ids, or a list of ids.
        minority_fraction: q; the whole number nearest to qC classes; not read where `minority` is a list.

    Raises:
        ConfigError: a list with ids out of range, twice, none or all; or a fraction that gives no such classes.
    """
    if not isinstance(minority, str):
        return _listed_minority(num_classes, minority)
    size = int(np.floor(minority_fraction * num_classes + 0.5))
    if not 1 <= size < num_classes:
        raise ConfigError(
            f"data.minority_fraction = {minority_fraction:g} of {num_classes} classes is {size}; "
            f"choose a fraction that gives 1 to {num_classes - 1} classes"
        )
    if minority == "last":
        return tuple(range(num_classes - size, num_classes))
    even = range(0, num_classes, 2)
    if size > len(even):
        raise ConfigError(
            f"data.minority = even offers {len(even)} of {num_classes} classes but minority_fraction = "
            f"{minority_fraction:g} asks for {size}; set data.minority to last or to a list of ids"
        )
    return tuple(even[:size])


def step_counts(
    n_max: int,
    num_classes: int,
    imbalance_factor: float,
    minority: Minority = "even",
    minority_fraction: float = 0.3,
) -> np.ndarray:
    """Two levels: n_max for majority classes, int(n_max / IR) for minority classes.

    Returns:
        (C,) int64.

    Raises:
        ConfigError: a number out of range, or an impossible minority (see `minority_classes`).
    """
    _check(n_max, num_classes, imbalance_factor)
    counts = np.full(num_classes, n_max, dtype=np.int64)
    counts[list(minority_classes(num_classes, minority, minority_fraction))] = int(n_max / imbalance_factor)
    return counts


def choose_subset(labels: np.ndarray, counts: np.ndarray, subset_seed: int) -> np.ndarray:
    """Choose which images of each class are kept.

    One legacy numpy stream seeded with `subset_seed` shuffles each class's rows in ascending order of class and the
    first n_c stay: the convention of the common long-tailed CIFAR generator, so equal row order gives equal images.

    Args:
        labels: (N,) int, the source's labels.
        counts: (C,) int, images to keep; at most what the class has.
        subset_seed: independent of the run's seed.

    Returns:
        (sum(counts),) int64 rows, ordered by class, ascending inside a class.

    Raises:
        ConfigError: a class has fewer images than its count.
    """
    available = np.bincount(labels, minlength=len(counts))
    short = np.flatnonzero(available < counts)
    if len(short):
        c = int(short[0])
        raise ConfigError(f"class {c} has {available[c]} images, {counts[c]} are to be kept; lower data.n_max")
    stream = np.random.RandomState(subset_seed)
    kept: list[np.ndarray] = []
    for c, count in enumerate(counts):
        rows = np.flatnonzero(labels == c)
        stream.shuffle(rows)
        kept.append(np.sort(rows[:count]))
    return np.concatenate(kept).astype(np.int64) if kept else np.empty(0, dtype=np.int64)


def _check(n_max: int, num_classes: int, imbalance_factor: float) -> None:
    faults = []
    if n_max < 1:
        faults.append(f"n_max = {n_max}: must be at least 1")
    if num_classes < 1:
        faults.append(f"num_classes = {num_classes}: must be at least 1")
    if not (np.isfinite(imbalance_factor) and imbalance_factor >= 1):
        hint = f"; did you mean {1 / imbalance_factor:g}?" if 0 < imbalance_factor < 1 else ""
        faults.append(f"imbalance_factor = {imbalance_factor:g}: is largest/smallest class and at least 1{hint}")
    if faults:
        raise ConfigError(faults)


def _listed_minority(num_classes: int, minority: Sequence[int]) -> tuple[int, ...]:
    ids = sorted(int(c) for c in minority)
    shown = f"data.minority = {list(minority)}"
    outside = [c for c in ids if not 0 <= c < num_classes]
    faults = []
    if not ids:
        faults.append(f"{shown} names no class; give at least one id, or use even or last")
    if outside:
        faults.append(f"{shown}: {outside} are not classes; ids run from 0 to {num_classes - 1}")
    if len(set(ids)) < len(ids):
        faults.append(f"{shown} names a class twice; give each id once")
    if ids and len(set(ids) - set(outside)) >= num_classes:
        faults.append(f"{shown} holds all {num_classes} classes; leave at least one in the majority")
    if faults:
        raise ConfigError(faults)
    return tuple(ids)
