"""FedMix and NaiveMix.

Yoon, Shin, Hwang and Yang, "FedMix: Approximation of Mixup under Mean Augmented Federated Learning", ICLR 2021: clients
share means (x', y') of groups of M samples once; local training mixes its samples with them::

    NaiveMix   (1 - lambda) CE(f((1 - lambda) x + lambda x'), y) + lambda CE(f((1 - lambda) x + lambda x'), y')
    FedMix     l1 + lambda CE(f((1 - lambda) x), y') + lambda mean_i <d l1_i / d z_i, x'>

with z_i = (1 - lambda) x_i, l1_i = (1 - lambda) CE(f(z_i), y_i) and l1 its batch mean (Algorithm 2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedrela_bench.algorithms.base import Algorithm, Batch, LocalContext, Options, Server, State
from fedrela_bench.algorithms.registry import register
from fedrela_bench.models import Net
from fedrela_bench.rng import generator


class FedMixOptions(Options):
    """Options of FedMix and NaiveMix."""

    lam: float = Field(
        default=0.05,
        ge=0,
        lt=1,
        description="lambda, share of the shared mean: 0.05 CIFAR-10, 0.1 CIFAR-100; 0 is FedAvg",
    )
    group: Literal["client"] | Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=5, description="samples M per shared mean, or client: one mean of all a client's samples"
    )
    refresh: bool = Field(
        default=False, description="share the means' labels anew every round, so that they are those in force"
    )


def fedmix_loss(net: Net, inputs: Tensor, labels: Tensor, mean: Tensor, mean_label: Tensor, lam: float) -> Tensor:
    """FedMix's loss with one shared mean (Yoon et al., Algorithm 2).

    The slope is that of each sample's own loss: the batch mean's input gradient, B times smaller, would shrink the last
    term. With batch norm it also holds what a sample does to the others' losses.

    Args:
        net: maps (B, channels, H, W) to logits; its parameters get second-order gradients.
        inputs: (B, channels, H, W).
        labels: (B,) class ids.
        mean: (channels, H, W) shared mean input.
        mean_label: (C,) shared mean of one-hot labels.
        lam: lambda, above 0.
    """
    scaled = ((1 - lam) * inputs).detach().requires_grad_()
    logits = net(scaled).logits
    losses = (1 - lam) * F.cross_entropy(logits, labels, reduction="none")
    (slope,) = torch.autograd.grad(losses.sum(), scaled, create_graph=True)
    towards = (slope * mean).sum() / len(labels)
    return losses.mean() + lam * soft_cross_entropy(logits, mean_label) + lam * towards


def naivemix_loss(net: Net, inputs: Tensor, labels: Tensor, mean: Tensor, mean_label: Tensor, lam: float) -> Tensor:
    """Mixup with one shared mean (Yoon et al., NaiveMix); arguments as of `fedmix_loss`."""
    logits = net((1 - lam) * inputs + lam * mean).logits
    return (1 - lam) * F.cross_entropy(logits, labels) + lam * soft_cross_entropy(logits, mean_label)


def soft_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy of (B, C) logits against one distribution (C,)."""
    return -(logits.log_softmax(dim=1) @ target.to(logits.dtype)).mean()


@register
class FedMix(Algorithm):
    """Mixup with shared averages, to first order.

    Every client with data shares the means of its groups before the first round, whoever trains in it: G x (input + C)
    floats once (`communication` counts them under ``once``, over all clients), G depending on the client. Means are
    taken over normalised, un-augmented inputs. With `refresh` every client sends the G x C floats of its labels again
    every round, and a participant gets everybody's, which is not declared: what a round costs is told for the model
    alone, without the numbers of samples and clients.

    With FedReLa: the client's own targets are the labels in force; the shared labels stay those of the first exchange
    unless `refresh` is on, whose groups stay the same. No client state. The posterior is the softmax of the
    classifier's logits.
    """

    name: ClassVar[str] = "fedmix"
    citation: ClassVar[str] = "Yoon et al., ICLR 2021"
    purpose: ClassVar[str] = "mixup with averages that clients share once, expanded to first order"
    differences: ClassVar[str] = (
        "FedReLa's bibliography names another FedMix (segmentation with mixed supervision); its description fits "
        "this one. Public code takes the input gradient of the batch mean, which shrinks the last term by the batch "
        "size; here the slope is each sample's own, as written in the paper. One shared mean is drawn per batch."
    )
    OptionsModel: ClassVar[type[Options]] = FedMixOptions
    options: FedMixOptions

    def shared_once(self, server: Server, input_floats: int) -> int:
        """The shared means and their labels, G (input + C) over all clients."""
        if self.options.lam == 0:
            return 0
        sizes, group = server.client_sizes, self.options.group
        groups = np.count_nonzero(sizes) if group == "client" else np.sum(-(-sizes // group))
        return int(groups) * (input_floats + server.num_classes)

    def probe_clients(self, server: Server, participants: Sequence[int]) -> Sequence[int]:
        """Everybody, at the first round or with `refresh` at each; nobody where nothing is mixed."""
        if self.options.lam == 0 or ("means" in server.state and not self.options.refresh):
            return ()
        return range(server.clients)

    def probe(self, net: Net, context: LocalContext) -> State:
        """Means (G, channels, H, W) and mean one-hot labels (G, C) of the client's random groups.

        Later, with `refresh`, the labels alone: groups and images stay, so the means do.
        """
        groups = self._groups(context)
        one_hot = F.one_hot(context.labels, self.num_classes).to(context.server.params.dtype)
        message = {"labels": torch.stack([one_hot[rows].mean(dim=0) for rows in groups])}
        if "means" not in context.server.state:
            images = (context.pipeline.plain(context.images[rows]) for rows in groups)
            message["means"] = torch.stack([inputs.mean(dim=0) for inputs in images])
        return message

    def _groups(self, context: LocalContext) -> list[Tensor]:
        """Rows of every group; the last one may be smaller."""
        order = generator(context.seed, "fedmix groups", context.client).permutation(context.samples)
        size = context.samples if self.options.group == "client" else self.options.group
        parts = (order[start : start + size] for start in range(0, context.samples, size))
        return [torch.from_numpy(part).to(context.images.device) for part in parts]

    def receive(self, server: Server, messages: Mapping[int, State]) -> None:
        """Pool what was sent, in client order."""
        for name in next(iter(messages.values())):
            server.state[name] = torch.cat([message[name] for message in messages.values()])

    def prepare(self, net: Net, context: LocalContext) -> None:
        """A stream for the choice of means that leaves the augmentation's alone."""
        context.scratch["choice"] = context.generator("fedmix")

    def draw(self, context: LocalContext, rng: np.random.Generator, count: int) -> np.ndarray:
        """(count, d + 1): augmentation, then a shared mean per sample; a batch takes its first."""
        moves = super().draw(context, rng, count)
        if self.options.lam == 0:
            return moves
        chosen = context.scratch["choice"].integers(0, len(context.server.state["means"]), (count, 1))
        return np.concatenate([moves, chosen], axis=1)

    def inputs(self, context: LocalContext, images: Tensor, draws: Tensor) -> Any:
        """Images, and beside them the number (b,) of a shared mean each."""
        if self.options.lam == 0:
            return super().inputs(context, images, draws)
        return super().inputs(context, images, draws[:, :-1]), draws[:, -1].to(images.device)

    def loss(self, net: Net, batch: Batch, context: LocalContext) -> Tensor:
        """Mixed loss; lambda = 0 is cross-entropy."""
        if self.options.lam == 0:
            return super().loss(net, batch, context)
        images, chosen = batch.inputs
        state = context.server.state
        mean, label = (state[name].index_select(0, chosen[:1])[0] for name in ("means", "labels"))
        return self.mixed(net, images, batch.labels, mean, label)

    def mixed(self, net: Net, inputs: Tensor, labels: Tensor, mean: Tensor, mean_label: Tensor) -> Tensor:
        """The loss with one shared mean; arguments as of `fedmix_loss`."""
        return fedmix_loss(net, inputs, labels, mean, mean_label, self.options.lam)


@register
class NaiveMix(FedMix):
    """Mixup with shared averages, mixed directly: FedMix without the expansion, otherwise the same."""

    name: ClassVar[str] = "naivemix"
    purpose: ClassVar[str] = "mixup with averages that clients share once"
    differences: ClassVar[str] = "One shared mean is drawn per batch; means are never refreshed in the paper."

    def mixed(self, net: Net, inputs: Tensor, labels: Tensor, mean: Tensor, mean_label: Tensor) -> Tensor:
        """Inputs and losses mixed with one shared mean."""
        return naivemix_loss(net, inputs, labels, mean, mean_label, self.options.lam)
