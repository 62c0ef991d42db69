"""One round of probing, local training and aggregation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from fedrela_bench.simulation.blocks import fixed_blocks
from fedrela_bench.simulation.crew import Alone, Crew
from fedrela_bench.simulation.local import LocalWork, Sums
from fedrela_bench.simulation.participation import participants_of
from fedrela_bench.simulation.privacy import client_noise


class RoundTrainer(LocalWork):
    """Runs rounds; what lasts is in `state`. Who works on the clients is `crew`: this process unless replaced."""

    crew: Crew | None = None

    @property
    def hands(self) -> Crew:
        """The crew, or this process alone."""
        return self.crew or Alone(self)

    def participants(self, index: int) -> list[int]:
        """Clients drawn for round `index` (from 0), uniformly without replacement; those without data are left out."""
        return participants_of(self.config, self.state.server.client_sizes, index)

    def with_data(self, clients: Sequence[int]) -> list[int]:
        """Those of the clients that have samples."""
        return [client for client in clients if self.state.server.client_sizes[client] > 0]

    def run(self, index: int, participants: Sequence[int]) -> float | None:
        """Train and aggregate round `index`.

        Sums are taken over fixed blocks of clients, and of blocks in a fixed order, so that who computes them changes
        no bit.

        Returns:
            Mean batch loss over the participants' samples; None when no sample was trained on.
        """
        server = self.state.server
        server.round = index
        if not participants:
            return None
        # What one client can change in a mean must not depend on how many samples it has.
        by_client = self.config.privacy.by_client
        total = len(participants) if by_client else int(server.client_sizes[list(participants)].sum())
        self._probe(index, participants, total)
        blocks = fixed_blocks(participants, server.client_sizes)
        sums = _added(self.hands.train(blocks, index, total))
        self._aggregate(sums, participants)
        return float(sums.loss) / sums.seen if sums.seen else None

    def _probe(self, index: int, participants: Sequence[int], total: int) -> None:
        server = self.state.server
        if self.data.server is not None:
            self.load_global()
            self.model.net.eval()
            self.algorithm.server_probe(self.model.net, server, self.data.server)
        clients = self.with_data(self.algorithm.probe_clients(server, participants))
        if clients:
            self.algorithm.receive(server, self.hands.probe(clients, index, total))

    def _aggregate(self, sums: Sums, participants: Sequence[int]) -> None:
        server = self.state.server
        with torch.no_grad():
            params = self.algorithm.server_step(sums.uploads, server, participants)
            if self.config.privacy.by_client:
                params = params + client_noise(self.config, params, len(participants), server.round)
            self.model.keep_unshared(params, sums.buffers, server.params, server.buffers)
        server.params, server.buffers, self.state.counters = params, sums.buffers, sums.counters


def _added(parts: Iterator[Sums]) -> Sums:
    total = next(parts)
    for part in parts:
        total.add(part)
    return total
