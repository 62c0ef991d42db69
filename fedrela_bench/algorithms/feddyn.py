"""FedDyn.

Acar, Zhao, Matas Navarro, Mattina, Whatmough and Saligrama, "Federated Learning Based on Dynamic Regularization",
ICLR 2021, Algorithm 1: a client minimises f_k(w) - <g_k, w> + (alpha/2) ||w - w^t||^2, then g_k <- g_k - alpha (w_k -
w^t); the server keeps h <- h - alpha (1/K) sum_S (w_k - w^t) and sends mean_S w_k - h / alpha.

With s_k = -g_k / alpha, the sum of the client's changes, nothing is divided by alpha: the local gradient gains
alpha (s_k + w - w^t), and the server sends mean_S w_k + (1/K) sum_k s_k.
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
from fedrela_bench.algorithms.flat_ops import clients_with_data, clip_norm, load_flat, trained_floats
from fedrela_bench.algorithms.registry import register
from fedrela_bench.models import Net


class FedDynOptions(Options):
    """The regulariser, and the model that is scored."""

    alpha: Annotated[
        float,
        Field(ge=0, le=1e6, description="strength of the dynamic regulariser; 0 leaves FedAvg's local training"),
    ] = 0.01
    alpha_scaling: Annotated[
        Literal["none", "samples"],
        Field(description="samples: a client uses alpha times mean n / n_k, as the authors' code does"),
    ] = "none"
    clip_norm: Annotated[
        float,
        Field(ge=0, le=1e12, description="largest 2-norm of a local gradient; 0: no clipping (authors' code: 10)"),
    ] = 0.0
    score: Annotated[
        Literal["server", "mean_sampled", "mean_all"],
        Field(
            description="the model that is evaluated and relabels: the one sent, the mean of the round's clients, or "
            "the mean of every client's latest model"
        ),
    ] = "server"


@register
class FedDyn(Algorithm):
    """Dynamic regularisation: every client remembers the sum of its changes.

    With FedReLa the labels change and s_k is kept. With another `score` than `server`, `Server.params` is the scored
    model and the one that clients start from lies in the server's state.
    """

    name: ClassVar[str] = "feddyn"
    citation: ClassVar[str] = "Acar et al., ICLR 2021"
    purpose: ClassVar[str] = "per-client dynamic regulariser whose fixed points are those of the global loss"
    differences: ClassVar[str] = (
        "alpha -> 0 is not FedAvg: local training is, but the server still sends mean w_k + (1/K) sum s_k, after the "
        "first round twice the mean minus the start. The authors' code scales alpha by mean n / n_k, clips gradients "
        "at norm 10 and reports several models (options). clip_norm bounds the gradient of loss and regulariser "
        "together, before momentum and weight decay; by default nothing is clipped. A norm penalty without square in "
        "FedETF's repository is not FedDyn. Clients that never took part are not in mean_all."
    )
    published: ClassVar[Settings] = {
        "training.lr": 0.1,
        "training.momentum": 0.0,
        "training.weight_decay": 0.001,
        "training.batch_size": 50,
        "training.local_epochs": 5,
        "federation.options.alpha": 0.01,
        "federation.options.alpha_scaling": "samples",
        "federation.options.clip_norm": 10.0,
    }
    OptionsModel: ClassVar[type[Options]] = FedDynOptions
    options: FedDynOptions

    def client_state_floats(self, size: ModelSize) -> int:
        """The client's s_k, and its latest model where that is scored."""
        return trained_floats(size) * (2 if self.options.score == "mean_all" else 1)

    def communication(self, size: ModelSize) -> tuple[int, int]:
        """The model both ways; for `mean_all` also the change of the client's latest model up."""
        extra = trained_floats(size) if self.options.score == "mean_all" else 0
        return size.shared, size.shared + extra

    def initial_server_state(self, server: Server) -> State:
        """The sum of all s_k, and what the scored mean needs."""
        state = {"drift": torch.zeros_like(server.params)}
        if self.options.score != "server":
            state["start"] = server.params.clone()
        if self.options.score == "mean_all":
            state |= {"latest": torch.zeros_like(server.params), "seen": server.params.new_zeros(())}
        return state

    def initial_client_state(self, context: LocalContext) -> State:
        """Start with s_k = 0."""
        return {"drift": torch.zeros_like(context.server.params)}

    def prepare(self, net: Net, context: LocalContext) -> None:
        """This client's alpha; start from the model that was sent where another one is scored."""
        context.scratch["alpha"] = self._alpha(context)
        if self.options.score != "server":
            load_flat(net, context.server.state["start"])

    def _alpha(self, context: LocalContext) -> float:
        if self.options.alpha_scaling == "none":
            return self.options.alpha
        mean = float(context.server.client_sizes.sum()) / clients_with_data(context.server)
        return self.options.alpha * mean / context.samples

    def _start(self, server: Server) -> Tensor:
        return server.params if self.options.score == "server" else server.state["start"]

    def adjusts_gradient(self) -> bool:
        """Skipped where neither term is asked for, so that local training is FedAvg's bit for bit."""
        return self.options.alpha > 0 or self.options.clip_norm > 0

    def adjust_gradient(self, gradient: Tensor, params: Tensor, context: LocalContext) -> None:
        """Add alpha (s_k + w - w^t), then clip."""
        alpha = context.scratch["alpha"]
        gradient.add_(context.state["drift"], alpha=alpha)
        gradient.add_(params - self._start(context.server), alpha=alpha)
        if self.options.clip_norm:
            clip_norm(gradient, self.options.clip_norm)

    def finish(self, update: ClientUpdate) -> None:
        """Let s_k gain w_k - w^t."""
        context = update.context
        change = update.params - self._start(context.server)
        context.scratch["change"] = change
        context.state["drift"] = context.state["drift"] + change
        if self.options.score == "mean_all":
            known = context.state.get("latest")
            context.scratch["newcomer"] = known is None
            context.state["latest"] = update.params.clone()
            context.scratch["news"] = context.state["latest"] if known is None else update.params - known

    def new_sums(self, server: Server) -> State:
        """Sum of changes; for `mean_all` also of the changes of the latest models."""
        sums = {"change": torch.zeros_like(server.params)}
        if self.options.score == "mean_all":
            sums |= {"latest": torch.zeros_like(server.params), "seen": server.params.new_zeros(())}
        return sums

    def accumulate(self, sums: State, update: ClientUpdate) -> None:
        """Add w_k - w^t."""
        scratch = update.context.scratch
        sums["change"].add_(scratch["change"])
        if self.options.score == "mean_all":
            sums["latest"].add_(scratch["news"])
            sums["seen"].add_(float(scratch["newcomer"]))

    def server_step(self, sums: State, server: Server, participants: Sequence[int]) -> Tensor:
        """The model mean_S w_k + (1/K) sum_k s_k, or the mean that is scored."""
        mean = self._start(server) + sums["change"] / len(participants)
        server.state["drift"] = server.state["drift"] + sums["change"]
        following = mean + server.state["drift"] / clients_with_data(server)
        if self.options.score == "server":
            return following
        server.state["start"] = following
        if self.options.score == "mean_sampled":
            return mean
        for name in ("latest", "seen"):
            server.state[name] = server.state[name] + sums[name]
        return server.state["latest"] / server.state["seen"]
