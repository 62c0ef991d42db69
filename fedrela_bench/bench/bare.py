"""A round of a simulation without the simulation: its steps and its evaluation on batches that are ready."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch

from fedrela_bench.algorithms.base import Batch, LocalContext
from fedrela_bench.config import TrialConfig
from fedrela_bench.data import FederatedDataset
from fedrela_bench.simulation import Simulation
from fedrela_bench.simulation.batches import batch_bounds
from fedrela_bench.simulation.precision import autocast
from fedrela_bench.simulation.training import RoundTrainer

PARTS = ("forward", "backward", "optimiser", "evaluation")
POOL_BYTES = 64 << 20
"""Ready inputs beyond this are used again."""


class BareLoop:
    """Forward, backward, optimiser step and evaluation in the sizes of one round, on a model like the simulator's.

    What a round of `Simulation` takes beyond this is its overhead: gathering, augmentation, copies of the global model,
    sums, metrics, and the loop itself.

    Args:
        config: the trial; full participation.
        dataset: its images.
        device: such as ``cpu``.
        evaluated: whether a round evaluates.
    """

    def __init__(self, config: TrialConfig, dataset: FederatedDataset, device: str, evaluated: bool) -> None:
        simulation = Simulation(config, dataset, device)
        self.model, self.algorithm, self.server = simulation.model, simulation.algorithm, simulation.state.server
        self.amp, self.evaluated = config.training.amp, evaluated
        trainer = RoundTrainer(config, simulation.data, self.model, self.algorithm, simulation.state)
        self.descent, self.evaluator = trainer.solver.descent, trainer.evaluator
        self.contexts = [trainer.context(client, 0, 1) for client in trainer.participants(0)]
        self.sizes = [_sizes(context, config, self.model.has_batch_norm) for context in self.contexts]
        self.pool = _pool(trainer, self.contexts)
        self.seconds = dict.fromkeys(PARTS, 0.0)

    def run_round(self) -> None:
        """One round; adds the cores' seconds of every part to `seconds`, which mean nothing on a GPU."""
        place = 0
        for context, sizes in zip(self.contexts, self.sizes, strict=True):
            self.descent.start()
            self.model.net.train()
            for size in sizes:
                place = 0 if place + size > len(self.pool) else place
                self._step(_part(self.pool, place, size), context)
                place += size
        if self.evaluated:
            started = time.process_time()
            self.evaluator.predict(self.model, self.algorithm, self.server)
            self.seconds["evaluation"] += time.process_time() - started

    def _step(self, batch: Batch, context: LocalContext) -> None:
        begun = time.process_time()
        self.descent.drop_gradients()
        with autocast(self.amp, self.model.params.device):
            loss = self.algorithm.loss(self.model.net, batch, context)
        forward = time.process_time()
        loss.backward()  # type: ignore[no-untyped-call]
        backward = time.process_time()
        self.descent.step(context.lr)
        self.seconds["forward"] += forward - begun
        self.seconds["backward"] += backward - forward
        self.seconds["optimiser"] += time.process_time() - backward


def _sizes(context: LocalContext, config: TrialConfig, batch_norm: bool) -> list[int]:
    """Sizes of a client's batches over all its epochs."""
    bounds = batch_bounds(context.samples, context.batch_size, config.training.short_batch, batch_norm)
    return [stop - start for start, stop in bounds] * context.local_epochs


def _pool(trainer: RoundTrainer, contexts: list[LocalContext]) -> Batch:
    """Inputs of the first clients, made as in training, at least one batch and at most `POOL_BYTES` of them."""
    image = trainer.data.images[0].numel() * trainer.model.params.element_size()
    most = max(2 * contexts[0].batch_size, POOL_BYTES // image)
    context = contexts[0]
    rows = torch.cat(list(_first(trainer, contexts, most)))
    draws = torch.from_numpy(trainer.algorithm.draw(context, context.generator("augment"), len(rows))).to(rows.device)
    inputs = trainer.algorithm.inputs(context, trainer.data.images[rows], draws)
    return Batch(inputs, trainer.state.labels[rows], torch.arange(len(rows), device=rows.device))


def _first(trainer: RoundTrainer, contexts: list[LocalContext], most: int) -> Iterator[torch.Tensor]:
    for context in contexts:
        rows = trainer.data.rows[context.client][:most]
        most -= len(rows)
        yield rows


def _part(pool: Batch, start: int, size: int) -> Batch:
    span = slice(start, start + size)
    inputs = tuple(view[span] for view in pool.inputs) if isinstance(pool.inputs, tuple) else pool.inputs[span]
    return Batch(inputs, pool.labels[span], pool.rows[span])
