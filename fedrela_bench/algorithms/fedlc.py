"""FedLC.

Zhang, Li, Li, Xu, Wu, Ding and Wu, "Federated Learning with Label Distribution Skew via Logits Calibration", ICML 2022:
a client minimises cross-entropy of logits lowered by a margin tau n_c^(-1/4), larger for its rarer classes.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedrela_bench.algorithms.base import Algorithm, LocalContext, Options
from fedrela_bench.algorithms.registry import register
from fedrela_bench.models import Net, Outputs

FLOOR = 1e-8


class FedLCOptions(Options):
    """Size of the margin, and what is compared in the softmax."""

    tau: Annotated[float, Field(ge=0, le=1e4, description="factor of the margins n_c^(-1/4)")] = 1.0
    denominator: Annotated[
        Literal["all", "exclude_true"],
        Field(description="classes in the denominator; without the true one, as printed, the loss has no lower bound"),
    ] = "all"
    absent: Annotated[
        Literal["mask", "floor", "one"],
        Field(description="classes without local samples: out of the softmax, counted 1e-8, or counted once"),
    ] = "mask"


def margins_of(counts: Tensor, tau: float, absent: str) -> Tensor:
    """(C,) margins tau n_c^(-1/4); classes counted 0 as 1e-8 under ``floor``, as 1 otherwise.

    Args:
        counts: (C,) local class counts of the dtype of the logits.
        tau: factor.
        absent: ``mask``, ``floor`` or ``one``.
    """
    return tau * counts.clamp(min=FLOOR if absent == "floor" else 1.0).pow(-0.25)


def calibrated_loss(logits: Tensor, labels: Tensor, margins: Tensor | None, masked: Tensor | None) -> Tensor:
    """Cross-entropy of the logits less their margins, batch mean.

    Args:
        logits: (B, C).
        labels: (B,) class ids, none of a masked class.
        margins: (C,), or None to leave the term out.
        masked: (C,) bool, classes out of the softmax, or None.
    """
    calibrated = logits if margins is None else logits - margins
    return F.cross_entropy(calibrated if masked is None else calibrated.masked_fill(masked, -torch.inf), labels)


def excluding_loss(logits: Tensor, labels: Tensor, margins: Tensor | None, masked: Tensor | None) -> Tensor:
    """The loss as printed: -z_y + log of the sum of exp z_c over c != y, batch mean; 0 where no other class is left.

    Args and shapes as `calibrated_loss`.
    """
    calibrated = logits if margins is None else logits - margins
    own = F.one_hot(labels, logits.shape[1]).bool()
    out = own if masked is None else own | masked
    alone = out.all(dim=1)
    # Without another class the sum is empty: its gradient must not be formed, or 0 times it would be nan.
    others = calibrated.masked_fill(out & ~alone[:, None], -torch.inf).logsumexp(dim=1)
    true = calibrated.gather(1, labels[:, None])[:, 0]
    return torch.where(alone, 0.0, others - true).mean()


@register
class FedLC(Algorithm):
    """Logit calibration by the local class counts.

    Beside FedReLa: the posterior and the score are the plain logits; margins follow the label statistics in force, and
    a class is masked only when no sample carries it, so that a label moved into an absent class has a finite loss.
    """

    name: ClassVar[str] = "fedlc"
    citation: ClassVar[str] = "Zhang et al., ICML 2022"
    purpose: ClassVar[str] = "cross-entropy with larger margins for locally rarer classes"
    differences: ClassVar[str] = (
        "The printed loss leaves the true class out of the denominator and has no lower bound (it diverges in a public "
        "benchmark): denominator = exclude_true. Public code keeps it in; so does the default. The paper says nothing "
        "of absent classes, public code counts them 1e-8, which is a mask in float32: absent = mask by default."
    )
    OptionsModel: ClassVar[type[Options]] = FedLCOptions
    options: FedLCOptions

    def prepare(self, net: Net, context: LocalContext) -> None:
        """Margins and mask of this client."""
        tau, absent = self.options.tau, self.options.absent
        counts = context.label_counts.to(context.server.params.dtype)
        context.scratch["margins"] = margins_of(counts, tau, absent) if tau else None
        carried = torch.zeros_like(counts).scatter_(0, context.labels, 1.0)
        context.scratch["masked"] = carried == 0 if absent == "mask" else None

    def criterion(self, outputs: Outputs, labels: Tensor, context: LocalContext) -> Tensor:
        """Calibrated cross-entropy; with tau = 0 and nothing masked, plain cross-entropy bit for bit."""
        loss = calibrated_loss if self.options.denominator == "all" else excluding_loss
        return loss(outputs.logits, labels, context.scratch["margins"], context.scratch["masked"])
