"""FedReLa's equations (2)-(8) and Algorithm 1 in numpy, a few class columns at a time.

Columns are copied out of the (n, C) posterior so that every pass runs over contiguous memory and a block of them stays
in the cache. Only entries above their threshold, about tau of them, ever reach tanh or the uniforms.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrela_bench.relabel.options import RelabelOptions

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCK_VALUES = 1 << 16  # float64 values of a block: half a MiB, about one core's second-level cache
PANEL_COLUMNS = 8  # a cache line of float64: each line of the posterior is fetched once
TILE_ROWS = 2048
SMALLEST_SIGMA = 1e-150  # below, squares leave the normal range and the quotient means nothing


class Outcome(NamedTuple):
    """Labels (n,), strength (n,), thresholds (C,), prior weight (C, C), scores (n, C) or None."""

    labels: NDArray[Any]
    strength: Floats
    thresholds: Floats
    prior_weight: Floats
    scores: NDArray[Any] | None


def prior_weights(counts: Ints, options: RelabelOptions) -> Floats:
    """Eq. (6) as a (C, C) table: row l, column c is max(prior[c] - prior[l], 0); all zero if counts are equal."""
    smallest = counts.min()
    prior = 1 - (counts - smallest) / max(counts.max() - smallest, 1)
    weight: Floats = np.subtract.outer(-prior, -prior)
    np.maximum(weight, 0.0, out=weight)
    if options.absent_targets == "forbid":
        weight[:, counts == 0] = 0.0
    return weight


def quantile_position(size: int, tau: float, options: RelabelOptions) -> tuple[int, float]:
    """Rank (from 0, ascending) of the (1 - tau)-quantile of ``size`` values, and its distance to the next, 0 to 1."""
    if options.quantile == "order":
        return size - 1 - min(int(tau * size), size - 1), 0.0
    position = (size - 1) * (1 - tau)
    rank = min(math.floor(position), size - 1)
    return rank, position - rank


class Client:
    """What all columns share: the classes that are present, who belongs to which, and working memory.

    Attributes:
        labels: (n,) class ids.
        counts: (C,) samples per class.
        member: (n,) index of a sample's class among the P classes present.
        sizes: (P,) samples of each class present.
        first: (P,) one sample of each class present.
        scratch: (b, n) working memory.
    """

    def __init__(self, labels: Ints, num_classes: int, columns: int) -> None:
        self.labels = labels
        self.counts: Ints = np.bincount(labels, minlength=num_classes)
        present = self.counts.nonzero()[0]
        rank = np.zeros(num_classes, dtype=np.int64)
        rank[present] = np.arange(present.size)
        self.member: Ints = rank[labels]
        self.sizes = self.counts[present]
        self.first = np.empty(present.size, dtype=np.int64)
        self.first[self.member] = np.arange(labels.size)
        self.scratch: Floats = np.empty((columns, labels.size))
        self._plan_sums(columns)

    def _plan_sums(self, columns: int) -> None:
        """Client data is usually stored by class, and a run of equal labels is summed faster by ``reduceat``.

        ``bincount`` has to finish one addition to a cell before it can begin the next.
        """
        starts = np.concatenate(([0], 1 + np.flatnonzero(self.labels[1:] != self.labels[:-1])))
        self.starts: Ints | None = starts if 4 * starts.size < self.labels.size else None
        owners = self.member if self.starts is None else self.member[starts]
        self.cells: Ints = owners + self.sizes.size * np.arange(columns)[:, None]

    def sums(self, block: Floats) -> Floats:
        """(b, n) values per sample -> (b, P) sums per class."""
        columns, present = len(block), self.sizes.size
        if self.starts is not None:
            block = np.add.reduceat(block, self.starts, axis=1)
        cells, size = self.cells[:columns].ravel(), columns * present
        sums: Floats = np.bincount(cells, weights=block.ravel(), minlength=size).astype(np.float64, copy=False)
        return sums.reshape(columns, present)

    def spread(self, table: Floats) -> Floats:
        """(b, P) values per class -> (b, n) values per sample, in scratch."""
        return np.take(table, self.member, axis=1, out=self.scratch[: len(table)], mode="clip")


def standardise(block: Floats, client: Client, options: RelabelOptions) -> None:
    """Replace (b, n) posterior columns by their z-scores, eqs. (3)-(5)."""
    # Deviations from a member of the class make constant columns exactly constant, whatever the rounding of the mean.
    reference = block[:, client.first]
    scratch = client.spread(reference)
    reference += client.sums(np.subtract(block, scratch, out=scratch)) / client.sizes
    block -= client.spread(reference)
    variance = client.sums(np.multiply(block, block, out=scratch))
    variance /= np.maximum(client.sizes - options.std_ddof, 1)
    sigma = np.maximum(np.sqrt(variance), options.sigma_floor)
    block *= client.spread(np.where(sigma > SMALLEST_SIGMA, 1 / np.maximum(sigma, SMALLEST_SIGMA), 0.0))


def scale_to_unit(block: Floats, client: Client) -> None:
    """Replace (b, n) posterior columns by min-max scores inside each class; 0 where a class is constant."""
    low = np.full((len(block), client.sizes.size), np.inf)
    high = -low
    cells = (client.member + client.sizes.size * np.arange(len(block))[:, None]).ravel()
    np.minimum.at(low.reshape(-1), cells, block.ravel())
    np.maximum.at(high.reshape(-1), cells, block.ravel())
    block -= client.spread(low)
    block /= client.spread(np.where(high > low, high - low, np.inf))


def score_block(block: Floats, client: Client, options: RelabelOptions) -> None:
    """Replace (b, n) posterior columns by the scores that thresholds apply to."""
    if options.score == "zscore":
        standardise(block, client, options)
    elif options.score == "minmax":
        scale_to_unit(block, client)


def column_quantiles(columns: Floats, tau: float, options: RelabelOptions) -> Floats:
    """(b, n) -> (b,) quantiles at 1 - tau, eq. (7); leaves the columns partitioned."""
    rank, fraction = quantile_position(columns.shape[1], tau, options)
    columns.partition(rank, axis=1)
    quantiles: Floats = columns[:, rank].copy()
    if fraction > 0.0:
        quantiles += (columns[:, rank + 1 :].min(axis=1) - quantiles) * fraction
    return quantiles


def block_thresholds(block: Floats, first_column: int, client: Client, tau: float, options: RelabelOptions) -> Floats:
    """(b,) thresholds of the columns that begin at ``first_column``."""
    if options.constant_threshold is not None or options.score == "none":
        return np.full(len(block), options.constant_threshold or 0.0)
    if options.threshold_pool == "all":
        scratch = client.scratch[: len(block)]
        np.copyto(scratch, block)
        return column_quantiles(scratch, tau, options)
    pools = [row[client.labels != first_column + i] for i, row in enumerate(block)]
    pools = [pool if pool.size else row.copy() for pool, row in zip(pools, block, strict=True)]
    return np.concatenate([column_quantiles(pool[None, :], tau, options) for pool in pools])


def gain(excess: Floats, thresholds: Floats, options: RelabelOptions) -> Floats:
    """Eq. (8) without the prior weight, for scores that exceed their thresholds by ``excess`` > 0."""
    if options.score == "zscore":
        return np.tanh(excess)
    if options.score == "none":
        return excess
    return excess / (1 - thresholds)


def block_rho(
    block: Floats, thresholds: Floats, weights: Floats, labels: Ints, options: RelabelOptions
) -> tuple[Ints, Ints, Floats]:
    """The positive entries of rho in a block: rows, samples (both (m,), row by row) and values (m,).

    Args:
        block: (b, n) scores.
        thresholds: (b,).
        weights: (C, b) prior weight towards the block's columns.
        labels: (n,).
        options: how scores become probabilities.
    """
    above = np.flatnonzero(block > thresholds[:, None])
    rows, samples = (np.zeros_like(above), above) if len(block) == 1 else np.divmod(above, block.shape[1])
    weight = weights[labels[samples], rows]
    kept = weight > 0
    rows, samples, weight = rows[kept], samples[kept], weight[kept]
    level = thresholds[rows]
    return rows, samples, gain(block.ravel()[above[kept]] - level, level, options) * weight


def without_noise(rho: Floats) -> Floats:
    """Rho rounded to 40 bits, so that values equal but for the order of operations compare as equal."""
    bits = np.ascontiguousarray(rho).view(np.int64)
    rounded: Floats = ((bits + (1 << 11)) & -(1 << 12)).view(np.float64)
    return rounded


class Winner:
    """The running choice of Algorithm 1 while blocks arrive in ascending order of class."""

    def __init__(self, labels: NDArray[Any], pick: str) -> None:
        self.pick = pick
        self.best = np.zeros(labels.size)
        self.choice = labels.copy()
        self.drawn = np.zeros(labels.size, dtype=bool)

    def offer(self, classes: Ints, samples: Ints, rho: Floats, uniforms: NDArray[Any]) -> None:
        """Take candidates (m,), each a class, a sample and its rho."""
        hit = rho > uniforms[samples, classes]
        rho = without_noise(rho)
        if self.pick == "drawn":
            classes, samples, rho = classes[hit], samples[hit], rho[hit]
            self.drawn[samples] = True
        else:
            self.drawn[samples[hit]] = True
        before = self.best[samples]
        np.maximum.at(self.best, samples, rho)
        wins = (rho > before) & (rho == self.best[samples])
        # Of equal rho the lowest class is to stay: it comes last when written backwards.
        self.choice[samples[wins][::-1]] = classes[wins][::-1]

    def finish(self, labels: NDArray[Any]) -> tuple[NDArray[Any], Floats]:
        """Labels (n,) and strength (n,)."""
        return np.where(self.drawn, self.choice, labels), np.where(self.drawn, self.best, 0.0)


def flip_probabilities(
    scores: NDArray[Any],
    labels: NDArray[Any],
    thresholds: NDArray[Any],
    prior_weight: NDArray[Any],
    options: RelabelOptions,
) -> NDArray[Any]:
    """Rho (n, C) of eq. (8) from scores (n, C), in the type of the scores."""
    n, classes = scores.shape
    rho = np.zeros((classes, n), dtype=scores.dtype)
    step = min(max(BLOCK_VALUES // max(n, 1), 1), classes)
    origin = labels.astype(np.int64)
    for start in range(0, classes if n else 0, step):
        part = slice(start, start + step)
        block = np.ascontiguousarray(scores.T[part])
        rows, samples, values = block_rho(block, thresholds[part], prior_weight[:, part], origin, options)
        rho[rows + start, samples] = values
    return rho.T


def copy_columns(posterior: NDArray[Any], first_column: int, out: Floats) -> None:
    """``out`` (w, n) <- columns of ``posterior`` (n, C) from ``first_column`` on, by tiles that fit the cache."""
    columns = posterior[:, first_column : first_column + len(out)]
    for start in range(0, len(columns), TILE_ROWS):
        out[:, start : start + TILE_ROWS] = columns[start : start + TILE_ROWS].T


def reallocate(
    posterior: NDArray[Any],
    labels: NDArray[Any],
    tau: float,
    uniforms: NDArray[Any],
    options: RelabelOptions,
    diagnostics: bool,
) -> Outcome:
    """Re-allocate checked inputs: posterior (n, C), labels (n,) with n >= 1, tau a fraction, uniforms (n, C)."""
    n, classes = posterior.shape
    step = min(max(BLOCK_VALUES // n, 1), classes)
    client = Client(labels.astype(np.int64), classes, step)
    weights = prior_weights(client.counts, options)
    winner, thresholds = Winner(labels, options.pick), np.empty(classes)
    width = min(max(step, PANEL_COLUMNS) // step * step, classes)
    kept = np.empty((classes, n), dtype=posterior.dtype) if diagnostics else np.empty((0, n))
    in_place = diagnostics and kept.dtype == np.float64
    panels = kept if in_place else np.empty((width, n))
    for left in range(0, classes, width):
        right = min(left + width, classes)
        panel: Floats = panels[left:right] if in_place else panels[: right - left]
        copy_columns(posterior, left, panel)
        for start in range(left, right, step):
            stop = min(start + step, right)
            block = panel[start - left : stop - left]
            score_block(block, client, options)
            level = thresholds[start:stop] = block_thresholds(block, start, client, tau, options)
            rows, samples, rho = block_rho(block, level, weights[:, start:stop], client.labels, options)
            winner.offer(rows + start, samples, rho, uniforms)
        if diagnostics and not in_place:
            kept[left:right] = panel
    moved, strength = winner.finish(labels)
    return Outcome(moved, strength, thresholds, weights, kept.T if diagnostics else None)
