"""Ratio Loss.

Wang, Xu, Wang and Zhu, "Addressing Class Imbalance in Federated Learning", AAAI 2021: the server estimates from a small
balanced set of its own how scarce each class is in the current model (R_p),
and clients minimise (alpha + beta R_y) CE.

The estimate at w^t: let G^q (C, d) be the gradient of the last layer's weights on the auxiliary images of class q.
Where class p is well trained, its own images hardly move row p, and R_p = (C - 1) G^p_p / sum over q != p of G^q_p is
small.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedrela_bench.algorithms.base import (
    Algorithm,
    ClientUpdate,
    LocalContext,
    ModelSize,
    Options,
    Server,
    Settings,
    State,
)
from fedrela_bench.algorithms.passes import plain_outputs
from fedrela_bench.algorithms.registry import register
from fedrela_bench.models import Net, Outputs

if TYPE_CHECKING:
    from fedrela_bench.algorithms.base import ServerData

LARGEST_RATIO = 5000.0
RATIO_WITHOUT_EVIDENCE = 10.0
APPROACHED = 0.8
"""A weight tells two classes apart when the second largest response is at most this share of the largest."""


class RatioLossOptions(Options):
    """Options of Ratio Loss."""

    alpha: float = Field(default=1.0, gt=0, le=1e6, description="weight that every class has")
    beta: float = Field(
        default=0.1, ge=0, le=1e6, description="weight per unit of the class's ratio; 0 with alpha 1 is cross-entropy"
    )
    auxiliary_per_class: int = Field(
        default=63, ge=1, le=100_000, description="images of each class that the server holds (63 in the authors' code)"
    )
    ratio: Literal["row_mean", "outliers"] = Field(
        default="row_mean",
        description="row_mean: mean ratio over the weights of the class's row; outliers: the authors' ratio of sums "
        "over the weights that answer to one class alone",
    )
    reduction: Literal["batch_mean", "weight_normalised"] = Field(
        default="batch_mean", description="how weighted losses are averaged: over samples, or over their weights"
    )
    aggregation: Literal["uniform", "n_weighted"] = Field(
        default="uniform", description="mean over participants (authors), or weighted by their samples"
    )


def row_mean_ratio(answers: Tensor, row: int) -> Tensor:
    """R_p = |mean_j (C - 1) G^p_pj / sum over q != p of G^q_pj|, at most 5000.

    Weights whose denominator is 0 are left out; without any other the ratio is 10.

    Args:
        answers: (C, d) gradients of row p on each auxiliary class.
        row: p.

    Returns:
        Scalar.
    """
    own, others = answers[row], answers.sum(dim=0) - answers[row]
    usable = others != 0
    ratios = torch.where(usable, (len(answers) - 1) * own / torch.where(usable, others, 1), 0)
    mean = (ratios.sum() / usable.sum().clamp(min=1)).abs()
    return torch.where(usable.any(), mean.clamp(max=LARGEST_RATIO), RATIO_WITHOUT_EVIDENCE)


def outlier_sums(answers: Tensor) -> tuple[Tensor, Tensor]:
    """What a row adds to numerator and denominator of every class's ratio of sums.

    A weight belongs to the class that raises it most, unless another class moves it by more than 80 % of that.

    Args:
        answers: (C, d) gradients of one row on each auxiliary class.

    Returns:
        (C,) sums of the owner's gradients, (C,) sums of all other classes' gradients, over the weights of each class.
    """
    largest, owner = (-answers).max(dim=0)
    near = (answers.abs() > APPROACHED * largest.abs()).sum(dim=0)
    alone = (near < 2).to(answers.dtype)
    zeros = answers.new_zeros(len(answers))
    own = zeros.index_add(0, owner, -largest * alone)
    return own, zeros.index_add(0, owner, (answers.sum(dim=0) + largest) * alone)


def outlier_ratio(own: Tensor, others: Tensor) -> Tensor:
    """(C,) ratios (C - 1) |own| / |others|, at most 5000; 10 where a class has no weight of its own.

    Args:
        own: (C,) from `outlier_sums`, added over rows.
        others: (C,) likewise.
    """
    ratios = ((len(own) - 1) * own / torch.where(others != 0, others, 1)).abs()
    return torch.where(others != 0, ratios.clamp(max=LARGEST_RATIO), RATIO_WITHOUT_EVIDENCE)


def weighted_loss(logits: Tensor, labels: Tensor, weights: Tensor, reduction: str) -> Tensor:
    """Cross-entropy times the weight of each sample's class.

    Args:
        logits: (B, C).
        labels: (B,) class ids.
        weights: (C,).
        reduction: batch_mean divides by B, weight_normalised by the sum of the samples' weights.
    """
    if reduction == "weight_normalised":
        return F.cross_entropy(logits, labels, weight=weights.to(logits.dtype))
    return (weights[labels] * F.cross_entropy(logits, labels, reduction="none")).mean()


@register
class RatioLoss(Algorithm):
    """Cross-entropy weighted by how scarce the server finds each class.

    Needs balanced images on the server, which FedReLa's setting does not have: its figures are not on a par with those
    of methods that see clients' data only. The server takes them from what the imbalance profile left out, and from
    the training images where that does not suffice.

    With FedReLa: the labels in force pick the weights; the ratios come from the server's own images and labels. No
    client state. The posterior is the softmax of the classifier's logits.
    """

    name: ClassVar[str] = "ratio_loss"
    citation: ClassVar[str] = "Wang et al., AAAI 2021"
    purpose: ClassVar[str] = "class weights estimated from gradients of a balanced auxiliary set that the server holds"
    differences: ClassVar[str] = (
        "The server's auxiliary images break the setting in which FedReLa is compared. The authors' code trains "
        "locally on each auxiliary class and uses the weights of the round before; here: one gradient at the current "
        "global model, used in the same round (a step's length cancels in the ratio). The default ratio is that of "
        "CLIMB's re-implementation, which holds 5 images per class and normalises by the weights; ratio = outliers is "
        "the authors' (positions whose largest response no other class comes near). Both are at most 5000, and 10 "
        "where nothing tells a class apart. Weights reach 1 + 0.1 x 5000, so the step length matters: the authors "
        "train with lr 0.001, batch 64, 2 epochs and 20 of 100 clients, and average clients uniformly; "
        "weight_normalised keeps the loss's scale."
    )
    published: ClassVar[Settings] = {
        "training.lr": 0.001,
        "training.batch_size": 64,
        "training.local_epochs": 2,
        "federation.clients": 100,
        "federation.participation": 0.2,
        "federation.options.ratio": "outliers",
    }
    OptionsModel: ClassVar[type[Options]] = RatioLossOptions
    options: RatioLossOptions

    def _weighs(self) -> bool:
        return self.options.beta > 0 or self.options.alpha != 1

    def server_images(self) -> int:
        """The auxiliary images; none where the weights are 1."""
        return self.options.auxiliary_per_class if self._weighs() else 0

    def initial_server_state(self, server: Server) -> State:
        """(C,) class weights."""
        return {"weights": server.params.new_ones(server.num_classes)} if self._weighs() else {}

    def communication(self, size: ModelSize) -> tuple[int, int]:
        """The model both ways, the class weights down."""
        return size.shared + (size.classes if self._weighs() else 0), size.shared

    def server_probe(self, net: Net, server: Server, data: ServerData) -> None:
        """Class weights alpha + beta R at the global model; a class without auxiliary images has ratio 10."""
        counts = [len(images) for images in data.images]
        features = server.params.new_zeros(self.num_classes, max(counts), net.backbone.feature_dim)
        slopes = server.params.new_zeros(self.num_classes, max(counts), self.num_classes)
        for label, images in enumerate(data.images):
            if len(images):
                outputs = plain_outputs(net, data.pipeline, images)
                slope = outputs.logits.softmax(dim=1)
                slope[:, label] -= 1
                features[label, : len(images)], slopes[label, : len(images)] = outputs.features, slope / len(images)
        # Row by row, since the gradients of all rows on all classes are C times the classifier.
        answers = ((slopes[:, None, :, row] @ features).squeeze(1) for row in range(self.num_classes))
        held = torch.tensor([count > 0 for count in counts], device=server.params.device)
        ratios = torch.where(held, self._ratios(answers), RATIO_WITHOUT_EVIDENCE)
        server.state["weights"] = self.options.alpha + self.options.beta * ratios

    def _ratios(self, answers: Iterable[Tensor]) -> Tensor:
        if self.options.ratio == "row_mean":
            return torch.stack([row_mean_ratio(answer, row) for row, answer in enumerate(answers)])
        own, others = zip(*(outlier_sums(answer) for answer in answers), strict=True)
        return outlier_ratio(torch.stack(own).sum(dim=0), torch.stack(others).sum(dim=0))

    def criterion(self, outputs: Outputs, labels: Tensor, context: LocalContext) -> Tensor:
        """Weighted cross-entropy."""
        if not self._weighs():
            return F.cross_entropy(outputs.logits, labels)
        return weighted_loss(outputs.logits, labels, context.server.state["weights"], self.options.reduction)

    def accumulate(self, sums: State, update: ClientUpdate) -> None:
        """Sum of parameters, each client once or by its samples."""
        weight = update.weight if self.options.aggregation == "n_weighted" else 1.0
        sums["params"].add_(update.params, alpha=weight)

    def server_step(self, sums: State, server: Server, participants: Sequence[int]) -> Tensor:
        """The mean."""
        return sums["params"] if self.options.aggregation == "n_weighted" else sums["params"] / len(participants)
