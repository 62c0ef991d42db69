"""FedLoGe.

Xiao et al., "FedLoGe: Joint Local and Generic Federated Learning under Long-tailed Data", ICLR 2024: a fixed sparse
classifier (SSE-C) trains the backbone; an auxiliary head, averaged, and a local head, kept by its client, are trained
beside it on detached features and re-aligned for scoring: rows of equal norm for the generic model, rows scaled by the
local head's norms for a client's own.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, cast

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from fedrela_bench.algorithms.base import Algorithm, Batch, LocalContext, Options, Scope, Server, Settings
from fedrela_bench.algorithms.registry import register
from fedrela_bench.algorithms.sse_c import SSECHead
from fedrela_bench.models import Net, Outputs

ABSENT_LOGIT = -1e10


class FedLoGeOptions(Options):
    """Construction of the fixed classifier and which head is scored."""

    score: Annotated[
        Literal["ssec", "realign"],
        Field(description="head of test/*: the fixed sparse classifier or the re-aligned auxiliary head"),
    ] = "ssec"
    ssec_steps: Annotated[
        int, Field(ge=0, le=1_000_000, description="Adam steps that spread the sparse classifier's vectors")
    ] = 10_000
    ssec_sparsity: Annotated[
        float, Field(ge=0, le=0.95, description="share of the fixed classifier's entries that are zero")
    ] = 0.6
    ssec_bias: Annotated[
        Literal["zero", "author"],
        Field(description="bias of the fixed classifier: none, or the released code's untrained random one"),
    ] = "zero"
    realign_norm: Annotated[
        float, Field(gt=0, le=1e6, description="norm of every row of the re-aligned head; matters beside its bias")
    ] = 1.7
    personal_metric: Annotated[
        bool, Field(description="measure the clients' own models at every evaluation: one head pass per client")
    ] = False


def realign(weight: Tensor, norms: Tensor | float) -> Tensor:
    """Rows w_c of (C, d) rescaled to w_c norms_c / ||w_c||.

    Args:
        weight: (C, d).
        norms: one number, or (C, 1).
    """
    scale: Tensor = norms / weight.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return weight * scale


class LoGeHeads(nn.Module):
    """The fixed classifier and the two linear heads beside it.

    Args:
        feature_dim: d.
        num_classes: C.
        options: of the algorithm.
    """

    def __init__(self, feature_dim: int, num_classes: int, options: FedLoGeOptions) -> None:
        super().__init__()
        steps, sparsity = options.ssec_steps, options.ssec_sparsity
        self.ssec = SSECHead(feature_dim, num_classes, steps, sparsity, options.ssec_bias == "author")
        self.auxiliary = nn.Linear(feature_dim, num_classes)
        self.local = nn.Linear(feature_dim, num_classes)

    def forward(self, features: Tensor) -> Tensor:
        """(B, d) -> logits (B, C) of the fixed classifier."""
        return cast(Tensor, self.ssec(features))

    def realigned(self, features: Tensor, norm: float) -> Tensor:
        """(B, d) -> logits (B, C) of the auxiliary head with rows of one norm; its bias stays."""
        return F.linear(features, realign(self.auxiliary.weight, norm), self.auxiliary.bias)

    def personal(self, features: Tensor, counts: Tensor) -> Tensor:
        """(B, d) -> logits (B, C) of a client's own model.

        Auxiliary rows times the norms of the local ones, masked where `counts` (C,) is 0, plus the local head.
        """
        norms = self.local.weight.norm(dim=1, keepdim=True)
        generic = F.linear(features, self.auxiliary.weight * norms, self.auxiliary.bias)
        return generic.masked_fill(counts == 0, ABSENT_LOGIT) + cast(Tensor, self.local(features))


@register
class FedLoGe(Algorithm):
    """Fixed sparse classifier with a shared auxiliary and a private local head.

    Beside FedReLa: the posterior is the scored head's (`relabel.posterior_head` picks one by name), all three losses
    use the labels in force, and local heads are kept at T.
    """

    name: ClassVar[str] = "fedloge"
    citation: ClassVar[str] = "Xiao et al., ICLR 2024"
    purpose: ClassVar[str] = "fixed sparse ETF classifier; auxiliary (shared) and local (private) heads, re-aligned"
    differences: ClassVar[str] = (
        "The paper scores the re-aligned head; FedReLa's code scores the fixed one whenever relabelling is on, and the "
        "published tables mix the two. Default: score = ssec; accuracies of both are reported every time. The released "
        "code leaves the fixed head's bias at random values (ssec_bias = author; default zero). Its settings: lr 0.03, "
        "momentum 0.5, no weight decay, batch 8, 5 local epochs."
    )
    published: ClassVar[Settings] = {
        "training.lr": 0.03,
        "training.momentum": 0.5,
        "training.weight_decay": 0.0,
        "training.batch_size": 8,
        "training.local_epochs": 5,
        "federation.clients": 40,
        "federation.rounds": 500,
        "federation.participation": 0.3,
        "federation.options.score": "realign",
        "federation.options.ssec_bias": "author",
    }
    OptionsModel: ClassVar[type[Options]] = FedLoGeOptions
    posterior_heads: ClassVar[tuple[str, ...]] = ("scored", "ssec", "realign")
    options: FedLoGeOptions

    def make_head(self, feature_dim: int) -> nn.Module:
        """Fixed, auxiliary and local head."""
        return LoGeHeads(feature_dim, self.num_classes, self.options)

    def scope(self, name: str) -> Scope:
        """The fixed classifier never changes; the local head stays with its client."""
        if name.startswith("head.ssec."):
            return "constant"
        return "client" if name.startswith("head.local.") else "shared"

    def loss(self, net: Net, batch: Batch, context: LocalContext) -> Tensor:
        """Cross-entropy of the fixed classifier for the backbone, and of both linear heads on detached features.

        One backward pass and one optimiser do what the paper's three do: each parameter appears in one of the terms
        only, so that its gradient is that term's, and all three have the same rate and momentum.
        """
        features = net.features(batch.inputs)
        heads, detached = cast(LoGeHeads, net.head), features.detach()
        beside = F.cross_entropy(heads.auxiliary(detached), batch.labels)
        beside = beside + F.cross_entropy(heads.local(detached), batch.labels)
        return F.cross_entropy(heads.ssec(features), batch.labels) + beside

    def score(self, net: Net, outputs: Outputs, server: Server) -> Tensor:
        """Logits of the head that the option `score` names."""
        return self._logits(net, outputs, self.options.score)

    def extra_scores(self, net: Net, outputs: Outputs, server: Server) -> dict[str, Tensor]:
        """The head that `score` does not name."""
        other = "realign" if self.options.score == "ssec" else "ssec"
        return {other: self._logits(net, outputs, other)}

    def posterior(self, net: Net, outputs: Outputs, server: Server, head: str) -> Tensor:
        """`scored`: as `score`; `ssec`, `realign`: that head."""
        return self._logits(net, outputs, self.options.score if head == "scored" else head)

    def _logits(self, net: Net, outputs: Outputs, head: str) -> Tensor:
        if head == "ssec":
            return outputs.logits
        return cast(LoGeHeads, net.head).realigned(outputs.features, self.options.realign_norm)

    def scores_clients(self) -> bool:
        """Whether `personal_metric` is on."""
        return self.options.personal_metric

    def personal_score(self, net: Net, outputs: Outputs, counts: Tensor) -> Tensor:
        """Locally re-aligned auxiliary head plus local head."""
        return cast(LoGeHeads, net.head).personal(outputs.features, counts)
