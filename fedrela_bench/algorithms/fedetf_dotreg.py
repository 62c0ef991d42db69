"""The dot-regression ETF head that FedReLa's released code calls FedETF.

Yang, Chen, Li, Xie, Lin and Tao, "Inducing Neural Collapse in Imbalanced Learning", NeurIPS 2022 (dot-regression loss
on a fixed simplex ETF), as arranged in the FedLoGe and FedReLa repositories: batch norm and L2 normalisation on the
feature, and two linear heads trained beside it on detached features (one averaged, one kept by the client) that are
not scored.
"""

from __future__ import annotations

from typing import ClassVar, Literal, cast

import torch.nn.functional as F
from torch import Tensor, nn

from fedrela_bench.algorithms.base import Algorithm, Batch, LocalContext, Options, Scope, Settings
from fedrela_bench.algorithms.registry import register
from fedrela_bench.models import Net
from fedrela_bench.models.heads import DotRegressionETFHead, dot_regression_loss


class FedETFDotRegOptions(Options):
    """etf_head_bn: what becomes of the batch norm on the feature.

    aggregate: part of the averaged model, running statistics at test. author: reset at every local start, never sent,
    and statistics of each test batch of 100 at test (transductive). none: no batch norm.
    """

    etf_head_bn: Literal["aggregate", "author", "none"] = "aggregate"


class DotRegressionHeads(nn.Module):
    """The scored ETF head and the two linear heads beside it."""

    def __init__(self, feature_dim: int, num_classes: int, batch_norm: bool) -> None:
        super().__init__()
        self.etf_head = DotRegressionETFHead(feature_dim, num_classes, bn=batch_norm)
        self.auxiliary = nn.Linear(feature_dim, num_classes)
        self.local = nn.Linear(feature_dim, num_classes)

    def forward(self, features: Tensor) -> Tensor:
        """(B, C) cosines of normalised features with the ETF's columns."""
        return cast(Tensor, self.etf_head(features))


@register
class FedETFDotReg(Algorithm):
    """Dot regression towards a fixed simplex ETF in feature space."""

    name: ClassVar[str] = "fedetf_dotreg"
    citation: ClassVar[str] = "Yang et al., NeurIPS 2022; arrangement of the FedLoGe and FedReLa repositories"
    purpose: ClassVar[str] = "dot regression to a fixed simplex ETF in feature space (FedReLa's own 'FedETF')"
    differences: ClassVar[str] = (
        "The released evaluation leaves the head's batch norm in training mode, so test-batch statistics are used: "
        "etf_head_bn = author, whose batches of 100 follow the order of the test set. Default: aggregate."
    )
    published: ClassVar[Settings] = {
        "training.lr": 0.03,
        "training.momentum": 0.5,
        "training.weight_decay": 0.0,
        "training.batch_size": 8,
        "training.local_epochs": 5,
        "federation.options.etf_head_bn": "author",
    }
    OptionsModel: ClassVar[type[Options]] = FedETFDotRegOptions
    options: FedETFDotRegOptions

    def make_head(self, feature_dim: int) -> nn.Module:
        """ETF head, auxiliary and local linear head."""
        return DotRegressionHeads(feature_dim, self.num_classes, self.options.etf_head_bn != "none")

    def scope(self, name: str) -> Scope:
        """The local head stays with its client; the author's batch norm is reset."""
        if name.startswith("head.local."):
            return "client"
        if name.startswith("head.etf_head.bn.") and self.options.etf_head_bn == "author":
            return "reset"
        return super().scope(name)

    def loss(self, net: Net, batch: Batch, context: LocalContext) -> Tensor:
        """Dot regression for the backbone; cross-entropy of both linear heads on detached features."""
        features = net.features(batch.inputs)
        heads = cast(DotRegressionHeads, net.head)
        unit = heads.etf_head.unit(features)
        detached = features.detach()
        beside = F.cross_entropy(heads.auxiliary(detached), batch.labels)
        beside = beside + F.cross_entropy(heads.local(detached), batch.labels)
        return dot_regression_loss(unit, heads.etf_head.etf, batch.labels) + beside

    def eval_batch(self) -> int | None:
        """The author's test statistics are those of 100 images."""
        return 100 if self.options.etf_head_bn == "author" else None

    def prepare_eval(self, net: Net, purpose: Literal["test", "posterior"]) -> None:
        """Eval mode; the author's head keeps batch statistics at test."""
        net.eval()
        if purpose == "test" and self.options.etf_head_bn == "author":
            cast(DotRegressionHeads, net.head).etf_head.train()
