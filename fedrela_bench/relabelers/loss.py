"""Label correction by loss: the samples that the global model fits worst get the class it predicts."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedrela_bench.relabelers.base import Client, Options, Relabeler, Relabelled
from fedrela_bench.relabelers.registry import register_relabeler
from fedrela_bench.values import Real


class LossOptions(Options):
    """Options of `Loss`."""

    confidence: Annotated[
        Real, Field(ge=0, le=1, description="least posterior of the predicted class; FedCorr's default")
    ] = 0.5


@register_relabeler
class Loss(Relabeler):
    """Of a client's samples the share tau with the largest cross-entropy takes the predicted class.

    In the spirit of FedCorr's correction step, which relabels the share of largest loss where the global model is
    confident. FedCorr also estimates which clients are noisy and how much, trains with mixup and an adaptive proximal
    term, and corrects in several stages; here every client has the same budget, tau, and nothing else changes.
    """

    name: ClassVar[str] = "loss"
    citation: ClassVar[str] = (
        "in the spirit of FedCorr (Xu et al., CVPR 2022, arXiv 2204.04677), as in self-training by joint optimization "
        "(Tanaka et al., CVPR 2018)"
    )
    purpose: ClassVar[str] = "gives the samples of largest loss the class that the model predicts"
    OptionsModel: ClassVar[type[Options]] = LossOptions
    draws: ClassVar[int] = 1

    def relabel(self, client: Client[NDArray[Any]]) -> Relabelled[NDArray[Any]]:
        """Strength is the posterior that the new label has above the old one's."""
        posterior, labels = client.posterior, client.labels.astype(np.int64)
        rows, predicted = np.arange(len(labels)), posterior.argmax(axis=1)
        own, best = posterior[rows, labels], posterior[rows, predicted]
        # The largest loss is the smallest posterior of the own label; ties fall by lot, in no order of the samples.
        worst = np.lexsort((client.draws[:, 0], own))[: self.most(client)]
        taken = worst[(best[worst] >= cast(LossOptions, self.options).confidence) & (predicted[worst] != labels[worst])]
        new, strength = labels.copy(), np.zeros(len(labels))
        new[taken], strength[taken] = predicted[taken], (best - own)[taken]
        return Relabelled(new, strength)
