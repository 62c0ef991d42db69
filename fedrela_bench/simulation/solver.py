"""Local training. `LocalSolver.train` is the one interface between the loop and how clients are stepped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedrela_bench.algorithms.base import Algorithm, Batch, LocalContext
from fedrela_bench.config import TrainingConfig
from fedrela_bench.simulation.batches import batch_bounds
from fedrela_bench.simulation.descent import HeavyBall
from fedrela_bench.simulation.devices import to_device
from fedrela_bench.simulation.flat import FlatModel
from fedrela_bench.simulation.precision import autocast

CHUNK_BYTES = 4 << 20
"""Inputs prepared at once; larger pieces fall out of the cache, smaller ones cost calls."""


@dataclass(frozen=True)
class LocalResult:
    """What one client's training yields besides the live parameters."""

    steps: int
    loss_sum: Tensor
    """Scalar: batch losses times batch sizes, summed over steps."""
    samples_seen: int


class LocalSolver:
    """Steps one client at a time on the resident model.

    Args:
        model: the resident flat model.
        algorithm: supplies loss and gradient terms.
        training: local hyperparameters.
    """

    def __init__(self, model: FlatModel, algorithm: Algorithm, training: TrainingConfig) -> None:
        self.model = model
        self.algorithm = algorithm
        self.training = training
        self.batch_norm = model.has_batch_norm
        self.adjusts = algorithm.adjusts_gradient()
        self.descent = HeavyBall(model, training.momentum, training.weight_decay)

    def train(self, context: LocalContext) -> LocalResult:
        """Run the client's local epochs from the model's live values, in place.

        Momentum starts empty. Shuffling and augmentation are keyed by (seed, purpose, round, client).
        """
        self._start(context)
        losses: list[Tensor] = []
        sizes: list[int] = []
        for batch in self._batches(context):
            losses.append(self._step(batch, context))
            sizes.append(len(batch))
        return LocalResult(len(sizes), _weighted_sum(losses, sizes), sum(sizes))

    def _start(self, context: LocalContext) -> None:
        self.descent.start()
        self.model.net.train()
        if self.batch_norm and context.samples == 1 and self.training.short_batch == "join":
            _batch_norm_eval(self.model.net)
        self.algorithm.prepare(self.model.net, context)

    def _step(self, batch: Batch, context: LocalContext) -> Tensor:
        gradient = self.model.flat_gradient().zero_() if self.adjusts else None
        if gradient is None:
            self.descent.drop_gradients()
        with autocast(self.training.amp, self.model.params.device):
            loss = self.algorithm.loss(self.model.net, batch, context)
        loss.backward()  # type: ignore[no-untyped-call]
        if gradient is not None:
            with torch.no_grad():
                self.algorithm.adjust_gradient(gradient, self.model.params, context)
        self.descent.step(context.lr)
        return loss.detach()

    def _batches(self, context: LocalContext) -> Iterator[Batch]:
        shuffle = context.generator("shuffle")
        augment = context.generator("augment") if self._draws(context) else None
        device = context.images.device
        for _ in range(context.local_epochs):
            order = self._order(context, shuffle)
            drawn = np.empty((len(order), 0), np.int64) if augment is None else self._draw(context, augment, order)
            draws, rows = to_device(torch.from_numpy(drawn), device), to_device(torch.from_numpy(order), device)
            bounds = batch_bounds(len(order), context.batch_size, self.training.short_batch, self.batch_norm)
            for group in _groups(bounds, _per_chunk(context.images)):
                yield from self._cut(context, rows, draws, group)

    def _draws(self, context: LocalContext) -> bool:
        return context.pipeline.augment != "none" or type(self.algorithm).draw is not Algorithm.draw

    def _draw(self, context: LocalContext, rng: np.random.Generator, order: np.ndarray) -> np.ndarray:
        return self.algorithm.draw(context, rng, len(order))

    def _order(self, context: LocalContext, rng: np.random.Generator) -> np.ndarray:
        return self.algorithm.epoch_rows(context, rng) if self.training.shuffle else np.arange(context.samples)

    def _cut(
        self, context: LocalContext, rows: Tensor, draws: Tensor, bounds: list[tuple[int, int]]
    ) -> Iterator[Batch]:
        part = rows[bounds[0][0] : bounds[-1][1]]
        inputs = self.algorithm.inputs(context, context.images[part], draws[bounds[0][0] : bounds[-1][1]])
        sizes = [stop - start for start, stop in bounds]
        views = inputs if isinstance(inputs, tuple) else (inputs,)
        pieces: Iterable[Any] = zip(*(torch.split(view, sizes) for view in views), strict=True)
        if not isinstance(inputs, tuple):
            pieces = (piece for (piece,) in pieces)
        return map(Batch, pieces, torch.split(context.labels[part], sizes), torch.split(part, sizes))


def _weighted_sum(losses: list[Tensor], sizes: list[int]) -> Tensor:
    if not losses or losses[0].device.type == "cpu":
        total = sum(float(loss) * size for loss, size in zip(losses, sizes, strict=True))
        return torch.tensor(total, dtype=torch.float64)
    stacked = torch.stack(losses).double()
    return torch.dot(stacked, to_device(torch.tensor(sizes, dtype=torch.float64), stacked.device))


def _per_chunk(images: Tensor) -> int:
    bytes_each = max(1, images.stride(0) * 4)
    return max(1, CHUNK_BYTES // bytes_each)


def _groups(bounds: list[tuple[int, int]], samples: int) -> Iterator[list[tuple[int, int]]]:
    group: list[tuple[int, int]] = []
    for bound in bounds:
        if group and bound[1] - group[0][0] > samples:
            yield group
            group = []
        group.append(bound)
    if group:
        yield group


def _batch_norm_eval(net: nn.Module) -> None:
    for module in net.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()
