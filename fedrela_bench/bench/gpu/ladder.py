"""What a step and a client cost, from clients of doubling size, and what a whole round of them would take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedrela_bench.bench.gpu.budget import Budget
from fedrela_bench.config import TrialConfig
from fedrela_bench.data import FederatedDataset
from fedrela_bench.rng import generator
from fedrela_bench.simulation.batches import batch_bounds

GROWTH = 2.2
"""The next client has twice the steps; a little more is kept ready."""


@dataclass(frozen=True)
class Rung:
    """A client of a whole number of batches."""

    client: int
    images: int
    steps: int
    """Over all its local epochs."""


@dataclass(frozen=True)
class Rate:
    """A client's training is `client_seconds` and `step_seconds` for each of its steps."""

    client_seconds: float
    step_seconds: float

    def seconds(self, clients: int, steps: int) -> float:
        """Of so many clients with so many steps in all."""
        return clients * self.client_seconds + steps * self.step_seconds


def rungs(dataset: FederatedDataset, config: TrialConfig) -> tuple[FederatedDataset, list[Rung]]:
    """The same images dealt anew: client k holds 2^k batches of random images as far as they go, the others none."""
    batch, epochs = config.training.batch_size, config.training.local_epochs
    order = generator(0, "gpu check clients").permutation(len(dataset.labels))
    sizes = [batch << k for k in range(config.federation.clients) if batch << k <= len(order)] or [len(order)]
    sizes_of_all = sizes + [0] * (config.federation.clients - len(sizes))
    clients = tuple(np.sort(order[:size]) for size in sizes_of_all)
    made = [Rung(k, size, epochs * -(-size // batch)) for k, size in enumerate(sizes)]
    return replace(dataset, clients=clients), made


def climb(ladder: Sequence[Rung], seconds_of: Callable[[Rung], float], budget: Budget) -> list[tuple[Rung, float]]:
    """Time ever longer clients while the next one surely ends in time; the first one always.

    Args:
        ladder: in order of size.
        seconds_of: trains a client and gives the seconds.
        budget: what there is time for.
    """
    found: list[tuple[Rung, float]] = []
    for rung in ladder:
        if found and not budget.fits(GROWTH * found[-1][1]):
            break
        found.append((rung, seconds_of(rung)))
    return found


def fit(found: Sequence[tuple[Rung, float]]) -> Rate:
    """Seconds of a step from the two longest clients, and of a client from what the shortest took beyond its steps."""
    first, last = found[0], found[-1]
    if len(found) == 1:
        return Rate(0.0, last[1] / last[0].steps)
    before = found[-2]
    slope = (last[1] - before[1]) / (last[0].steps - before[0].steps)
    if slope <= 0:
        return Rate(0.0, last[1] / last[0].steps)
    return Rate(max(0.0, first[1] - slope * first[0].steps), slope)


def round_steps(dataset: FederatedDataset, config: TrialConfig, batch_norm: bool) -> tuple[int, int]:
    """Clients with data, and optimiser steps of all of them in one round."""
    training = config.training
    sizes = [len(rows) for rows in dataset.clients if len(rows)]
    bounds = (batch_bounds(size, training.batch_size, training.short_batch, batch_norm) for size in sizes)
    return len(sizes), training.local_epochs * sum(len(part) for part in bounds)
