"""FedGraB.

Xiao et al., "Fed-GraB: Federated Long-tailed Learning with Self-Adjusting Gradient Balancer", NeurIPS 2023: one
sigmoid per class; a PID controller per client and class closes the gap between the summed gradients of positives and
of negatives by re-weighting the gradient at the logits.

With delta_c = sum |positive gradients| - sum |negative gradients| so far and e = -delta, before every step
u += Kp (e_t - e_{t-1}) + Ki e_t + Kd (e_t - 2 e_{t-1} + e_{t-2}); positives are multiplied by phi(u), negatives by
phi(-u), phi(x) = (10/9) / (1/9 + exp(-x/2)).
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from fedrela_bench.algorithms.base import Algorithm, Batch, LocalContext, ModelSize, Options, Server, Settings, State
from fedrela_bench.algorithms.registry import register
from fedrela_bench.models import Net, Outputs

FINE = 1 << 24
"""Uniform draws are integers below it: they travel with the crop offsets, and single precision holds them exactly."""


class FedGraBOptions(Options):
    """Options of FedGraB."""

    kp: float = Field(default=10.0, ge=0, le=1e6, description="proportional gain of the controllers")
    ki: float = Field(default=0.01, ge=0, le=1e6, description="integral gain")
    kd: float = Field(default=0.1, ge=0, le=1e6, description="derivative gain; with all gains 0 every weight is 1")
    slope: float = Field(
        default=0.5,
        gt=0,
        le=1e3,
        description="steepness of the map from controller output to weight (0.5, range 0 to 10)",
    )
    tail: Literal["all", "norms"] = Field(
        default="all",
        description="classes that are controlled: all (released code), or those whose classifier row in the global "
        "model is shorter than the mean (the paper's prior analyzer)",
    )
    bypass: Literal["none", "id", "counts"] = Field(
        default="none",
        description="leave the r-th of R controlled classes alone with probability 0.1^(r/(R-1)) at every step: "
        "ranked by class id (released code, whose ids fall in size) or by the client's counts",
    )


def weight_of(output: Tensor, slope: float) -> Tensor:
    """phi: controller output to gradient weight, (10/9) / (1/9 + exp(-slope x)); exactly 1 at 0, from 0 to 10.

    Args:
        output: any shape.
        slope: 1/2 in the paper's setting.
    """
    # 10 / (1 + 9 exp(-x)) is the same number and rounds to 1 at x = 0.
    return 10 / (1 + 9 * torch.exp(-slope * output))


def controller_step(state: Tensor, gap: Tensor, gains: tuple[float, float, float]) -> Tensor:
    """One update of the incremental PID controllers, towards gap 0.

    Args:
        state: (3, C) output u, last error, error before it.
        gap: (C,) running gap delta.
        gains: Kp, Ki, Kd.

    Returns:
        (3, C) new state.
    """
    output, last, earlier = state
    error = -gap
    change = gains[0] * (error - last) + gains[1] * error + gains[2] * (error - 2 * last + earlier)
    return torch.stack([output + change, error, last])


def bypass_probability(tail: Tensor, order: Tensor) -> Tensor:
    """(C,) probability 0.1^(r/(R-1)) that a step leaves a tail class alone, r its rank among the R tail classes.

    Args:
        tail: (C,) bool.
        order: (C,) class ids from head to tail.
    """
    rank = torch.zeros_like(order).scatter(0, order, tail[order].cumsum(dim=0) - 1)
    probability: Tensor = 0.1 ** (rank / (tail.sum() - 1).clamp(min=1))
    return probability


@register
class FedGraB(Algorithm):
    """Federated binary cross-entropy with a self-adjusting gradient balancer per client and class.

    A client keeps its controllers and gaps (4 C floats) from round to round; gradients are measured at the logits of
    the batch mean, after re-weighting.

    With FedReLa: the labels in force decide what is positive, and rank the classes where `bypass = counts`;
    controllers and gaps are kept at T, so they carry what was summed up under the labels before. Posterior heads:
    `scored` (softmax of the logits) and `sigmoid` (the classes' sigmoid scores, normalised).
    """

    name: ClassVar[str] = "fedgrab"
    citation: ClassVar[str] = "Xiao et al., NeurIPS 2023"
    purpose: ClassVar[str] = (
        "sigmoid losses whose positive and negative gradients a controller per class keeps in balance"
    )
    differences: ClassVar[str] = (
        "The release controls all classes and bypasses each at random (tail = all with bypass = id); the paper picks "
        "tail classes from classifier norms (tail = norms; below the mean is our reading). The release never passes "
        "its classifier to the optimiser, which is taken for a slip: backbone and head are trained. Its limit of 100 "
        "on the controller's output has no effect and is left out; its public versions differ in gains and slope."
    )
    published: ClassVar[Settings] = {
        "training.lr": 0.03,
        "training.momentum": 0.5,
        "training.local_epochs": 5,
        "federation.clients": 40,
        "federation.rounds": 500,
        "federation.options.bypass": "id",
    }
    OptionsModel: ClassVar[type[Options]] = FedGraBOptions
    posterior_heads: ClassVar[tuple[str, ...]] = ("scored", "sigmoid")
    options: FedGraBOptions

    def initial_client_state(self, context: LocalContext) -> State:
        """Controllers (3, C) and gaps (C,), all 0."""
        zeros = context.server.params.new_zeros(4, self.num_classes)
        return {"controllers": zeros[:3].clone(), "gap": zeros[3].clone()}

    def client_state_floats(self, size: ModelSize) -> int:
        """Output, two errors and a gap per class."""
        return size.private + 4 * size.classes

    def prepare(self, net: Net, context: LocalContext) -> None:
        """Which classes are controlled, and how likely each is bypassed; the network is at the global model."""
        context.scratch["tail"] = tail = self._tail(net, context)
        if self.options.bypass != "none":
            counts, ids = context.label_counts, torch.arange(self.num_classes, device=context.labels.device)
            order = ids if self.options.bypass == "id" else counts.argsort(descending=True, stable=True)
            context.scratch["bypass"] = bypass_probability(tail, order) * FINE
            context.scratch["draws"] = context.generator("fedgrab")

    def _tail(self, net: Net, context: LocalContext) -> Tensor:
        if self.options.tail == "all":
            return torch.ones_like(context.label_counts, dtype=torch.bool)
        norms = cast(nn.Linear, net.head).weight.detach().norm(dim=1)
        return torch.lt(norms, norms.mean())

    def draw(self, context: LocalContext, rng: np.random.Generator, count: int) -> np.ndarray:
        """(count, d) augmentation, with bypass (count, d + C): a uniform number per class beside it."""
        moves = super().draw(context, rng, count)
        if self.options.bypass == "none":
            return moves
        uniforms = context.scratch["draws"].integers(0, FINE, (count, self.num_classes))
        return np.concatenate([moves, uniforms], axis=1)

    def inputs(self, context: LocalContext, images: Tensor, draws: Tensor) -> Any:
        """Images, with bypass the uniform numbers (b, C) beside them."""
        if self.options.bypass == "none":
            return super().inputs(context, images, draws)
        moves, uniforms = draws[:, : -self.num_classes], draws[:, -self.num_classes :]
        return super().inputs(context, images, moves), uniforms.to(images.device)

    def loss(self, net: Net, batch: Batch, context: LocalContext) -> Tensor:
        """Binary cross-entropy summed over classes, its gradient at the logits re-weighted."""
        active = context.scratch["tail"]
        images = batch.inputs
        if self.options.bypass != "none":
            images, uniforms = batch.inputs
            active = active & (uniforms[0] >= context.scratch["bypass"])
        logits = net(images).logits
        targets = torch.zeros_like(logits).scatter(1, batch.labels[:, None], 1.0)
        self._balance(logits, targets, active, context)
        return F.binary_cross_entropy_with_logits(logits, targets, reduction="sum") / len(targets)

    def _balance(self, logits: Tensor, targets: Tensor, active: Tensor, context: LocalContext) -> None:
        options, state = self.options, context.state
        stepped = controller_step(state["controllers"], state["gap"], (options.kp, options.ki, options.kd))
        state["controllers"] = torch.where(context.scratch["tail"], stepped, state["controllers"])
        output = state["controllers"][0]
        positive, negative = (torch.where(active, weight_of(sign * output, options.slope), 1) for sign in (1, -1))
        weights = torch.where(targets > 0, positive, negative)

        def reweigh(gradient: Tensor) -> Tensor:
            gradient = gradient * weights.to(gradient.dtype)
            signed = torch.where(targets > 0, gradient.abs(), -gradient.abs()).sum(dim=0)
            state["gap"] = state["gap"] + torch.where(active, signed, 0).to(state["gap"].dtype)
            return gradient

        logits.register_hook(reweigh)  # type: ignore[no-untyped-call]

    def posterior(self, net: Net, outputs: Outputs, server: Server, head: str) -> Tensor:
        """scored: the logits; sigmoid: logits whose softmax is proportional to the sigmoid scores."""
        return F.logsigmoid(outputs.logits) if head == "sigmoid" else outputs.logits
