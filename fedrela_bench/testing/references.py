"""References that the kit compares with: plain SGD, other processes, the meta device, messages counted."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedrela_bench.algorithms import Algorithm, Batch, ClientUpdate, LocalContext, ModelSize, Server
from fedrela_bench.config import TrialConfig
from fedrela_bench.data.federated import FederatedDataset
from fedrela_bench.simulation import Simulation
from fedrela_bench.simulation.blocks import Block
from fedrela_bench.simulation.crew import Alone
from fedrela_bench.simulation.local import Sums
from fedrela_bench.testing.cases import Case
from fedrela_bench.testing.states import begin, copied, floats, train, twin_of

Tensors = dict[str, Tensor]


def size_of(simulation: Simulation) -> ModelSize:
    """Floats of the simulation's model."""
    return simulation.model.size(simulation.model.net.backbone.feature_dim, simulation.dataset.num_classes)


def shared_params(simulation: Simulation) -> int:
    """Trained floats that are averaged."""
    return sum(piece.stop - piece.start for piece in simulation.model.param_pieces if piece.scope == "shared")


def first_slopes(simulation: Simulation) -> Iterator[tuple[Tensor, Tensor]]:
    """Loss and flat gradient of every batch of the next round, all taken where the round starts."""
    index, participants, total = begin(simulation)
    model, algorithm = simulation.model, simulation.algorithm
    for client in participants:
        simulation._trainer.load_client(client)
        context = simulation._trainer.context(client, index, total)
        algorithm.prepare(model.net.train(), context)
        for batch in _epoch(algorithm, context):
            gradient = model.flat_gradient().zero_()
            loss = algorithm.loss(model.net, batch, context)
            loss.backward()  # type: ignore[no-untyped-call]
            if algorithm.adjusts_gradient():
                with torch.no_grad():
                    algorithm.adjust_gradient(gradient, model.params, context)
            yield loss.detach(), gradient.clone()


# references ----------------------------------------------------------------------------------------------------------


def centralised(simulation: Simulation) -> tuple[Tensor, Tensor]:
    """Plain SGD over the only client's data, written without the solver: global parameters before and local ones after.

    One epoch in the order of the client's stream, the last short batch kept; gradient term, momentum and weight decay
    as in the algorithm's paper.
    """
    index, _, total = begin(simulation)
    model, algorithm, training = simulation.model, simulation.algorithm, simulation.config.training
    simulation._trainer.load_client(0)
    context, net = simulation._trainer.context(0, index, total), copy.deepcopy(model.net).train()
    algorithm.prepare(net, context)
    parameters = list(net.parameters())
    sgd = torch.optim.SGD(parameters, training.lr, training.momentum, weight_decay=training.weight_decay, fused=True)
    for batch in _epoch(algorithm, context):
        sgd.zero_grad()
        algorithm.loss(net, batch, context).backward()  # type: ignore[no-untyped-call]
        if algorithm.adjusts_gradient():
            _adjust(simulation, parameters, context)
        sgd.step()
    return simulation.state.server.params.clone(), _flat(simulation, parameters)


def _epoch(algorithm: Algorithm, context: LocalContext) -> Iterator[Batch]:
    device = context.images.device
    order = algorithm.epoch_rows(context, context.generator("shuffle"))
    draws = torch.from_numpy(algorithm.draw(context, context.generator("augment"), len(order))).to(device)
    rows = torch.from_numpy(order).to(device)
    inputs, labels = algorithm.inputs(context, context.images[rows], draws), context.labels[rows]
    for start in range(0, len(order), context.batch_size):
        span = slice(start, start + context.batch_size)
        cut = tuple(view[span] for view in inputs) if isinstance(inputs, tuple) else inputs[span]
        yield Batch(cut, labels[span], rows[span])


def _flat(simulation: Simulation, tensors: Sequence[Tensor]) -> Tensor:
    flat = torch.zeros_like(simulation.model.params)
    for piece, tensor in zip(simulation.model.param_pieces, tensors, strict=True):
        piece.view(flat).copy_(tensor.detach())
    return flat


def _adjust(simulation: Simulation, parameters: Sequence[Tensor], context: LocalContext) -> None:
    slopes = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    gradient = _flat(simulation, slopes)
    with torch.no_grad():
        simulation.algorithm.adjust_gradient(gradient, _flat(simulation, parameters), context)
    for piece, parameter in zip(simulation.model.param_pieces, parameters, strict=True):
        parameter.grad = piece.view(gradient).clone()


# many processes, other devices ---------------------------------------------------------------------------------------


class Apart(Alone):
    """A crew whose every piece of work is done in a simulation of its own; results, state and messages are pickled."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation._trainer)
        self.simulation = simulation

    def probe(self, clients: Sequence[int], index: int, total: int) -> dict[int, Tensors]:
        """Each client's message."""
        return {client: self._away([client], "probe", client, index, total) for client in clients}

    def train(self, blocks: Sequence[Block], index: int, total: int) -> Iterator[Sums]:
        """Each block's sums."""
        for block in blocks:
            yield self._away(block, "train", block, index, total)

    def posteriors(self, clients: Sequence[int], index: int, refresh: int) -> Iterator[tuple[int, Tensor]]:
        """Each client's posterior."""
        for client in clients:
            yield client, self._away([client], "posterior", client, index, refresh)

    def _away(self, clients: Iterable[int], work: str, *arguments: Any) -> Any:
        twin, home = twin_of(self.simulation), self.simulation.state
        result = copied(getattr(twin._trainer, work)(*arguments))
        for client in clients:
            for mine, theirs in ((home.client_states, twin.state.client_states), (home.private, twin.state.private)):
                if client in theirs:
                    mine[client] = copied(theirs[client])
        return result


def round_on_meta(config: TrialConfig, data: FederatedDataset, host_inputs: bool) -> Tensor:
    """Local training of two clients and the server's step on the meta device, which holds no values.

    Reading a value there raises, and so does mixing its tensors with those of another device.
    """
    real = Simulation(config, data)
    real.run_round()
    index, participants, total = begin(real)
    there = Simulation(config, data, "meta")
    model, algorithm, server = there.model, there.algorithm, there.state.server
    server.state, server.round = _to_meta(real.state.server.state), index
    sums = algorithm.new_sums(server)
    for client in participants[:2]:
        known = real._trainer.context(client, index, total)
        context = _context_on_meta(known, there)
        algorithm.prepare(model.net.train(), context)
        for batch in _on_meta(_epoch(algorithm, known)) if host_inputs else _epoch(algorithm, context):
            gradient = model.flat_gradient().zero_()
            algorithm.loss(model.net, batch, context).backward()  # type: ignore[no-untyped-call]
            if algorithm.adjusts_gradient():
                with torch.no_grad():
                    algorithm.adjust_gradient(gradient, model.params, context)
        with torch.no_grad():
            update = ClientUpdate(context, model.params, model.buffers, 2)
            algorithm.finish(update)
            algorithm.accumulate(sums, update)
    with torch.no_grad():
        return algorithm.server_step(sums, server, participants[:2])


def _context_on_meta(known: LocalContext, there: Simulation) -> LocalContext:
    return dataclasses.replace(
        known,
        images=there.data.images[there.data.rows[known.client]],
        labels=known.labels.to("meta"),
        label_counts=known.label_counts.to("meta"),
        server=there.state.server,
        state=_to_meta(known.state),
        frozen=there.model.frozen,
        scratch={},
    )


def _on_meta(batches: Iterator[Batch]) -> Iterator[Batch]:
    for batch in batches:
        views = batch.inputs if isinstance(batch.inputs, tuple) else (batch.inputs,)
        moved = tuple(view.to("meta") for view in views)
        inputs = moved if isinstance(batch.inputs, tuple) else moved[0]
        yield Batch(inputs, batch.labels.to("meta"), batch.rows.to("meta"))


def _to_meta(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.to("meta") for name, tensor in tensors.items()}


# messages -------------------------------------------------------------------------------------------------------------


class Recorded(dict[str, Tensor]):
    """A dictionary that notes what is read inside hooks that `watching` wraps."""

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        super().__init__(values)
        self.read: set[str] = set()
        self.depth = 0

    def __getitem__(self, key: str) -> Tensor:
        if self.depth:
            self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """As of a dictionary, noted."""
        return self[key] if key in self else default  # noqa: SIM401

    def watching(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        """The hook, during which reads are noted."""

        def call(*arguments: Any) -> Any:
            self.depth += 1
            try:
                return hook(*arguments)
            finally:
                self.depth -= 1

        return call


ON_A_CLIENT = ("prepare", "epoch_rows", "draw", "inputs", "loss", "criterion", "adjust_gradient", "finish", "probe")
"""Hooks that run where a client is; `accumulate` also stands for what the server does with an upload."""


def _noted(messages: dict[int, Tensors], algorithm: Algorithm, server: Server, given: Mapping[int, Tensors]) -> None:
    messages.update(given)
    algorithm.receive(server, given)


def measured_communication(simulation: Simulation, case: Case) -> tuple[int, int]:
    """Floats (down, up) of one client in the next round: what its hooks read of the server, and what it adds to it."""
    size, weights, server = size_of(simulation), shared_params(simulation), simulation.state.server
    server.state = recorded = Recorded(server.state)
    watched, trainer = copy.copy(simulation.algorithm), simulation._trainer
    messages: dict[int, Tensors] = {}
    for hook in ON_A_CLIENT:
        setattr(watched, hook, recorded.watching(getattr(simulation.algorithm, hook)))
    watched.receive = partial(_noted, messages, simulation.algorithm)  # type: ignore[method-assign]
    trainer.algorithm = trainer.solver.algorithm = watched
    index, participants, total = begin(simulation)
    sums = train(simulation, participants[0], index, total).sums

    def count(name: str, tensor: Tensor) -> int:
        whole = weights if tensor.shape == server.params.shape else tensor.numel()
        return 1 if name in case.own_entry else whole

    down = size.shared + sum(count(name, server.state[name]) for name in recorded.read if name not in case.free)
    sent = sum(count(name, tensor) for name, tensor in sums.items() if name not in case.derived)
    return down, size.shared - weights + sent + floats(messages.get(participants[0], {}))
