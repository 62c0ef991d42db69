"""Fed-Focal Loss.

Sarkar, Narang and Rai, "Fed-Focal Loss for imbalanced data classification in Federated Learning", 2020
(arXiv 2011.06283), with the focal loss of Lin, Goyal, Girshick, He and Dollar, "Focal Loss for Dense Object Detection",
ICCV 2017, eq. (4): a client minimises -(1 - p_y)^gamma log p_y.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedrela_bench.algorithms.base import Algorithm, LocalContext, Options
from fedrela_bench.algorithms.registry import register
from fedrela_bench.models import Outputs


class FedFocalOptions(Options):
    """Options of Fed-Focal."""

    gamma: float = Field(
        default=2.0, ge=0, le=100, description="how much well classified samples are played down; 0 is cross-entropy"
    )


def focal_loss(logits: Tensor, labels: Tensor, gamma: float) -> Tensor:
    """Batch mean of -(1 - p_y)^gamma log p_y (Lin et al., eq. 4); finite for every finite logit.

    Args:
        logits: (B, C).
        labels: (B,) class ids.
        gamma: focusing parameter; at 0 the factor is skipped.
    """
    losses = F.cross_entropy(logits, labels, reduction="none" if gamma else "mean")
    if not gamma:
        return losses
    # 1 - p from the loss itself keeps its digits near p = 1; the floor keeps the slope of the power finite there.
    rest = -torch.expm1(-losses)
    return (rest.clamp(min=torch.finfo(rest.dtype).tiny) ** gamma * losses).mean()


@register
class FedFocal(Algorithm):
    """FedAvg with the focal loss.

    With FedReLa: the labels in force are the targets; nothing else depends on labels, no state is kept. The posterior
    is the softmax of the classifier's logits.
    """

    name: ClassVar[str] = "fedfocal"
    citation: ClassVar[str] = "Sarkar et al., arXiv 2011.06283 (focal loss: Lin et al., ICCV 2017)"
    purpose: ClassVar[str] = "FedAvg with the focal loss, which plays down well classified samples"
    differences: ClassVar[str] = (
        "Fed-Focal's own tunable sampling of clients is left out: clients are drawn as for every other algorithm. "
        "One weight for all classes (alpha = 1), as in public federated code."
    )
    OptionsModel: ClassVar[type[Options]] = FedFocalOptions
    separable: ClassVar[bool] = True
    options: FedFocalOptions

    def criterion(self, outputs: Outputs, labels: Tensor, context: LocalContext) -> Tensor:
        """The focal loss."""
        return focal_loss(outputs.logits, labels, self.options.gamma)
