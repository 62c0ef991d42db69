"""DP-SGD: steps along a sum of clipped gradients per sample, with Gaussian noise.

Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, Algorithm 1. Momentum, weight decay and gradient
terms such as FedProx's pull come after the noise: they read no data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from fedrela_bench.algorithms.base import Algorithm, Batch, LocalContext
from fedrela_bench.config import PrivacyConfig, TrainingConfig
from fedrela_bench.models.conv import Conv2d
from fedrela_bench.simulation.devices import to_device
from fedrela_bench.simulation.flat import FlatModel
from fedrela_bench.simulation.privacy import FEW, normals
from fedrela_bench.simulation.solver import LocalResult, LocalSolver

CHUNK_FLOATS = 1 << 24
"""Gradient values per sample that are held at once."""


class _Loss(nn.Module):
    """An algorithm's loss as a forward pass, so that the network's parameters can be replaced."""

    def __init__(self, net: nn.Module, loss: Callable[[Any, Batch, LocalContext], Tensor]) -> None:
        super().__init__()
        self.net = net
        self.loss = loss

    def forward(self, batch: Batch, context: LocalContext) -> Tensor:
        return self.loss(self.net, batch, context)


class SampleGradients:
    """Gradients per sample of an algorithm's loss, as rows in the order of the flat model.

    Args:
        model: whose live values they are taken at.
        algorithm: supplies the loss; its batch loss is the mean of losses per sample.
    """

    def __init__(self, model: FlatModel, algorithm: Algorithm) -> None:
        self.model = model
        self._loss = _Loss(model.net, algorithm.loss)
        for module in model.net.modules():
            if isinstance(module, Conv2d):
                module.patches = False

    def __call__(self, batch: Batch, context: LocalContext) -> tuple[Tensor, Tensor]:
        """(b, P) gradients and (b,) losses; b at least 1."""

        def of_one(flat: Tensor, inputs: Tensor, label: Tensor, row: Tensor) -> Tensor:
            values = {f"net.{piece.name}": piece.view(flat) for piece in self.model.param_pieces}
            one = Batch(inputs[None], label[None], row[None])
            loss: Tensor = functional_call(self._loss, values, (one, context))
            return loss

        each = vmap(grad_and_value(of_one), in_dims=(None, 0, 0, 0))
        gradients, losses = each(self.model.params, batch.inputs, batch.labels, batch.rows)
        return gradients, losses

    def clipped_sum(self, batch: Batch, context: LocalContext, clip: float) -> tuple[Tensor, Tensor]:
        """(P,) sum of gradients, each scaled to a 2-norm of at most `clip`, and the scalar sum of losses."""
        total, loss = torch.zeros_like(self.model.params), self.model.params.new_zeros(())
        size = max(1, CHUNK_FLOATS // max(1, total.numel()))
        for start in range(0, len(batch), size):
            part = slice(start, start + size)
            piece = Batch(batch.inputs[part], batch.labels[part], batch.rows[part])
            gradients, losses = self(piece, context)
            total += clip_factors(gradients, clip) @ gradients
            loss += losses.sum()
        return total, loss


def clip_factors(gradients: Tensor, clip: float) -> Tensor:
    """(b,) factors at most 1 that bring the rows of (b, P) to 2-norms of at most `clip`."""
    factors: Tensor = clip / gradients.norm(dim=1).clamp(min=FEW)
    return factors.clamp(max=1)


class PrivateSolver(LocalSolver):
    """Local training by DP-SGD.

    Args:
        model: the resident flat model, without batch norm.
        algorithm: supplies loss and gradient terms.
        training: local hyperparameters; `batch_size` is the expected number of samples in a step.
        privacy: clip, noise and sampling.
    """

    def __init__(
        self, model: FlatModel, algorithm: Algorithm, training: TrainingConfig, privacy: PrivacyConfig
    ) -> None:
        super().__init__(model, algorithm, training)
        self.privacy = privacy
        self.gradients = SampleGradients(model, algorithm)
        assert privacy.clip is not None
        self.clip = privacy.clip
        self._noise: np.random.Generator | None = None

    def train(self, context: LocalContext) -> LocalResult:
        """See `LocalSolver`; noise and sampling are keyed by (seed, purpose, round, client), too."""
        self._noise = context.generator("privacy")
        return super().train(context)

    def _step(self, batch: Batch, context: LocalContext) -> Tensor:
        assert self._noise is not None
        gradient = self.model.flat_gradient().zero_()
        loss = gradient.new_zeros(())
        if len(batch):
            total, loss = self.gradients.clipped_sum(batch, context, self.clip)
            gradient += total
        with torch.no_grad():
            if self.privacy.noise_multiplier:
                gradient += self.privacy.noise_multiplier * self.clip * normals(self._noise, gradient)
            gradient /= self._divisor(batch, context)
            if self.adjusts:
                self.algorithm.adjust_gradient(gradient, self.model.params, context)
        self.descent.step(context.lr)
        return loss.detach() / max(1, len(batch))

    def _divisor(self, batch: Batch, context: LocalContext) -> int:
        """The expected number of samples: the drawn one would tell who was drawn."""
        return len(batch) if self.privacy.sampling == "shuffle" else min(context.batch_size, context.samples)

    def _batches(self, context: LocalContext) -> Iterator[Batch]:
        if self.privacy.sampling == "shuffle":
            yield from super()._batches(context)
            return
        chosen = context.generator("poisson")
        augment = context.generator("augment") if self._draws(context) else None
        rate = min(1.0, context.batch_size / context.samples)
        for _ in range(context.local_epochs * math.ceil(context.samples / context.batch_size)):
            order = np.flatnonzero(chosen.random(context.samples) < rate)
            yield self._drawn(context, order, augment)

    def _drawn(self, context: LocalContext, order: np.ndarray, augment: np.random.Generator | None) -> Batch:
        device = context.images.device
        rows = to_device(torch.from_numpy(order), device)
        if not len(order):
            return Batch(context.images[:0], context.labels[:0], rows)
        drawn = np.empty((len(order), 0), np.int64) if augment is None else self._draw(context, augment, order)
        return next(self._cut(context, rows, to_device(torch.from_numpy(drawn), device), [(0, len(order))]))
