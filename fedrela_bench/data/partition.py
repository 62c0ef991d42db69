"""Dealing a labelled training set to clients."""

from __future__ import annotations

import numpy as np

from fedrela_bench.errors import ConfigError
from fedrela_bench.rng import generator

LEGACY_SEEDS = 2**32
"""Seeds of numpy's legacy generator lie below this number."""


def dirichlet_partition(
    labels: np.ndarray, clients: int, alpha: float, seed: int, num_classes: int | None = None
) -> list[np.ndarray]:
    """Latent Dirichlet partition with the random stream of the FedLoGe and FedReLa releases, draw for draw.

    For each class p ~ Dirichlet(alpha, ..., alpha) over the clients; each of its samples then draws a client from p.
    Client sizes are unequal and clients can be empty. One legacy stream gives first clients x classes binomial draws
    (always 1; they only advance the stream), then per class with samples the Dirichlet draw and one uniform per sample.

    Args:
        labels: (n,) int class ids.
        clients: K.
        alpha: concentration; smaller is more skewed.
        seed: below 2**32.
        num_classes: C, if the highest class has no samples; by default the highest label + 1.

    Returns:
        K sorted index arrays, disjoint, together 0..n-1.

    Raises:
        ConfigError: a number out of range, or an alpha too small or large to draw with.
    """
    labels = np.asarray(labels)
    _check(labels, clients, seed)
    if not (np.isfinite(alpha) and alpha > 0):
        raise ConfigError(f"data.alpha = {alpha:g}: must be a positive number")
    classes = int(labels.max()) + 1 if num_classes is None and len(labels) else (num_classes or 0)
    stream = np.random.RandomState(seed)
    stream.binomial(1, 1, size=(clients, classes))
    owner = np.empty(len(labels), dtype=np.int64)
    for c in range(classes):
        rows = np.flatnonzero(labels == c)
        if len(rows):
            cumulative = np.cumsum(_shares(stream, clients, alpha, c))
            draws = stream.random_sample(len(rows))
            owner[rows] = np.searchsorted(cumulative / cumulative[-1], draws, side="right")
    return split_by_owner(owner, clients)


def iid_partition(labels: np.ndarray, clients: int, seed: int) -> list[np.ndarray]:
    """A random partition into parts whose sizes differ by at most one.

    Returns:
        K sorted index arrays, disjoint, together 0..n-1; the last ones are empty where K > n.

    Raises:
        ConfigError: no clients.
    """
    _check(labels, clients, 0)
    order = generator(seed, "partition").permutation(len(labels))
    owner = np.empty(len(labels), dtype=np.int64)
    owner[order] = np.arange(len(labels)) % clients
    return split_by_owner(owner, clients)


def natural_partition(owners: np.ndarray, clients: int) -> list[np.ndarray]:
    """Everybody holds what the data say.

    Args:
        owners: (n,) int in 0..clients-1.
        clients: K.

    Returns:
        K sorted index arrays, disjoint, together 0..n-1; empty where nothing of a client was kept.
    """
    return split_by_owner(np.asarray(owners, dtype=np.int64), clients)


def split_by_owner(owner: np.ndarray, clients: int) -> list[np.ndarray]:
    """Turn (n,) client ids into K sorted index arrays."""
    order = np.argsort(owner, kind="stable").astype(np.int64)
    ends = np.cumsum(np.bincount(owner, minlength=clients))
    return [part.copy() for part in np.split(order, ends[:-1])]


def _shares(stream: np.random.RandomState, clients: int, alpha: float, c: int) -> np.ndarray:
    with np.errstate(all="ignore"):
        try:
            shares = stream.dirichlet(np.repeat(alpha, clients))
        except (ValueError, ZeroDivisionError):
            shares = np.full(clients, np.nan)
    if not np.isfinite(shares).all() or shares.sum() <= 0:
        remedy = "use data.partition: iid" if alpha > 1 else "raise data.alpha (0.01 is safe)"
        raise ConfigError(
            f"data.alpha = {alpha:g} with {clients} clients: the shares of class {c} cannot be drawn in floats; "
            f"{remedy}"
        )
    return shares


def _check(labels: np.ndarray, clients: int, seed: int) -> None:
    faults = []
    if clients < 1:
        faults.append(f"federation.clients = {clients}: must be at least 1")
    if not 0 <= seed < LEGACY_SEEDS:
        faults.append(f"partition seed {seed}: must be 0 to {LEGACY_SEEDS - 1}; set data.partition_seed")
    if len(labels) and int(np.min(labels)) < 0:
        faults.append(f"label {int(np.min(labels))}: class ids start at 0")
    if faults:
        raise ConfigError(faults)
