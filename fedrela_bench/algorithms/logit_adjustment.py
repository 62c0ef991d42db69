"""Logit adjustment and balanced softmax.

Menon, Jayasumana, Rawat, Jain, Veit and Kumar, "Long-tail learning via logit adjustment", ICLR 2021: cross-entropy of
z + tau log pi (eq. 10), or plain training and argmax of z - tau log pi (eq. 9). Ren, Yu, Sheng, Ma, Zhao, Yi and Li,
"Balanced Meta-Softmax for Long-Tailed Visual Recognition", NeurIPS 2020: the former with pi = n_c and tau = 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor

from fedrela_bench.algorithms.base import Algorithm, LocalContext, ModelSize, Options, Server, State
from fedrela_bench.algorithms.passes import plain_outputs
from fedrela_bench.algorithms.registry import register
from fedrela_bench.models import Net, Outputs

PRIOR_FLOOR = 1e-12

Absent = Literal["mask", "floor", "one"]
Prior = Literal["auto", "local", "global_oracle", "estimated"]
ABSENT = "classes with prior 0: mask leaves them out, floor gives them prior 1e-12, one counts them once"


class BalancedSoftmaxOptions(Options):
    """Options of balanced softmax."""

    absent: Absent = Field(default="mask", description=ABSENT)


class LogitAdjustmentOptions(BalancedSoftmaxOptions):
    """Options of logit adjustment."""

    tau: float = Field(default=1.0, ge=0, le=1e3, description="strength; 0 is cross-entropy")
    form: Literal["loss", "posthoc"] = Field(
        default="loss", description="loss: train on z + tau log prior; posthoc: train plainly, score z - tau log prior"
    )
    prior: Prior = Field(
        default="auto",
        description="local: the client's own label counts (loss only); global_oracle: those of all clients together; "
        "estimated: mean prediction of the global model on the participants' images (posthoc only); auto: local in the "
        "loss, global_oracle posthoc",
    )

    @field_validator("prior")
    @classmethod
    def _prior_suits_the_form(cls, prior: Prior, info: ValidationInfo) -> Prior:
        form, needed = info.data.get("form"), {"local": "loss", "estimated": "posthoc"}.get(prior)
        if form is not None and needed not in (None, form):
            choices = "auto, local or global_oracle" if form == "loss" else "auto, global_oracle or estimated"
            raise ValueError(f"is for form = {needed}; with form = {form} choose {choices}")
        return prior

    @property
    def source(self) -> str:
        """Where the prior comes from, `auto` resolved."""
        return self.prior if self.prior != "auto" else {"loss": "local", "posthoc": "global_oracle"}[self.form]


def log_prior(counts: Tensor, absent: Absent, carried: Tensor | None = None) -> Tensor:
    """(C,) log of the prior; -inf for classes that are masked.

    Args:
        counts: (C,) class counts or probabilities, floating.
        absent: see `BalancedSoftmaxOptions`.
        carried: (n,) labels that samples carry; their classes are never masked, whatever the counts say, since a masked
            true class has an infinite loss.
    """
    if absent == "one":
        counts = counts.clamp(min=1)
    prior = (counts / counts.sum()).clamp(min=PRIOR_FLOOR).log()
    if absent != "mask":
        return prior
    missing = counts == 0
    if carried is not None:
        missing = missing.index_fill(0, carried, False)
    return prior.masked_fill(missing, -torch.inf)


def posthoc_logits(logits: Tensor, prior: Tensor, tau: float) -> Tensor:
    """The logits z - tau log pi (Menon et al., eq. 9); a masked class is never predicted.

    Args:
        logits: (B, C).
        prior: (C,) from `log_prior`.
        tau: strength; at 0 nothing is done.
    """
    if tau == 0:
        return logits
    return logits + torch.where(prior == -torch.inf, prior, -tau * prior)


def adjusted_loss(logits: Tensor, labels: Tensor, prior: Tensor, tau: float) -> Tensor:
    """Cross-entropy of z + tau log pi (Menon et al., eq. 10); at tau = 0 the term is skipped.

    Args:
        logits: (B, C).
        labels: (B,) class ids, none of them masked.
        prior: (C,) from `log_prior`.
        tau: strength.
    """
    return F.cross_entropy(logits + tau * prior if tau else logits, labels)


@register
class LogitAdjustment(Algorithm):
    """FedAvg with the label prior in the loss, or taken out of the logits at test.

    With FedReLa: priors count the labels in force, a global one anew every round, so a relabelled sample counts for
    its new class. Posterior heads: `unadjusted` (the logits without any prior) and `scored` (what the test uses:
    adjusted in the posthoc form, else the same). No client state.
    """

    name: ClassVar[str] = "logit_adjustment"
    citation: ClassVar[str] = "Menon et al., ICLR 2021"
    purpose: ClassVar[str] = "FedAvg with logits shifted by the log prior of the labels, in training or after it"
    differences: ClassVar[str] = (
        "The paper has one data set and so one prior; in federated use every client has its own (prior = local, the "
        "default in the loss). global_oracle lets the server add up label counts, which FedReLa's setting does not "
        "disclose. Classes without samples are masked (the authors' code adds 1e-12 to the prior: absent = floor)."
    )
    OptionsModel: ClassVar[type[Options]] = LogitAdjustmentOptions
    posterior_heads: ClassVar[tuple[str, ...]] = ("unadjusted", "scored")
    options: LogitAdjustmentOptions

    def _asks(self) -> bool:
        return self.options.tau > 0 and self.options.source != "local"

    def initial_server_state(self, server: Server) -> State:
        """(C,) class counts or probabilities, equal at first."""
        return {"prior": server.params.new_ones(server.num_classes)} if self._asks() else {}

    def communication(self, size: ModelSize) -> tuple[int, int]:
        """The model; a global prior costs C floats up (of every client, asked or training), and down for the loss."""
        extra = size.classes if self._asks() else 0
        return size.shared + (extra if self.options.form == "loss" else 0), size.shared + extra

    def probe_clients(self, server: Server, participants: Sequence[int]) -> Sequence[int]:
        """Everybody counts for the oracle; the estimate comes from those who take part."""
        if not self._asks():
            return ()
        return participants if self.options.source == "estimated" else range(server.clients)

    def probe(self, net: Net, context: LocalContext) -> State:
        """(C,) label counts, or the sum of the global model's predictions."""
        if self.options.source == "global_oracle":
            return {"counts": context.label_counts.to(context.server.params.dtype)}
        logits = plain_outputs(net, context.pipeline, context.images).logits
        return {"counts": logits.softmax(dim=1).sum(dim=0)}

    def receive(self, server: Server, messages: Mapping[int, State]) -> None:
        """The prior of this round."""
        server.state["prior"] = torch.stack([message["counts"] for message in messages.values()]).sum(dim=0)

    def criterion(self, outputs: Outputs, labels: Tensor, context: LocalContext) -> Tensor:
        """Cross-entropy, of adjusted logits in the loss form."""
        if self.options.form == "posthoc" or self.options.tau == 0:
            return F.cross_entropy(outputs.logits, labels)
        return adjusted_loss(outputs.logits, labels, self._training_prior(context), self.options.tau)

    def _training_prior(self, context: LocalContext) -> Tensor:
        if "log_prior" not in context.scratch:
            server = context.server
            local = self.options.source == "local"
            counts = context.label_counts.to(server.params.dtype) if local else server.state["prior"]
            context.scratch["log_prior"] = log_prior(counts, self.options.absent, context.labels)
        found: Tensor = context.scratch["log_prior"]
        return found

    def score(self, net: Net, outputs: Outputs, server: Server) -> Tensor:
        """The logits, less tau log prior in the posthoc form."""
        if self.options.form == "loss" or self.options.tau == 0:
            return outputs.logits
        return posthoc_logits(outputs.logits, log_prior(server.state["prior"], self.options.absent), self.options.tau)

    def posterior(self, net: Net, outputs: Outputs, server: Server, head: str) -> Tensor:
        """unadjusted: z; scored: the logits of the test."""
        return self.score(net, outputs, server) if head == "scored" else outputs.logits


@register
class BalancedSoftmax(Algorithm):
    """FedAvg with balanced softmax: logit adjustment with tau 1 and each client's own counts.

    With FedReLa: the counts are those of the labels in force. The posterior is the softmax of the unadjusted logits,
    which are also scored. No client state.
    """

    name: ClassVar[str] = "balanced_softmax"
    citation: ClassVar[str] = "Ren et al., NeurIPS 2020"
    purpose: ClassVar[str] = "FedAvg with the softmax weighted by each client's class counts"
    differences: ClassVar[str] = (
        "Only the balanced softmax; the paper's meta sampler is left out. Classes without samples at a client are "
        "masked, as a count of 0 has it; FedETF and FedRoD count them once (absent = one)."
    )
    OptionsModel: ClassVar[type[Options]] = BalancedSoftmaxOptions
    options: BalancedSoftmaxOptions

    def criterion(self, outputs: Outputs, labels: Tensor, context: LocalContext) -> Tensor:
        """Cross-entropy of z + log n_c."""
        if "log_prior" not in context.scratch:
            counts = context.label_counts.to(outputs.logits.dtype)
            context.scratch["log_prior"] = log_prior(counts, self.options.absent, context.labels)
        return adjusted_loss(outputs.logits, labels, context.scratch["log_prior"], tau=1.0)
