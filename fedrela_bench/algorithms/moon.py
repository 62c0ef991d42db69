"""MOON.

Li, He and Song, "Model-Contrastive Federated Learning", CVPR 2021: CE + mu l_con with l_con = -log [exp(cos(u, u_g) /
T) / (exp(cos(u, u_g) / T) + exp(cos(u, u_p) / T))], where u, u_g and u_p are the representations of the local, the
global and the client's previous model (eq. 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, cast

import torch.nn.functional as F
from pydantic import Field, StrictBool
from torch import Tensor, nn

from fedrela_bench.algorithms.base import Algorithm, Batch, ClientUpdate, LocalContext, ModelSize, Options, Settings
from fedrela_bench.algorithms.registry import register
from fedrela_bench.models import Net, Outputs


class MoonOptions(Options):
    """Contrastive term and projection."""

    mu: Annotated[
        float,
        Field(ge=0, le=1e6, description="weight of the contrastive term; 0 is FedAvg with the same network"),
    ] = 1.0
    temperature: Annotated[float, Field(gt=0, le=1e6, description="T that divides the cosines")] = 0.5
    use_projection: Annotated[
        StrictBool,
        Field(description="two-layer projection before the classifier; without it the network is FedAvg's"),
    ] = True
    projection_dim: Annotated[int, Field(ge=1, le=65_536, description="width of the projection; unused without it")] = (
        256
    )


class ProjectionHead(nn.Module):
    """Linear d -> d, ReLU, Linear d -> p, then a linear classifier."""

    def __init__(self, feature_dim: int, projection_dim: int, num_classes: int) -> None:
        super().__init__()
        self.projection = nn.Sequential(
            nn.Linear(feature_dim, feature_dim), nn.ReLU(), nn.Linear(feature_dim, projection_dim)
        )
        self.classifier = nn.Linear(projection_dim, num_classes)

    def forward(self, features: Tensor) -> Tensor:
        """(B, d) -> class logits (B, C)."""
        return cast(Tensor, self.classifier(self.projection(features)))


def contrastive_loss(local: Tensor, reference: Tensor, previous: Tensor, temperature: float) -> Tensor:
    """Mean of -log softmax of the cosine with the global representation against that with the previous one (eq. 3).

    Args:
        local: (B, p) representations u; the only ones with a gradient.
        reference: (B, p) u_g of the global model.
        previous: (B, p) u_p of the client's previous model.
        temperature: divides the cosines.
    """
    towards, away = (F.cosine_similarity(local, other, dim=1) for other in (reference, previous))
    return F.softplus((away - towards) / temperature).mean()


@register
class Moon(Algorithm):
    """Local models are drawn to the global representation and away from their own last one.

    With FedReLa the posterior is that of the class logits, and the previous model is kept at T: it was trained on the
    labels of before.
    """

    name: ClassVar[str] = "moon"
    citation: ClassVar[str] = "Li, He and Song, CVPR 2021"
    purpose: ClassVar[str] = "FedAvg with a contrastive term between global, local and previous representations"
    differences: ClassVar[str] = (
        "At a client's first participation the released code has no contrastive term in round 0 and the untouched "
        "initial network later; here the global model stands in for the previous one: log 2 without gradient. The "
        "released code squeezes features, which fails on a batch of one. The projection makes the network larger than "
        "FedAvg's: moon with mu 0 is FedAvg on it, use_projection false is MOON on FedAvg's."
    )
    published: ClassVar[Settings] = {
        "training.lr": 0.01,
        "training.momentum": 0.9,
        "training.weight_decay": 1e-05,
        "training.batch_size": 64,
        "training.local_epochs": 10,
        "federation.clients": 10,
        "federation.rounds": 100,
        "federation.options.mu": 5.0,
        "federation.options.temperature": 0.5,
    }
    OptionsModel: ClassVar[type[Options]] = MoonOptions
    options: MoonOptions

    def make_head(self, feature_dim: int) -> nn.Module:
        """Projection and classifier, or the classifier alone."""
        if not self.options.use_projection:
            return super().make_head(feature_dim)
        return ProjectionHead(feature_dim, self.options.projection_dim, self.num_classes)

    def client_state_floats(self, size: ModelSize) -> int:
        """The previous local model, running statistics included; none at mu = 0."""
        return size.private + (size.shared if self.options.mu else 0)

    def prepare(self, net: Net, context: LocalContext) -> None:
        """Frozen global and previous model; neither at the first participation, whose term is constant."""
        if "params" in context.state:
            server, state = context.server, context.state
            context.scratch["global"] = context.frozen(server.params, server.buffers)
            context.scratch["previous"] = context.frozen(state["params"], state["buffers"])

    def loss(self, net: Net, batch: Batch, context: LocalContext) -> Tensor:
        """CE + mu l_con."""
        if not self.options.mu:
            return super().loss(net, batch, context)
        if "previous" not in context.scratch:
            return super().loss(net, batch, context) + self.options.mu * math.log(2)
        outputs, local = _represented(net, net, batch.inputs)
        _, reference = _represented(net, context.scratch["global"], batch.inputs)
        _, previous = _represented(net, context.scratch["previous"], batch.inputs)
        contrast = contrastive_loss(local, reference, previous, self.options.temperature)
        return self.criterion(outputs, batch.labels, context) + self.options.mu * contrast

    def finish(self, update: ClientUpdate) -> None:
        """The local model becomes the client's previous one."""
        if self.options.mu:
            update.context.state["params"] = update.params.clone()
            update.context.state["buffers"] = update.buffers.clone()


def _represented(net: Net, call: Callable[[Any], Outputs], inputs: Any) -> tuple[Outputs, Tensor]:
    """Outputs of `call`, which runs `net` at its own or other values, and the representation (B, p) on the way."""
    if not isinstance(net.head, ProjectionHead):
        outputs = call(inputs)
        return outputs, outputs.features
    seen: list[Tensor] = []
    handle = net.head.projection.register_forward_hook(lambda module, args, output: seen.append(output))
    try:
        outputs = call(inputs)
    finally:
        handle.remove()
    return outputs, seen[0]
