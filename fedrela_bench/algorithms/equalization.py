"""Equalization loss.

Tan, Wang, Li, Li, Ouyang, Yin and Yan, "Equalization Loss for Long-Tailed Object Recognition", CVPR 2020: rare classes
do not take part as negatives. Softmax form: -log [exp(z_y) / sum_c w_c exp(z_c)] with
w_c = 1 - beta_c 1[f_c < lambda] (1 - 1[c = y]) and beta_c ~ Bernoulli(gamma) per sample and class. Sigmoid form:
the same weights on the binary cross-entropies.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedrela_bench.algorithms.base import Algorithm, Batch, LocalContext, Options
from fedrela_bench.algorithms.registry import register
from fedrela_bench.models import Net, Outputs

TAIL_SHARE = 95
"""Percent of the samples that head and medium classes hold."""


class EqualizationOptions(Options):
    """Options of the equalization loss."""

    form: Literal["softmax", "sigmoid"] = Field(default="softmax", description="one softmax, or a sigmoid per class")
    gamma: float = Field(
        default=0.9, ge=0, le=1, description="probability that a rare class is spared as a negative; 0 spares none"
    )
    threshold: Literal["auto"] | Annotated[float, Field(ge=0, le=1)] = Field(
        default="auto",
        description="classes with a smaller share of the client's samples are rare (5e-3 in public code); auto: the "
        "tail group, those after the classes that hold 95 % of the samples",
    )


def tail_classes(counts: Tensor) -> Tensor:
    """(C,) bool: classes after those that, in falling order (ties: lowest id first), hold 95 % of the samples.

    Args:
        counts: (C,) integer label counts of the client.
    """
    order = counts.argsort(descending=True, stable=True)
    falling = counts[order]
    before = falling.cumsum(dim=0) - falling
    tail = before * 100 >= TAIL_SHARE * counts.sum()
    return torch.zeros_like(tail).scatter(0, order, tail)


def rare_classes(counts: Tensor, threshold: float | Literal["auto"]) -> Tensor:
    """(C,) bool: the classes with 1[f_c < lambda], f the client's class frequency.

    Args:
        counts: (C,) label counts.
        threshold: lambda, or auto for `tail_classes`.
    """
    return tail_classes(counts) if threshold == "auto" else counts < threshold * counts.sum()


def spared(rare: Tensor, labels: Tensor, draws: Tensor) -> Tensor:
    """(B, C) bool: where w_c = 0, that is a rare class, drawn, and not the sample's own.

    Args:
        rare: (C,) bool.
        labels: (B,) class ids.
        draws: (B, C) bool, beta.
    """
    return (rare & draws).scatter(1, labels[:, None], False)


def equalization_loss(logits: Tensor, labels: Tensor, left_out: Tensor, form: str) -> Tensor:
    """Batch mean of the equalization loss (Tan et al.); the sigmoid form sums over classes.

    Args:
        logits: (B, C).
        labels: (B,) class ids.
        left_out: (B, C) bool from `spared`.
        form: softmax or sigmoid.
    """
    if form == "softmax":
        return F.cross_entropy(logits.masked_fill(left_out, -torch.inf), labels)
    return (binary_losses(logits, labels).masked_fill(left_out, 0)).sum() / len(labels)


def binary_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """(B, C) binary cross-entropies of every class against the label.

    Args:
        logits: (B, C).
        labels: (B,) class ids.
    """
    targets = torch.zeros_like(logits).scatter(1, labels[:, None], 1.0)
    return F.binary_cross_entropy_with_logits(logits, targets, reduction="none")


@register
class Equalization(Algorithm):
    """FedAvg with the equalization loss.

    With FedReLa: frequencies are those of the labels in force, so a class that received samples may stop being rare.
    The posterior is the softmax of the classifier's logits in both forms. No state is kept.
    """

    name: ClassVar[str] = "equalization"
    citation: ClassVar[str] = "Tan et al., CVPR 2020"
    purpose: ClassVar[str] = "FedAvg with a loss in which locally rare classes are spared as negatives"
    differences: ClassVar[str] = (
        "The paper counts images over the whole data set, a client counts its own samples. Defaults gamma 0.9 and "
        "threshold 5e-3 are those of re-implementations; threshold = auto (default) lets exactly the tail group "
        "qualify. The sigmoid form of the paper has no random draws and an object/background factor; here the draws "
        "are those of the softmax form (gamma = 1: none)."
    )
    OptionsModel: ClassVar[type[Options]] = EqualizationOptions
    options: EqualizationOptions

    def prepare(self, net: Net, context: LocalContext) -> None:
        """The client's rare classes, and a stream for beta that leaves the augmentation's alone."""
        context.scratch["rare"] = rare_classes(context.label_counts, self.options.threshold)
        context.scratch["beta"] = context.generator("equalization")

    def draw(self, context: LocalContext, rng: np.random.Generator, count: int) -> np.ndarray:
        """(count, d + C): augmentation, then beta of every class."""
        moves = super().draw(context, rng, count)
        if self.options.gamma == 0:
            return moves
        beta = context.scratch["beta"].random((count, self.num_classes)) < self.options.gamma
        return np.concatenate([moves, beta.astype(np.int64)], axis=1)

    def inputs(self, context: LocalContext, images: Tensor, draws: Tensor) -> Any:
        """Images, and with gamma > 0 beta (b, C) beside them."""
        if self.options.gamma == 0:
            return super().inputs(context, images, draws)
        moves, beta = draws[:, : -self.num_classes], draws[:, -self.num_classes :]
        return super().inputs(context, images, moves), beta.to(images.device) > 0

    def loss(self, net: Net, batch: Batch, context: LocalContext) -> Tensor:
        """The equalization loss; gamma = 0 is plain (binary) cross-entropy."""
        if self.options.gamma == 0:
            return super().loss(net, batch, context)
        images, beta = batch.inputs
        left_out = spared(context.scratch["rare"], batch.labels, beta)
        return equalization_loss(net(images).logits, batch.labels, left_out, self.options.form)

    def criterion(self, outputs: Outputs, labels: Tensor, context: LocalContext) -> Tensor:
        """What is left at gamma = 0."""
        if self.options.form == "softmax":
            return F.cross_entropy(outputs.logits, labels)
        return binary_losses(outputs.logits, labels).sum() / len(labels)
