"""Who does the work on clients: this process alone, or (`workers.py`) several processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from torch import Tensor

from fedrela_bench.simulation.blocks import Block
from fedrela_bench.simulation.local import LocalWork, Sums, Tensors


class Crew(Protocol):
    """Works on clients at the state between two server steps; results come in a fixed order."""

    def probe(self, clients: Sequence[int], index: int, total: int) -> dict[int, Tensors]:
        """Each client's message, in the order given."""

    def train(self, blocks: Sequence[Block], index: int, total: int) -> Iterator[Sums]:
        """Each block's sums, in the order given."""

    def posteriors(self, clients: Sequence[int], index: int, refresh: int) -> Iterator[tuple[int, Tensor]]:
        """Each client and its (n_k, C) posterior, in the order given."""

    def predict(self) -> dict[str, np.ndarray]:
        """(M,) predicted classes of all test images, by the name of the score."""

    def close(self) -> None:
        """Let go of whatever is held."""


class Alone:
    """All work in this process, one client after the other."""

    def __init__(self, work: LocalWork) -> None:
        self.work = work

    def probe(self, clients: Sequence[int], index: int, total: int) -> dict[int, Tensors]:
        """See `Crew`."""
        return {client: self.work.probe(client, index, total) for client in clients}

    def train(self, blocks: Sequence[Block], index: int, total: int) -> Iterator[Sums]:
        """See `Crew`."""
        return (self.work.train(block, index, total) for block in blocks)

    def posteriors(self, clients: Sequence[int], index: int, refresh: int) -> Iterator[tuple[int, Tensor]]:
        """See `Crew`."""
        return ((client, self.work.posterior(client, index, refresh)) for client in clients)

    def predict(self) -> dict[str, np.ndarray]:
        """See `Crew`."""
        return self.work.predict(0, len(self.work.data.test_images))

    def close(self) -> None:
        """Nothing is held."""
