"""FedRoD.

Chen and Chao, "On Bridging Generic and Personalized Federated Learning for Image Classification", ICLR 2022: backbone
and generic head minimise a balanced risk; a personal head, kept by its client, minimises the empirical one on the sum
of its logits and the generic ones.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from fedrela_bench.algorithms.base import Algorithm, Batch, LocalContext, Options, Scope
from fedrela_bench.algorithms.registry import register
from fedrela_bench.models import Net, Outputs


class FedRoDOptions(Options):
    """Balance of the generic loss."""

    gamma: Annotated[
        float, Field(ge=0, le=100, description="exponent of the local class counts in the balanced softmax; 0: plain")
    ] = 1.0
    absent: Annotated[
        Literal["floor", "mask"],
        Field(description="classes without local samples: counted once, or out of the softmax"),
    ] = "floor"
    personal_metric: Annotated[
        bool, Field(description="measure the clients' own models at every evaluation: one head pass per client")
    ] = False


def balanced_prior(counts: Tensor, labels: Tensor, gamma: float, absent: str) -> Tensor:
    """(C,) gamma log n_c, with absent classes counted once; -inf under ``mask`` for classes that no sample carries.

    Args:
        counts: (C,) local class counts of the dtype of the logits.
        labels: (n,) labels that will be trained on.
        gamma: exponent of the counts.
        absent: ``floor`` or ``mask``.
    """
    prior = gamma * counts.clamp(min=1).log()
    if absent == "floor":
        return prior
    carried = torch.zeros_like(counts).scatter_(0, labels, 1.0)
    return prior.masked_fill(carried == 0, -torch.inf)


class CopiedLinear(nn.Linear):
    """A linear layer that starts as a copy of another one, filled before it."""

    def __init__(self, other: nn.Linear) -> None:
        super().__init__(other.in_features, other.out_features)
        self._other = (other,)  # In a tuple it is no child: its parameters belong to their own module only.

    @torch.no_grad()
    def reset(self, rng: np.random.Generator) -> None:
        """Copy; nothing is drawn."""
        self.weight.copy_(self._other[0].weight)
        self.bias.copy_(self._other[0].bias)


class RoDHeads(nn.Module):
    """Generic and personal linear head.

    Args:
        feature_dim: d.
        num_classes: C.
    """

    def __init__(self, feature_dim: int, num_classes: int) -> None:
        super().__init__()
        self.generic = nn.Linear(feature_dim, num_classes)
        self.personal = CopiedLinear(self.generic)

    def forward(self, features: Tensor) -> Tensor:
        """(B, d) -> generic logits (B, C)."""
        return cast(Tensor, self.generic(features))


@register
class FedRoD(Algorithm):
    """Balanced generic head, and a personal head beside it that the generic model never feels.

    Beside FedReLa: posterior and score are the unadjusted generic logits, the balanced softmax uses the label
    statistics in force, both heads train on the labels in force, and personal heads are kept at T.
    """

    name: ClassVar[str] = "fedrod"
    citation: ClassVar[str] = "Chen and Chao, ICLR 2022"
    purpose: ClassVar[str] = "balanced softmax for the shared model, a private head for each client's own distribution"
    differences: ClassVar[str] = (
        "The original offers a hypernetwork that makes the personal heads; here, as in re-implementations, a personal "
        "head starts as a copy of the generic one. It has an optimiser of its own there; one serves both here, with "
        "the same rate, momentum and weight decay, since every parameter meets one loss. The paper reports a generic "
        "and a personal accuracy; test/* is the generic one, and personal_metric adds the other. Classes without "
        "local samples count once (absent = floor), or leave the softmax (mask)."
    )
    OptionsModel: ClassVar[type[Options]] = FedRoDOptions
    options: FedRoDOptions

    def make_head(self, feature_dim: int) -> nn.Module:
        """Generic and personal head."""
        return RoDHeads(feature_dim, self.num_classes)

    def scope(self, name: str) -> Scope:
        """The personal head stays with its client."""
        return "client" if name.startswith("head.personal.") else "shared"

    def prepare(self, net: Net, context: LocalContext) -> None:
        """The client's prior; none at gamma = 0 without a mask, so that FedAvg is met bit for bit."""
        gamma, absent = self.options.gamma, self.options.absent
        counts = context.label_counts.to(context.server.params.dtype)
        needed = gamma > 0 or absent == "mask"
        context.scratch["prior"] = balanced_prior(counts, context.labels, gamma, absent) if needed else None

    def loss(self, net: Net, batch: Batch, context: LocalContext) -> Tensor:
        """Balanced softmax of the generic logits, plus cross-entropy of detached generic and personal logits together.

        One backward pass does what the paper's two optimisers do: the second term reaches the personal head alone and
        the first never does, and both have the same rate and momentum.
        """
        features = net.features(batch.inputs)
        heads = cast(RoDHeads, net.head)
        generic = heads.generic(features)
        both = generic.detach() + heads.personal(features.detach())
        prior = context.scratch["prior"]
        balanced = generic if prior is None else generic + prior
        return F.cross_entropy(balanced, batch.labels) + F.cross_entropy(both, batch.labels)

    def scores_clients(self) -> bool:
        """Whether `personal_metric` is on."""
        return self.options.personal_metric

    def personal_score(self, net: Net, outputs: Outputs, counts: Tensor) -> Tensor:
        """Generic plus personal logits."""
        return outputs.logits + cast(Tensor, cast(RoDHeads, net.head).personal(outputs.features))
