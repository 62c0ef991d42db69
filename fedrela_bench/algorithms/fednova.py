"""FedNova.

Wang, Liu, Liang, Joshi and Poor, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization", NeurIPS 2020: a client's change Delta_k is a weighted sum of its gradients with weights a_k; the server
divides by ||a_k||_1 and steps tau_eff = sum_k p_k ||a_k||_1 along the mean (eqs. 9-11, Table 1 for a_k).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import torch
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
from fedrela_bench.algorithms.registry import register


class FedNovaOptions(Options):
    """Momentum of the server's step, and the proximal variant."""

    server_momentum: Annotated[
        float,
        Field(ge=0, lt=1, description="heavy-ball momentum of the server's step; 0 is the paper's main algorithm"),
    ] = 0.0
    mu: Annotated[
        float,
        Field(
            ge=0,
            le=1e6,
            description="proximal pull mu (w - w^t) of the local solver; above 0 the step is sum p_k K_k, as released",
        ),
    ] = 0.0


def accumulated_weight(steps: int, momentum: float, pull: float = 0.0) -> float:
    """||a||_1: by how much K local steps multiply their mean gradient, in units of the learning rate.

    Without momentum and pull it is K; with momentum [K - m (1 - m^K) / (1 - m)] / (1 - m); with the pull alone the sum
    of (1 - pull)^j.

    Args:
        steps: K, at least 1.
        momentum: of heavy-ball SGD whose buffer starts empty.
        pull: learning rate times mu of a proximal term that enters before momentum.
    """
    velocity, position, total = 1.0, 0.0, 0.0
    for _ in range(steps):
        position += velocity
        total += abs(position)
        velocity = momentum * velocity - pull * position
    return total


@register
class FedNova(Algorithm):
    """Clients' changes normalised by their accumulated weight; the loss is FedAvg's.

    With FedReLa nothing but the labels changes: steps, weights p_k and the server's momentum go on as they were.
    """

    name: ClassVar[str] = "fednova"
    citation: ClassVar[str] = "Wang et al., NeurIPS 2020"
    purpose: ClassVar[str] = "FedAvg whose client changes are normalised by their numbers of local steps"
    differences: ClassVar[str] = (
        "Released benchmark code also sends batch-norm statistics through the formula and weighs by all clients' data "
        "when only some take part; here statistics take the n-weighted mean and p_k refers to the participants. The "
        "released optimiser adds the proximal pull after momentum; here it is before, as in fedprox."
    )
    published: ClassVar[Settings] = {
        "training.lr": 0.02,
        "training.momentum": 0.9,
        "training.weight_decay": 0.0001,
        "training.batch_size": 32,
        "training.local_epochs": 2,
    }
    OptionsModel: ClassVar[type[Options]] = FedNovaOptions
    options: FedNovaOptions

    def communication(self, size: ModelSize) -> tuple[int, int]:
        """The model both ways and ||a_k||_1 up."""
        return size.shared, size.shared + 1

    def initial_server_state(self, server: Server) -> State:
        """The server's momentum, where there is any."""
        return {"velocity": torch.zeros_like(server.params)} if self.options.server_momentum else {}

    def adjusts_gradient(self) -> bool:
        """Only for the proximal variant."""
        return self.options.mu > 0

    def adjust_gradient(self, gradient: Tensor, params: Tensor, context: LocalContext) -> None:
        """Add mu (w - w^t)."""
        gradient.add_(params - context.server.params, alpha=self.options.mu)

    def new_sums(self, server: Server) -> State:
        """Sum of p_k Delta_k / ||a_k||_1, and tau_eff."""
        return {"direction": torch.zeros_like(server.params), "length": server.params.new_zeros(())}

    def accumulate(self, sums: State, update: ClientUpdate) -> None:
        """Add a client's normalised change and its share of tau_eff."""
        context, mu = update.context, self.options.mu
        weight = accumulated_weight(update.steps, context.momentum, context.lr * mu)
        sums["direction"].add_(update.params - context.server.params, alpha=update.weight / weight)
        sums["length"].add_(update.weight * (update.steps if mu else weight))

    def server_step(self, sums: State, server: Server, participants: Sequence[int]) -> Tensor:
        """Go tau_eff along sum_k p_k Delta_k / ||a_k||_1."""
        change = sums["length"] * sums["direction"]
        if self.options.server_momentum:
            change = change + self.options.server_momentum * server.state["velocity"]
            server.state["velocity"] = change
        return server.params + change
