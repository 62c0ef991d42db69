"""One round of probing, local training and aggregation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from fedrela_bench.rng import generator
from fedrela_bench.simulation.blocks import fixed_blocks
from fedrela_bench.simulation.crew import Alone, Crew
from fedrela_bench.simulation.local import LocalWork, Sums


class RoundTrainer(LocalWork):
    """Runs rounds; what lasts is in `state`. Who works on the clients is `crew`: this process unless replaced."""

    crew: Crew | None = None

    @property
    def hands(self) -> Crew:
        """The crew, or this process alone."""
        return self.crew or Alone(self)

    def participants(self, index: int) -> list[int]:
        """Clients drawn for round `index` (from 0), uniformly without replacement; those without data are left out."""
        federation = self.config.federation
        count = max(1, int(federation.participation * federation.clients))
        if count >= federation.clients:
            chosen: Sequence[int] = range(federation.clients)
        else:
            rng = generator(self.config.seed, "participants", index)
            chosen = sorted(int(client) for client in rng.choice(federation.clients, count, replace=False))
        return self.with_data(chosen)

    def with_data(self, clients: Sequence[int]) -> list[int]:
        """Those of the clients that have samples."""
        return [client for client in clients if self.state.server.client_sizes[client] > 0]

    def run(self, index: int, participants: Sequence[int]) -> float | None:
        """Train and aggregate round `index`.

        Sums are taken over fixed blocks of clients, and of blocks in a fixed order, so that who computes them changes
        no bit.

        Returns:
            Mean batch loss over the participants' samples; None when nobody had data.
        """
        server = self.state.server
        server.round = index
        if not participants:
            return None
        total = int(server.client_sizes[list(participants)].sum())
        self._probe(index, participants, total)
        blocks = fixed_blocks(participants, server.client_sizes)
        sums = _added(self.hands.train(blocks, index, total))
        self._aggregate(sums, participants)
        return float(sums.loss) / sums.seen

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
            self.model.keep_unshared(params, sums.buffers, server.params, server.buffers)
        server.params, server.buffers, self.state.counters = params, sums.buffers, sums.counters


def _added(parts: Iterator[Sums]) -> Sums:
    total = next(parts)
    for part in parts:
        total.add(part)
    return total
