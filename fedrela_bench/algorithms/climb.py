"""CLIMB.

Shen, Cervino, Hassani and Ribeiro, "An Agnostic Approach to Federated Learning with Class Imbalance", ICLR 2022: the
mean of the clients' losses f_k is minimised subject to f_k <= mean_j f_j + eps for every client. One dual round: all
clients report L_k at w; w_k = 1 + lambda_k - mean lambda weighs the clients in n_p primal rounds; lambda_k <-
clip(lambda_k + lr_d (L_k - mean L - eps) / K, 0, 100).

The `fedpd` learner of the released code is primal-dual proximal (Zhang, Hong, Dhople, Yin and Liu, "FedPD", IEEE
Transactions on Signal Processing 2021): w_k CE + <v_k, w> + ||w - w^t||^2 / (2 eta), then v_k <- v_k + (w_k - w^t) /
eta; the server adds the mean of eta v_k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, StrictBool
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
from fedrela_bench.algorithms.flat_ops import clip_norm, step_towards, trained_floats
from fedrela_bench.algorithms.registry import register
from fedrela_bench.models import Net, Outputs

DUAL_CEILING = 100.0
"""Largest lambda_k."""
PROBE_BATCH = 200
"""Images per forward pass of the mean signal: larger ones fall out of the cache of a core."""


class ClimbOptions(Options):
    """Dual variables, their signal, and the local learner."""

    epsilon: Annotated[
        float,
        Field(ge=0, le=1e6, description="slack of the constraints, in units of dual_signal (authors: 1 for batch_sum)"),
    ] = 0.1
    dual_lr: Annotated[
        float,
        Field(ge=0, le=1e6, description="step of the dual variables; 0 is FedAvg with uniform weights"),
    ] = 1.0
    primal_rounds: Annotated[
        int,
        Field(ge=1, le=1_000_000, description="rounds between two probes of all clients, n_p"),
    ] = 5
    dual_signal: Annotated[
        Literal["mean", "batch_sum"],
        Field(
            description="a client's reported loss: mean over its images, or the released sum over mini-batches of "
            "batch means on augmented images"
        ),
    ] = "mean"
    clip_weights: Annotated[
        StrictBool, Field(description="raise negative client weights to 0, which the paper does not")
    ] = False
    server_lr: Annotated[float, Field(gt=0, le=1e6, description="length of the server's step")] = 1.0
    learner: Annotated[
        Literal["fedavg", "fedpd"],
        Field(description="fedavg: weights on the clients' changes; fedpd: weights in a primal-dual proximal loss"),
    ] = "fedavg"
    pd_eta: Annotated[
        float, Field(gt=0, le=1e12, description="fedpd: inverse strength of the proximal term (authors: 10)")
    ] = 10.0
    pd_clip: Annotated[
        float, Field(ge=0, le=1e12, description="fedpd: largest 2-norm of a local gradient; 0: none (authors: 5)")
    ] = 5.0


@register
class Climb(Algorithm):
    """A dual variable per client on the server weighs the clients; means are over clients, not samples.

    With FedReLa the losses reported after T are those of the labels in force, and the dual variables are kept, as are
    the clients' own of the `fedpd` learner. Empty clients are no clients here.
    """

    name: ClassVar[str] = "climb"
    citation: ClassVar[str] = "Shen et al., ICLR 2022"
    purpose: ClassVar[str] = "clients whose loss exceeds the mean get more weight through dual variables"
    differences: ClassVar[str] = (
        "The weights are per client, although FedReLa's text says per class. Released code: learner fedpd, and a dual "
        "signal that sums batch means, 5 to 6 times the mean loss, so that its epsilon 1 is about 0.2 of ours; "
        "default here: learner fedavg, mean loss in eval mode without augmentation, epsilon 0.1. Rounds are primal "
        "rounds: in every primal_rounds-th, from the first on, all clients get the model and report, also those that "
        "do not take part. A report moves lambda after the weights were taken from it, so that it counts from the "
        "next dual round on."
    )
    published: ClassVar[Settings] = {
        "training.lr": 0.1,
        "training.momentum": 0.0,
        "training.weight_decay": 0.001,
        "training.local_epochs": 5,
        "federation.clients": 100,
        "federation.options.learner": "fedpd",
        "federation.options.dual_signal": "batch_sum",
        "federation.options.epsilon": 1.0,
        "federation.options.primal_rounds": 5,
    }
    OptionsModel: ClassVar[type[Options]] = ClimbOptions
    options: ClimbOptions

    @property
    def _primal_dual(self) -> bool:
        return self.options.learner == "fedpd"

    def client_state_floats(self, size: ModelSize) -> int:
        """The `fedpd` learner keeps v_k."""
        return trained_floats(size) if self._primal_dual else 0

    def communication(self, size: ModelSize) -> tuple[int, int]:
        """In a dual round: the model both ways, the loss up; `fedpd` clients need their weight.

        The other rounds save the one float; clients that only report get the model in a dual round, too.
        """
        return size.shared + int(self._primal_dual), size.shared + 1

    def initial_server_state(self, server: Server) -> State:
        """Dual variables 0, weights 1."""
        zeros = server.params.new_zeros(server.clients)
        return {"dual": zeros, "weights": torch.ones_like(zeros)}

    def initial_client_state(self, context: LocalContext) -> State:
        """Start with v_k = 0."""
        return {"dual": torch.zeros_like(context.server.params)} if self._primal_dual else {}

    # dual round ------------------------------------------------------------------------------------------------------

    def probe_clients(self, server: Server, participants: Sequence[int]) -> Sequence[int]:
        """Everyone, every n_p rounds."""
        return () if server.round % self.options.primal_rounds else range(server.clients)

    @torch.no_grad()
    def probe(self, net: Net, context: LocalContext) -> State:
        """L_k: () loss at the global model."""
        return {
            "loss": self._batch_sum(net, context) if self.options.dual_signal == "batch_sum" else _mean(net, context)
        }

    def _batch_sum(self, net: Net, context: LocalContext) -> Tensor:
        order = torch.from_numpy(context.generator("climb shuffle").permutation(context.samples))
        draws = torch.from_numpy(context.pipeline.draws(context.generator("climb augment"), context.samples))
        rows, draws = order.to(context.images.device), draws.to(context.images.device)
        total = context.server.params.new_zeros(())
        for span in _spans(context.samples, context.batch_size):
            part = rows[span]
            logits = net(context.pipeline.train(context.images[part], draws[span])).logits
            total += F.cross_entropy(logits, context.labels[part])
        return total

    def receive(self, server: Server, messages: Mapping[int, State]) -> None:
        """Weights from the dual variables, then the dual step with the losses."""
        clients = torch.tensor(list(messages), device=server.params.device)
        dual = server.state["dual"].index_select(0, clients)
        losses = torch.stack([message["loss"] for message in messages.values()]).to(dual.dtype)
        weights = 1 + dual - dual.mean()
        if self.options.clip_weights:
            weights = weights.clamp(min=0)
        step = self.options.dual_lr * (losses - losses.mean() - self.options.epsilon) / len(messages)
        raised = (dual + step).clamp(0, DUAL_CEILING)
        server.state["weights"] = server.state["weights"].index_copy(0, clients, weights)
        server.state["dual"] = server.state["dual"].index_copy(0, clients, raised)

    # primal round ----------------------------------------------------------------------------------------------------

    def criterion(self, outputs: Outputs, labels: Tensor, context: LocalContext) -> Tensor:
        """Cross-entropy; the `fedpd` learner weighs it."""
        loss = super().criterion(outputs, labels, context)
        return context.server.state["weights"][context.client] * loss if self._primal_dual else loss

    def adjusts_gradient(self) -> bool:
        """Only the `fedpd` learner."""
        return self._primal_dual

    def adjust_gradient(self, gradient: Tensor, params: Tensor, context: LocalContext) -> None:
        """Add v_k + (w - w^t) / eta, then clip."""
        gradient.add_(context.state["dual"])
        gradient.add_(params - context.server.params, alpha=1 / self.options.pd_eta)
        if self.options.pd_clip:
            clip_norm(gradient, self.options.pd_clip)

    def finish(self, update: ClientUpdate) -> None:
        """Let v_k gain (w_k - w^t) / eta."""
        if self._primal_dual:
            context = update.context
            change = (update.params - context.server.params) / self.options.pd_eta
            context.state["dual"] = context.state["dual"] + change

    def new_sums(self, server: Server) -> State:
        """Weighted parameters and the weights."""
        return {"params": torch.zeros_like(server.params), "weight": server.params.new_zeros(())}

    def accumulate(self, sums: State, update: ClientUpdate) -> None:
        """Add w_k times the client's parameters, or eta v_k."""
        context = update.context
        if self._primal_dual:
            sums["params"].add_(context.state["dual"], alpha=self.options.pd_eta)
            return
        weight = context.server.state["weights"][context.client]
        sums["params"].addcmul_(update.params, weight)
        sums["weight"].add_(weight)

    def server_step(self, sums: State, server: Server, participants: Sequence[int]) -> Tensor:
        """Go lr_g times the mean of w_k Delta_k, or of eta v_k."""
        mean = sums["params"] / len(participants)
        if self._primal_dual:
            return server.params + self.options.server_lr * mean
        # At equal weights the rest is an exact zero, so that the plain mean is met bit for bit.
        mean = mean + (1 - sums["weight"] / len(participants)) * server.params
        return step_towards(server.params, mean, self.options.server_lr)


def _mean(net: Net, context: LocalContext) -> Tensor:
    total = context.server.params.new_zeros(())
    for span in _spans(context.samples, PROBE_BATCH):
        logits = net(context.pipeline.plain(context.images[span])).logits
        total += F.cross_entropy(logits, context.labels[span], reduction="sum")
    return total / context.samples


def _spans(count: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, count, size)]
