"""SCAFFOLD.

Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
ICML 2020, Algorithm 1 with option II: local steps along g + c - c_k, then c_k <- c_k - c + (w^t - w_k) / (K_k lr).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

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
from fedrela_bench.algorithms.fednova import accumulated_weight
from fedrela_bench.algorithms.flat_ops import clients_with_data, step_towards, trained_floats
from fedrela_bench.algorithms.registry import register
from fedrela_bench.models import Net


class ScaffoldOptions(Options):
    """The paper's setting is training.momentum = 0, server_lr 1, uniform weights."""

    server_lr: Annotated[
        float, Field(gt=0, le=1e6, description="length of the server's step along the mean change; the paper uses 1")
    ] = 1.0
    weighting: Annotated[
        Literal["uniform", "samples"],
        Field(description="mean over participants: uniform as in the paper, or by their numbers of samples"),
    ] = "uniform"


@register
class Scaffold(Algorithm):
    """Local gradients corrected by the difference of the server's and the client's control variate.

    With FedReLa the labels change and the variates are kept: they learn the new gradients at the client's next
    participation. Empty clients don't count as clients in the server's variate.
    """

    name: ClassVar[str] = "scaffold"
    citation: ClassVar[str] = "Karimireddy et al., ICML 2020"
    purpose: ClassVar[str] = "control variates on server and clients correct the drift of local gradients"
    differences: ClassVar[str] = (
        "The paper's option II holds for SGD without momentum; with training.momentum > 0 the number of steps K_k is "
        "replaced by FedNova's ||a_k||_1. Benchmark code also corrects batch-norm statistics; here they take the "
        "n-weighted mean and have no variate."
    )
    published: ClassVar[Settings] = {
        "training.momentum": 0.0,
    }
    OptionsModel: ClassVar[type[Options]] = ScaffoldOptions
    options: ScaffoldOptions

    def client_state_floats(self, size: ModelSize) -> int:
        """The client's variate."""
        return trained_floats(size)

    def communication(self, size: ModelSize) -> tuple[int, int]:
        """Model and variate, both ways."""
        both = size.shared + trained_floats(size)
        return both, both

    def initial_server_state(self, server: Server) -> State:
        """Start with c = 0."""
        return {"variate": torch.zeros_like(server.params)}

    def initial_client_state(self, context: LocalContext) -> State:
        """Start with c_k = 0."""
        return {"variate": torch.zeros_like(context.server.params)}

    def prepare(self, net: Net, context: LocalContext) -> None:
        """Take c - c_k, the same at every step of the round."""
        context.scratch["correction"] = context.server.state["variate"] - context.state["variate"]

    def adjusts_gradient(self) -> bool:
        """Always; the first round adds exact zeros."""
        return True

    def adjust_gradient(self, gradient: Tensor, params: Tensor, context: LocalContext) -> None:
        """Add c - c_k."""
        gradient.add_(context.scratch["correction"])

    def finish(self, update: ClientUpdate) -> None:
        """Let c_k become c_k - c + (w^t - w_k) / (||a_k||_1 lr)."""
        context = update.context
        scale = 1 / (accumulated_weight(update.steps, context.momentum) * context.lr)
        change = (context.server.params - update.params).mul_(scale).sub_(context.server.state["variate"])
        context.state["variate"] = context.state["variate"] + change
        context.scratch["change"] = change

    def new_sums(self, server: Server) -> State:
        """Sums of parameters and of the changes of the variates."""
        return {"params": torch.zeros_like(server.params), "variate": torch.zeros_like(server.params)}

    def accumulate(self, sums: State, update: ClientUpdate) -> None:
        """Add a client's parameters and the change of its variate."""
        weight = update.weight if self.options.weighting == "samples" else 1.0
        sums["params"].add_(update.params, alpha=weight)
        sums["variate"].add_(update.context.scratch["change"], alpha=weight)

    def server_step(self, sums: State, server: Server, participants: Sequence[int]) -> Tensor:
        """Go lr_g times the mean change; c gains |S| / K times the mean change of the variates."""
        count = 1 if self.options.weighting == "samples" else len(participants)
        share = len(participants) / clients_with_data(server)
        server.state["variate"] = server.state["variate"] + sums["variate"] * (share / count)
        return step_towards(server.params, sums["params"] / count, self.options.server_lr)
