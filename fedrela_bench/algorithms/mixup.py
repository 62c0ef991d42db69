"""Mixup on every client, then FedAvg.

Zhang, Cisse, Dauphin and Lopez-Paz, "mixup: Beyond Empirical Risk Minimization", ICLR 2018: inputs lambda x_i +
(1 - lambda) x_j, loss lambda CE(y_i) + (1 - lambda) CE(y_j), lambda ~ Beta(alpha, alpha) once per batch, j a
permutation of the batch.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from fedrela_bench.algorithms.base import Algorithm, Batch, LocalContext, Options
from fedrela_bench.algorithms.data_level import draw_mixture, mix_images, mixed_cross_entropy
from fedrela_bench.algorithms.registry import register
from fedrela_bench.models import Net


class MixupOptions(Options):
    """The federated baselines use alpha 1; the paper's ImageNet runs use 0.1 to 0.4."""

    alpha: Annotated[
        float,
        Field(ge=0, le=1e6, description="both parameters of the Beta distribution of lambda; 0: no mixing, FedAvg"),
    ] = 1.0


@register
class Mixup(Algorithm):
    """Every batch is mixed with a permutation of itself, after augmentation; the loss mixes the labels in force."""

    name: ClassVar[str] = "mixup"
    citation: ClassVar[str] = "Zhang et al., ICLR 2018"
    purpose: ClassVar[str] = "each client trains on convex mixtures of its images and labels, then FedAvg"
    differences: ClassVar[str] = (
        "Mixed after augmentation and normalisation, one lambda per batch, as in released code."
    )
    OptionsModel: ClassVar[type[Options]] = MixupOptions
    options: MixupOptions

    def loss(self, net: Net, batch: Batch, context: LocalContext) -> Tensor:
        """Cross-entropy of the mixture; plain at alpha = 0."""
        if not self.options.alpha:
            return super().loss(net, batch, context)
        share, partners = draw_mixture(context, len(batch), self.options.alpha)
        logits = net(mix_images(batch, share, partners)).logits
        other = batch.labels[partners]
        weight = self.label_weight(batch.labels, other, share, context)
        return mixed_cross_entropy(logits, batch.labels, other, weight)

    def label_weight(self, first: Tensor, second: Tensor, share: float, context: LocalContext) -> Tensor:
        """(B,) weight of each sample's own label: lambda.

        Args:
            first: (B,) labels of the samples.
            second: (B,) labels of their partners.
            share: lambda.
            context: the client.
        """
        return context.server.params.new_full(first.shape, share)
