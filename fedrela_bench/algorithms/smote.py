"""SMOTE on every client, then FedAvg.

Chawla, Bowyer, Hall and Kegelmeyer, "SMOTE: Synthetic Minority Over-sampling Technique", JAIR 2002: a synthetic sample
lies at x + u (x_nn - x), u ~ U(0, 1), with x_nn one of the k nearest neighbours of x in its class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedrela_bench.algorithms.base import Algorithm, LocalContext, Options
from fedrela_bench.algorithms.data_level import host_labels
from fedrela_bench.algorithms.registry import register

DISTANCE_ROWS = 512
"""Images whose distances are held at once."""


class SmoteOptions(Options):
    """The paper's neighbours are 5."""

    neighbours: Annotated[
        int, Field(ge=1, le=10_000, description="nearest images of the class that a synthetic one may lean to")
    ] = 5


@dataclass(frozen=True)
class Extended:
    """A client's own samples, then its synthetic ones, n + s in all: x[base] + share (x[partner] - x[base])."""

    base: np.ndarray
    partner: Tensor
    share: Tensor


def interpolate(images: Tensor, partners: Tensor, share: Tensor) -> Tensor:
    """The points x + u (x_nn - x), in the dtype of `share`.

    Args:
        images: (b, ...) x.
        partners: (b, ...) x_nn.
        share: (b,) u in [0, 1).
    """
    start = images.to(share.dtype)
    return start + share.view(-1, *[1] * (images.dim() - 1)) * (partners.to(share.dtype) - start)


def nearest(points: Tensor, count: int) -> Tensor:
    """Indices (n, count) of the nearest other points, nearest first, the lower index at a tie.

    Args:
        points: (n, d) with n > count; integers of a few thousand at most give exact distances on every device.
        count: how many.
    """
    exact = points.double()
    lengths = exact.square().sum(dim=1)
    found: list[Tensor] = []
    for start in range(0, len(points), DISTANCE_ROWS):
        rows = torch.arange(start, min(start + DISTANCE_ROWS, len(points)), device=points.device)
        squares = lengths[rows, None] + lengths - 2 * exact[rows] @ exact.T
        squares.scatter_(1, rows[:, None], torch.inf)
        found.append(squares.sort(dim=1, stable=True).indices[:, :count])
    return torch.cat(found)


def extend(context: LocalContext, neighbours: int, dtype: torch.dtype) -> Extended:
    """Synthetic samples that bring every local class to the size of the largest.

    A class of one sample is duplicated: it has no neighbour.

    Args:
        context: the client; its stream "smote" draws bases, neighbours and shares, class by class.
        neighbours: largest number of neighbours of a class.
        dtype: of the shares.
    """
    labels, rng, device = host_labels(context), context.generator("smote"), context.images.device
    own = np.arange(len(labels))
    bases, shares, partners = [own], [np.zeros(len(labels))], [torch.from_numpy(own).to(device)]
    counts = np.bincount(labels)
    for label in np.flatnonzero((counts > 0) & (counts < counts.max())):
        rows, missing = np.flatnonzero(labels == label), int(counts.max() - counts[label])
        picked = rng.integers(len(rows), size=missing)
        rank = rng.integers(max(1, min(neighbours, len(rows) - 1)), size=missing)
        bases.append(rows[picked])
        shares.append(rng.random(missing) if len(rows) > 1 else np.zeros(missing))
        partners.append(_partners(context.images, rows, picked, rank))
    share = torch.from_numpy(np.concatenate(shares)).to(device, dtype)
    return Extended(np.concatenate(bases), torch.cat(partners), share)


def _partners(images: Tensor, rows: np.ndarray, picked: np.ndarray, rank: np.ndarray) -> Tensor:
    """(s,) rows of the `rank`-th nearest class-mates of the picked ones; a lonely image is its own."""
    mine, chosen, order = (torch.from_numpy(ids).to(images.device) for ids in (rows, picked, rank))
    if len(rows) == 1:
        return mine[chosen]
    return mine[nearest(images[mine].flatten(1), int(rank.max()) + 1)[chosen, order]]


@register
class Smote(Algorithm):
    """Classes smaller than the client's largest are filled up with points between neighbours in pixel space.

    With FedReLa classes and neighbours are those of the labels in force. A locally absent class stays absent. Needs
    training.shuffle, which draws an epoch's rows.
    """

    name: ClassVar[str] = "smote"
    citation: ClassVar[str] = "Chawla et al., JAIR 2002"
    purpose: ClassVar[str] = "each client fills its smaller classes up with interpolated images, then FedAvg"
    differences: ClassVar[str] = (
        "Synthetic images are drawn anew in every round, before augmentation, and are not rounded to whole grey "
        "levels; an epoch grows to classes times the largest class, the client's weight stays n_k."
    )
    OptionsModel: ClassVar[type[Options]] = SmoteOptions
    options: SmoteOptions

    def _extended(self, context: LocalContext) -> Extended:
        if "smote" not in context.scratch:
            context.scratch["smote"] = extend(context, self.options.neighbours, context.pipeline.dtype)
        return cast(Extended, context.scratch["smote"])

    def epoch_rows(self, context: LocalContext, rng: np.random.Generator) -> np.ndarray:
        """(n_k + s,) rows: a synthetic sample stands at its base, whose label it has."""
        base = self._extended(context).base
        order = rng.permutation(len(base))
        context.scratch["order"] = order
        return base[order]

    def draw(self, context: LocalContext, rng: np.random.Generator, count: int) -> np.ndarray:
        """(count, d + 1) numbers of the augmentation and, last, the place in the extended set."""
        order = context.scratch.pop("order", np.arange(count))
        return np.column_stack([super().draw(context, rng, count), order])

    def inputs(self, context: LocalContext, images: Tensor, draws: Tensor) -> Any:
        """Interpolated images, augmented."""
        extended, places = self._extended(context), draws[:, -1]
        if len(extended.base) == context.samples:
            return context.pipeline.train(images, draws[:, :-1])
        partners = context.images[extended.partner[places]]
        mixed = interpolate(images, partners, extended.share[places])
        return context.pipeline.train(mixed, draws[:, :-1])
