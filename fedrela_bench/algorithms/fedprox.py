"""FedProx.

Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, "Federated Optimization in Heterogeneous Networks", MLSys 2020, eq. (2):
a client minimises F_k(w) + (mu/2) ||w - w^t||^2.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from fedrela_bench.algorithms.base import Algorithm, LocalContext, Options
from fedrela_bench.algorithms.registry import register


class FedProxOptions(Options):
    """mu: strength of the pull towards the global model; 0 is FedAvg. The authors tune it in {0.001, 0.01, 0.1, 1}."""

    mu: Annotated[float, Field(ge=0, le=1e6)] = 0.01


@register
class FedProx(Algorithm):
    """FedAvg with the proximal pull added to the gradient before momentum."""

    name: ClassVar[str] = "fedprox"
    citation: ClassVar[str] = "Li et al., MLSys 2020"
    purpose: ClassVar[str] = "FedAvg with a proximal term that keeps clients near the global model"
    differences: ClassVar[str] = (
        "FedReLa's utility code adds an un-squared norm and skips it on the first batch of every epoch; FedNova's adds "
        "the pull after momentum. Here: the gradient mu (w - w^t) of the squared term, at every step, before momentum."
    )
    OptionsModel: ClassVar[type[Options]] = FedProxOptions
    options: FedProxOptions

    def adjusts_gradient(self) -> bool:
        """Skipped at mu = 0, so that FedAvg is met bit for bit."""
        return self.options.mu > 0

    def adjust_gradient(self, gradient: Tensor, params: Tensor, context: LocalContext) -> None:
        """Add mu (w - w^t), exactly zero at the first step."""
        gradient.add_(params - context.server.params, alpha=self.options.mu)
