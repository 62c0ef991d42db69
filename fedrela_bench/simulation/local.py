"""What is done with clients one after the other on one resident model, in the main process or in a worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedrela_bench.algorithms import Algorithm, ClientUpdate, LocalContext, Server
from fedrela_bench.config import TrialConfig
from fedrela_bench.errors import ConfigError
from fedrela_bench.simulation.blocks import Block
from fedrela_bench.simulation.evaluate import Evaluator
from fedrela_bench.simulation.flat import FlatModel
from fedrela_bench.simulation.kept import tensor_faults
from fedrela_bench.simulation.mapped import client_images
from fedrela_bench.simulation.posterior import client_posterior
from fedrela_bench.simulation.privacy import clip_update
from fedrela_bench.simulation.private_steps import PrivateSolver
from fedrela_bench.simulation.setup import Resident
from fedrela_bench.simulation.solver import LocalSolver
from fedrela_bench.simulation.state import RunState

Tensors = dict[str, Tensor]


@dataclass
class Sums:
    """What a round's clients upload, added up."""

    uploads: Tensors
    """The algorithm's own sums."""
    buffers: Tensor
    """(B,) running statistics, weighted by samples."""
    counters: list[Tensor]
    """Integer buffers: the largest count."""
    loss: Tensor
    """Scalar: batch losses times batch sizes."""
    seen: int
    """Samples that were trained on, once per epoch."""

    @classmethod
    def empty(cls, algorithm: Algorithm, server: Server, counters: Sequence[Tensor]) -> Sums:
        """Nothing uploaded yet; counters start at the global model's."""
        loss = torch.zeros((), dtype=torch.float64, device=server.params.device)
        kept = [counter.clone() for counter in counters]
        return cls(algorithm.new_sums(server), torch.zeros_like(server.buffers), kept, loss, 0)

    @torch.no_grad()
    def add(self, other: Sums) -> None:
        """Add another block's sums in place."""
        for name, value in other.uploads.items():
            self.uploads[name].add_(value)
        self.buffers.add_(other.buffers)
        for kept, value in zip(self.counters, other.counters, strict=True):
            torch.maximum(kept, value, out=kept)
        self.loss.add_(other.loss)
        self.seen += other.seen


class LocalWork:
    """Contexts, probes, local training and scoring on the resident model; reads the server, changes client state.

    Args:
        config: the trial.
        data: resident data.
        model: resident model, scratch space between calls.
        algorithm: the base algorithm.
        state: the server's side is read, the clients' states are written.
    """

    def __init__(
        self, config: TrialConfig, data: Resident, model: FlatModel, algorithm: Algorithm, state: RunState
    ) -> None:
        self.config = config
        self.data = data
        self.model = model
        self.algorithm = algorithm
        self.state = state
        self.solver = (
            PrivateSolver(model, algorithm, config.training, config.privacy)
            if config.privacy.by_sample
            else LocalSolver(model, algorithm, config.training)
        )
        self.evaluator = Evaluator(data.test_images, data.pipeline, config.training.amp)
        self._first_private = model.private()

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
        """The client in round `index`; its weight is its share of `total` samples, or of as many clients."""
        rows, training = self.data.rows[client], self.config.training
        labels = self.state.labels[rows]
        counted = labels if self.config.relabel.label_stats == "current" else self.data.original[rows]
        context = LocalContext(
            client=client,
            round=index,
            seed=self.config.seed,
            weight=(1 if self.config.privacy.by_client else len(rows)) / total,
            images=client_images(self.data.images, rows),
            labels=labels,
            label_counts=class_counts(counted, self.algorithm.num_classes),
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

    def probe(self, client: int, index: int, total: int) -> Tensors:
        """The client's message about the global model before training."""
        self.load_client(client)
        self.model.net.eval()
        context = self.context(client, index, total)
        message = self.algorithm.probe(self.model.net, context)
        self._keep_state(context)
        return message

    def train(self, block: Block, index: int, total: int) -> Sums:
        """Train the block's clients in order and add up what they send."""
        sums = Sums.empty(self.algorithm, self.state.server, self.state.counters)
        for client in block:
            context = self.context(client, index, total)
            self.load_client(client)
            result = self.solver.train(context)
            sums.loss += result.loss_sum
            sums.seen += result.samples_seen
            self._collect(context, result.steps, sums)
        return sums

    def posterior(self, client: int, index: int, refresh: int) -> Tensor:
        """(n_k, C) float64 posterior of the client's samples at the global model."""
        self.load_client(client)
        context = self.context(client, index, total=len(self.data.rows[client]))
        return client_posterior(self.model, self.algorithm, context, self.config, refresh)

    def predict(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Predicted classes of test images `start` (a multiple of the batch size) to `stop`, by score."""
        self.load_global()
        return self.evaluator.predict(self.model, self.algorithm, self.state.server, start, stop)

    def _keep_state(self, context: LocalContext) -> None:
        if context.state:
            state = {name: self._own(name, value) for name, value in context.state.items()}
            self.state.client_states[context.client] = context.state = state

    def _own(self, name: str, value: object) -> Tensor:
        """The value, copied where it is a view of the resident model, which the next client overwrites."""
        faults = tensor_faults(self.algorithm.name, "context.state", {name: value})
        if faults or not isinstance(value, Tensor):
            raise ConfigError(faults)
        live = (self.model.params, self.model.buffers)
        shared = any(value.untyped_storage().data_ptr() == part.untyped_storage().data_ptr() for part in live)
        return value.clone() if shared and value.numel() else value

    def _collect(self, context: LocalContext, steps: int, sums: Sums) -> None:
        with torch.no_grad():
            update = ClientUpdate(context, self.model.params, self.model.buffers, steps)
            self.algorithm.finish(update)
            if self.config.privacy.by_client:
                clip_update(self.model, self.state.server.params, self.config.privacy)
            self.algorithm.accumulate(sums.uploads, update)
            sums.buffers.add_(self.model.buffers, alpha=context.weight)
            for kept, live in zip(sums.counters, self.model.counters, strict=True):
                torch.maximum(kept, live, out=kept)
        if self._first_private:
            self.state.private[context.client] = self.model.private()
        self._keep_state(context)


def class_counts(labels: Tensor, num_classes: int) -> Tensor:
    """(C,) samples per class, counted on the labels' device without the host waiting for it."""
    if labels.device.type == "cpu":
        return torch.bincount(labels, minlength=num_classes)
    counts = torch.zeros(num_classes, dtype=torch.int64, device=labels.device)
    return counts.scatter_add_(0, labels, torch.ones_like(labels))
