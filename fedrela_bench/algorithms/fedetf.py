"""FedETF with a projection and a learnable temperature.

Li, Shang, He, Lin and Wu, "No Fear of Classifier Biases: Neural Collapse Inspired Federated Learning with Synthetic and
Fixed Classifier", ICCV 2023: features are projected to C dimensions, normalised to mu, compared with a fixed simplex
ETF V; the client minimises the balanced softmax -log [n_y^gamma exp(beta v_y mu) / sum_c n_c^gamma exp(beta v_c mu)].
"""

from __future__ import annotations

from typing import Annotated, ClassVar, cast

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from fedrela_bench.algorithms.base import Algorithm, LocalContext, Options, Server, Settings
from fedrela_bench.algorithms.registry import register
from fedrela_bench.models import Net, Outputs
from fedrela_bench.models.heads import CosineETFHead


class FedETFOptions(Options):
    """gamma: exponent of the local class counts in the balanced softmax; 0 is plain cross-entropy."""

    gamma: Annotated[float, Field(ge=0, le=1e6)] = 1.0


def balanced_softmax_loss(logits: Tensor, labels: Tensor, counts: Tensor, gamma: float) -> Tensor:
    """Cross-entropy of logits + gamma log n_c, absent classes counted once.

    Args:
        logits: (B, C).
        labels: (B,) class ids.
        counts: (C,) local class counts.
        gamma: exponent; at 0 the term is skipped.
    """
    if gamma == 0:
        return F.cross_entropy(logits, labels)
    prior = counts.clamp(min=1).to(logits.dtype).log()
    return F.cross_entropy(logits + gamma * prior, labels)


@register
class FedETF(Algorithm):
    """Fixed simplex-ETF classifier with learnable temperature and balanced local loss."""

    name: ClassVar[str] = "fedetf"
    citation: ClassVar[str] = "Li et al., ICCV 2023"
    purpose: ClassVar[str] = "fixed simplex-ETF classifier, learnable temperature, balanced softmax with local counts"
    differences: ClassVar[str] = (
        "The original holds back 30 % of each client's data for personal validation and fine-tunes locally; here all "
        "data trains and the global model is scored. FedReLa's tables most likely use fedetf_dotreg."
    )
    published: ClassVar[Settings] = {
        "training.lr": 0.04,
        "training.momentum": 0.9,
        "training.weight_decay": 0.0005,
        "training.batch_size": 128,
        "training.local_epochs": 3,
        "federation.clients": 20,
        "federation.rounds": 200,
    }
    OptionsModel: ClassVar[type[Options]] = FedETFOptions
    posterior_heads: ClassVar[tuple[str, ...]] = ("scored", "cosine")
    options: FedETFOptions

    def make_head(self, feature_dim: int) -> nn.Module:
        """Projection d -> C, normalisation, fixed ETF, temperature."""
        return CosineETFHead(feature_dim, self.num_classes)

    def criterion(self, outputs: Outputs, labels: Tensor, context: LocalContext) -> Tensor:
        """Balanced softmax on beta V mu."""
        return balanced_softmax_loss(outputs.logits, labels, context.label_counts, self.options.gamma)

    def score(self, net: Net, outputs: Outputs, server: Server) -> Tensor:
        """V mu: the temperature must not turn the order round."""
        return cast(CosineETFHead, net.head).cosines(outputs.features)

    def posterior(self, net: Net, outputs: Outputs, server: Server, head: str) -> Tensor:
        """`scored`: beta V mu, the training scale; `cosine`: V mu."""
        if head == "cosine":
            return cast(CosineETFHead, net.head).cosines(outputs.features)
        return outputs.logits
