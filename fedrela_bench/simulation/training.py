"""One round of probing, local training and aggregation on the resident model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedrela_bench.algorithms import Algorithm, ClientUpdate, LocalContext
from fedrela_bench.config import TrialConfig
from fedrela_bench.rng import generator
from fedrela_bench.simulation.flat import FlatModel
from fedrela_bench.simulation.setup import Resident
from fedrela_bench.simulation.solver import LocalSolver
from fedrela_bench.simulation.state import RunState


class RoundTrainer:
    """Runs rounds; what lasts is in `state`.

    Args:
        config: the trial.
        data: resident data.
        model: resident model, scratch space between calls.
        algorithm: the base algorithm.
        state: read and changed.
    """

    def __init__(
        self, config: TrialConfig, data: Resident, model: FlatModel, algorithm: Algorithm, state: RunState
    ) -> None:
        self.config = config
        self.data = data
        self.model = model
        self.algorithm = algorithm
        self.state = state
        self.solver = LocalSolver(model, algorithm, config.training)
        self._first_private = model.private()

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

    def learning_rate(self, index: int) -> float:
        """The local learning rate of round `index`."""
        scale = self.config.relabel.post_relabel_lr_scale if index >= self.config.relabel_round else 1.0
        return self.config.training.lr * scale

    def load_global(self) -> None:
        """Put the global model into the resident one."""
        self.model.load(self.state.server.params, self.state.server.buffers)
        for live, value in zip(self.model.counters, self.state.counters, strict=True):
            live.copy_(value)

    def load_client(self, client: int) -> None:
        """Put the global model and the client's private part into the resident one."""
        self.load_global()
        if self._first_private:
            self.model.load_private(self.state.private.get(client, self._first_private))

    def context(self, client: int, index: int, total: int) -> LocalContext:
        """The client in round `index`; its weight is its share of `total` samples."""
        rows, training = self.data.rows[client], self.config.training
        labels = self.state.labels[rows]
        counted = labels if self.config.relabel.label_stats == "current" else self.data.original[rows]
        context = LocalContext(
            client=client,
            round=index,
            seed=self.config.seed,
            weight=len(rows) / total,
            images=self.data.images[rows],
            labels=labels,
            label_counts=torch.bincount(counted, minlength=self.algorithm.num_classes),
            server=self.state.server,
            state={},
            lr=self.learning_rate(index),
            momentum=training.momentum,
            local_epochs=training.local_epochs,
            batch_size=training.batch_size,
            pipeline=self.data.pipeline,
            frozen=self.model.frozen,
        )
        known = self.state.client_states.get(client)
        context.state = self.algorithm.initial_client_state(context) if known is None else known
        return context

    def run(self, index: int, participants: Sequence[int]) -> float | None:
        """Train and aggregate round `index`.

        Returns:
            Mean batch loss over the participants' samples; None when nobody had data.
        """
        server = self.state.server
        server.round = index
        if not participants:
            return None
        total = int(server.client_sizes[list(participants)].sum())
        self._probe(index, participants, total)
        sums, buffers = self.algorithm.new_sums(server), torch.zeros_like(server.buffers)
        counters = [counter.clone() for counter in self.state.counters]
        loss, seen = torch.zeros((), dtype=torch.float64, device=server.params.device), 0
        for client in participants:
            context = self.context(client, index, total)
            self.load_client(client)
            result = self.solver.train(context)
            self._collect(context, result.steps, sums, buffers, counters)
            loss += result.loss_sum
            seen += result.samples_seen
        self._aggregate(sums, buffers, counters, participants)
        return float(loss) / seen

    def _probe(self, index: int, participants: Sequence[int], total: int) -> None:
        messages: dict[int, dict[str, Tensor]] = {}
        for client in self.with_data(self.algorithm.probe_clients(self.state.server, participants)):
            self.load_client(client)
            self.model.net.eval()
            context = self.context(client, index, total)
            messages[client] = self.algorithm.probe(self.model.net, context)
            self._keep_state(context)
        if messages:
            self.algorithm.receive(self.state.server, messages)

    def _keep_state(self, context: LocalContext) -> None:
        if context.state:
            self.state.client_states[context.client] = context.state

    def _collect(
        self, context: LocalContext, steps: int, sums: dict[str, Tensor], buffers: Tensor, counters: list[Tensor]
    ) -> None:
        with torch.no_grad():
            update = ClientUpdate(context, self.model.params, self.model.buffers, steps)
            self.algorithm.finish(update)
            self.algorithm.accumulate(sums, update)
            buffers.add_(self.model.buffers, alpha=context.weight)
            for kept, live in zip(counters, self.model.counters, strict=True):
                torch.maximum(kept, live, out=kept)
        if self._first_private:
            self.state.private[context.client] = self.model.private()
        self._keep_state(context)

    def _aggregate(
        self, sums: dict[str, Tensor], buffers: Tensor, counters: list[Tensor], participants: Sequence[int]
    ) -> None:
        server = self.state.server
        with torch.no_grad():
            params = self.algorithm.server_step(sums, server, participants)
            self.model.keep_unshared(params, buffers, server.params, server.buffers)
        server.params, server.buffers, self.state.counters = params, buffers, counters
