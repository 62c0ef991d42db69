"""Remix on every client, then FedAvg.

Chou, Chang, Pan, Wei and Juan, "Remix: Rebalanced Mixup", ECCV 2020 workshops, eq. (8): inputs as mixup; a sample's own
label gets weight 0 where its class is kappa times larger than its partner's and lambda < tau, weight 1 where it is
kappa times smaller and 1 - lambda < tau, lambda elsewhere.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedrela_bench.algorithms.base import LocalContext, Options
from fedrela_bench.algorithms.mixup import Mixup, MixupOptions
from fedrela_bench.algorithms.registry import register


class RemixOptions(MixupOptions):
    """The paper's setting is kappa 3, tau 0.5, alpha 1."""

    kappa: Annotated[
        float,
        Field(ge=1, le=1e12, description="ratio of class counts from which the rarer label takes all; large: mixup"),
    ] = 3.0
    tau: Annotated[
        float, Field(ge=0, le=1, description="largest share of the frequent image at which it does; 0: mixup")
    ] = 0.5


def rebalanced_weight(own: Tensor, other: Tensor, share: float | Tensor, kappa: float, tau: float) -> Tensor:
    """Weight lambda_y of each sample's own label (Remix, eq. 8).

    Args:
        own: (B,) count n_i of the sample's class; 0 can occur where counts are those of the original labels.
        other: (B,) count n_j of its partner's class; a count of 0 is infinitely rarer than any other.
        share: lambda, one or (B,).
        kappa: ratio of counts.
        tau: threshold on the share.
    """
    weight = torch.as_tensor(share, dtype=torch.float64, device=own.device).expand(own.shape)
    loses = (own >= other.double() * kappa) & (own > 0) & (weight < tau)
    takes = (own.double() * kappa <= other) & (other > 0) & (1 - weight < tau)
    return torch.where(loses, 0.0, torch.where(takes, 1.0, weight))


@register
class Remix(Mixup):
    """Mixup whose labels lean to the rarer class.

    With FedReLa the counts are the client's label statistics: of the labels in force, or of the original ones with
    relabel.label_stats = original.
    """

    name: ClassVar[str] = "remix"
    citation: ClassVar[str] = "Chou et al., ECCV 2020 workshops"
    purpose: ClassVar[str] = "mixup whose label weights favour the locally rarer class, then FedAvg"
    differences: ClassVar[str] = "Counts are those of the client, not of all data."
    OptionsModel: ClassVar[type[Options]] = RemixOptions
    options: RemixOptions

    def label_weight(self, first: Tensor, second: Tensor, share: float, context: LocalContext) -> Tensor:
        """(B,) 0, lambda or 1 by the classes' local counts."""
        own, other = context.label_counts[first], context.label_counts[second]
        return rebalanced_weight(own, other, share, self.options.kappa, self.options.tau)
