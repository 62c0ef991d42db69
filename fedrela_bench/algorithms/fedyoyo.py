"""FedYoYo.

Yan, Li, Wu, Pang, Lu, Yan and Wang, "You Are Your Own Best Teacher: Achieving Centralized-level Performance in
Federated Learning under Heterogeneous and Long-tailed Data", 2025: logits are adjusted by a class prior that clients
estimate from the effective number of their samples and exchange before training; a strongly augmented view learns from
the weakly augmented one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedrela_bench.algorithms.base import Algorithm, Batch, LocalContext, ModelSize, Options, Server, Settings, State
from fedrela_bench.algorithms.registry import register
from fedrela_bench.algorithms.views import two_views, view_draws
from fedrela_bench.models import Net

PRIOR_EPSILON = 1e-9
SMALLEST = 1e-6
LARGEST_AT_FIRST, LARGEST_CHANGE, KEPT = 1e4, 100.0, 0.9
PROBE_IMAGES = 200


class FedYoYoOptions(Options):
    """Adjustment by the mixed prior, and distillation from the weak to the strong view."""

    gamma: Annotated[float, Field(ge=0, le=1, description="share of the local label frequencies in the prior")] = 0.1
    tau: Annotated[float, Field(ge=0, le=100, description="exponent of the prior added to the logits")] = 1.5
    temperature: Annotated[float, Field(gt=0, le=1e3, description="temperature T of the distillation")] = 1.5
    kd_weight: Annotated[
        float, Field(ge=0, le=1e4, description="weight lambda of the distillation (the released script: 4.0)")
    ] = 1.5
    warmup: Annotated[int, Field(ge=1, le=1_000_000, description="rounds until the distillation has full weight")] = 50
    prior_mix: Annotated[
        Literal["once", "compounding"],
        Field(description="mix the prior once per round, or at every batch as the released code does"),
    ] = "once"


def effective_numbers(features: Tensor, labels: Tensor, means: Tensor) -> Tensor:
    """(C,) effective number of samples of each class in one mini-batch.

    1 / max(mean cosine between the centred features of the class, diagonal included, 1e-6); a class with one sample
    counts 1, an absent one 0.

    Args:
        features: (b, d).
        labels: (b,) class ids.
        means: (C, d) class means over the client's data.
    """
    centred = features - means[labels]
    norms = centred.norm(dim=1, keepdim=True)
    unit = centred / torch.where(norms > 0, norms, SMALLEST)
    members = F.one_hot(labels, len(means)).to(features.dtype)
    counts = members.sum(dim=0)
    # The mean over pairs of u_i . u_j is the squared length of the mean of u.
    cosines = (members.T @ unit).square().sum(dim=1) / counts.clamp(min=1).square()
    return torch.where(counts > 1, 1 / cosines.clamp(min=SMALLEST), counts)


def first_numbers(numbers: Tensor) -> Tensor:
    """(C,) numbers of the first exchange: those above 1e4 become the mean of the others (if there are any)."""
    outlying = numbers > LARGEST_AT_FIRST
    others = torch.where(outlying, 0.0, numbers).sum() / (~outlying).sum().clamp(min=1)
    return torch.where(outlying & ~outlying.all(), others, numbers)


def later_numbers(previous: Tensor, numbers: Tensor) -> Tensor:
    """(C,) 0.9 previous + 0.1 new; entries that would change by more than a factor of 100 stay."""
    mixed = KEPT * previous + (1 - KEPT) * numbers
    return torch.where((mixed - previous).abs() > LARGEST_CHANGE * previous, previous, mixed)


def mixed_prior(prior: Tensor, frequencies: Tensor, gamma: float) -> Tensor:
    """(C,) (1 - gamma) prior + gamma frequencies."""
    return (1 - gamma) * prior + gamma * frequencies


def adjustment(prior: Tensor, tau: float) -> Tensor:
    """(C,) log(prior^tau + 1e-9), added to the logits in training."""
    return (prior.pow(tau) + PRIOR_EPSILON).log()


def distillation(weak: Tensor, strong: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """KL from the softened weak view (no gradient) to the strong one, mean over samples that the weak view gets right.

    Args:
        weak: (B, C) adjusted logits of the teacher.
        strong: (B, C) adjusted logits of the student.
        labels: (B,) class ids.
        temperature: T.
    """
    teacher = weak.detach()
    right = (teacher.argmax(dim=1) == labels).to(teacher.dtype)
    target, student = (teacher / temperature).log_softmax(dim=1), (strong / temperature).log_softmax(dim=1)
    divergence = F.kl_div(student, target, reduction="none", log_target=True).sum(dim=1)
    return (divergence * right).sum() / right.sum().clamp(min=1)


@register
class FedYoYo(Algorithm):
    """Prior-adjusted cross-entropy on two views, with self-distillation.

    Each round begins with an exchange: every participant sends its effective numbers (C floats), the server answers
    with the prior (C floats). The server keeps the smoothed numbers.

    Beside FedReLa: posterior and score are the unadjusted logits; class means, effective numbers, label frequencies and
    both losses use the labels in force; the server's numbers are kept at T and follow the new labels as smoothed.
    """

    name: ClassVar[str] = "fedyoyo"
    citation: ClassVar[str] = "Yan et al., 2025 (arXiv 2503.06916)"
    purpose: ClassVar[str] = "logits adjusted by an exchanged class prior, self-distillation from weak to strong views"
    differences: ClassVar[str] = (
        "The released code mixes the local frequencies into the prior inside the batch loop, so that it drifts to the "
        "purely local one (prior_mix = compounding; default: once per round). Its settings: ResNet-8, 20 clients, 8 a "
        "round, 10 local epochs, batch 32, lr 0.1, no momentum, no weight decay. Here crop and flip follow the "
        "dataset's own augmentation, cutout is half the side, and policy rotations turn both ways."
    )
    published: ClassVar[Settings] = {
        "training.lr": 0.1,
        "training.momentum": 0.0,
        "training.weight_decay": 0.0,
        "training.batch_size": 32,
        "training.local_epochs": 10,
        "federation.clients": 20,
        "federation.rounds": 200,
        "federation.participation": 0.4,
        "federation.options.prior_mix": "compounding",
    }
    OptionsModel: ClassVar[type[Options]] = FedYoYoOptions
    options: FedYoYoOptions

    def needs_images(self) -> str:
        """The views are operations on pixels."""
        return "its weak and strong views turn, crop and recolour images; choose another algorithm"

    def initial_server_state(self, server: Server) -> State:
        """Zeros: no numbers were exchanged yet."""
        return {"effective": torch.zeros(server.num_classes, dtype=server.params.dtype, device=server.params.device)}

    def communication(self, size: ModelSize) -> tuple[int, int]:
        """The model and C floats each way."""
        return size.shared + size.classes, size.shared + size.classes

    def probe_clients(self, server: Server, participants: Sequence[int]) -> Sequence[int]:
        """Those that train."""
        return participants

    def probe(self, net: Net, context: LocalContext) -> State:
        """Effective numbers at the global model on plain images, summed over shuffled mini-batches."""
        with torch.no_grad():
            features = _plain_features(net, context)
            classes = self.num_classes
            members = F.one_hot(context.labels, classes).to(features.dtype)
            means = (members.T @ features) / members.sum(dim=0).clamp(min=1)[:, None]
            order = torch.from_numpy(context.generator("effective number").permutation(context.samples))
            total = features.new_zeros(classes)
            for rows in torch.split(order.to(features.device), context.batch_size):
                total += effective_numbers(features[rows], context.labels[rows], means)
        return {"effective": total}

    def receive(self, server: Server, messages: Mapping[int, State]) -> None:
        """Smooth 1 + the clients' sum into the numbers of the rounds before."""
        numbers = torch.stack([message["effective"] for message in messages.values()]).sum(dim=0) + 1
        previous = server.state["effective"]
        fresh = (previous == 0).all()
        server.state["effective"] = torch.where(fresh, first_numbers(numbers), later_numbers(previous, numbers))

    def prepare(self, net: Net, context: LocalContext) -> None:
        """The prior that the server sent and the local label frequencies."""
        numbers = context.server.state["effective"]
        counts = context.label_counts.to(numbers.dtype)
        prior, frequencies = numbers / numbers.sum(), counts / counts.sum()
        if self.options.prior_mix == "once":
            prior = mixed_prior(prior, frequencies, self.options.gamma)
        context.scratch.update(prior=prior, frequencies=frequencies)

    def draw(self, context: LocalContext, rng: np.random.Generator, count: int) -> np.ndarray:
        """Crops, flips, angles, sub-policies and cutouts of an epoch."""
        return view_draws(context.pipeline, rng, count)

    def inputs(self, context: LocalContext, images: Tensor, draws: Tensor) -> Any:
        """The weak and the strong view."""
        return two_views(context.pipeline, images, draws)

    def loss(self, net: Net, batch: Batch, context: LocalContext) -> Tensor:
        """Adjusted cross-entropy of both views, in one pass, plus the warmed-up distillation."""
        options, scratch = self.options, context.scratch
        if options.prior_mix == "compounding":
            scratch["prior"] = mixed_prior(scratch["prior"], scratch["frequencies"], options.gamma)
        logits = net(torch.cat(batch.inputs)).logits + adjustment(scratch["prior"], options.tau)
        loss = F.cross_entropy(logits, batch.labels.repeat(2))
        weight = options.kd_weight * min((context.round + 1) / options.warmup, 1.0)
        if weight == 0:
            return loss
        weak, strong = logits.chunk(2)
        return loss + weight * distillation(weak, strong, batch.labels, options.temperature)


def _plain_features(net: Net, context: LocalContext) -> Tensor:
    """(n_k, d) features of the un-augmented images."""
    parts = torch.split(context.images, PROBE_IMAGES)
    return torch.cat([net.features(context.pipeline.plain(part)) for part in parts])
