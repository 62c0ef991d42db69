"""CReFF.

Shang, Lu, Huang and Wang, "Federated Learning on Heterogeneous and Long-Tailed Data via Classifier Re-Training with
Federated Features", IJCAI 2022: FedAvg trains the model; the server learns balanced features whose classifier gradients
match those that clients report per class, and re-trains on them the classifier that is scored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from fedrela_bench.algorithms.base import Algorithm, LocalContext, ModelSize, Options, Server, Settings, State
from fedrela_bench.algorithms.passes import plain_outputs
from fedrela_bench.algorithms.registry import register
from fedrela_bench.data.transforms import PADDING, crop_flip
from fedrela_bench.models import Net, Outputs
from fedrela_bench.rng import generator

COSINE_FLOOR = 1e-6
MATCHED_TOGETHER = 16
"""Classes whose features are matched at once: their synthetic gradients must fit beside each other."""


class CReFFOptions(Options):
    """Options of CReFF."""

    features_per_class: int = Field(default=100, ge=1, le=100_000, description="learnable features of each class")
    match_steps: int = Field(
        default=100, ge=0, le=1_000_000, description="steps per round on the features; 0 leaves them as drawn"
    )
    match_lr: float = Field(default=0.1, gt=0, le=1e6, description="learning rate of the features")
    retrain_epochs: int = Field(
        default=300, ge=1, le=1_000_000, description="epochs over the features for the fresh classifier, every round"
    )
    retrain_lr: float = Field(default=0.01, gt=0, le=1e6, description="learning rate of the classifier's re-training")
    retrain_batch: int = Field(default=32, ge=1, le=1_000_000, description="batch size of the classifier's re-training")
    repeats: int = Field(
        default=10, ge=1, le=10_000, description="draws of images that a class gradient is averaged over"
    )
    images_per_draw: int = Field(default=32, ge=1, le=1_000_000, description="images of a class per draw, at most")
    augment: Literal["none", "crop_flip"] = Field(
        default="none",
        description="of the drawn images: none, or one random crop and flip for all images of a draw; the authors "
        "use six kinds of augmentation; costs a forward pass per draw",
    )


def class_gradient(features: Tensor, label: int, classifier: Tensor, weights: Tensor) -> Tensor:
    """(C, d + 1) gradient of the weighted cross-entropy of one class's features; the last column is the bias's.

    Args:
        features: (n, d), all of class `label`.
        label: the class.
        classifier: (C, d + 1), weights and bias.
        weights: (n,) of the samples, adding up to 1 for a mean.
    """
    slope = (features @ classifier[:, :-1].T + classifier[:, -1]).softmax(dim=1)
    slope[:, label] -= 1
    slope = slope * weights[:, None]
    return torch.cat([slope.T @ features, slope.sum(dim=0)[:, None]], dim=1)


def matching_distance(synthetic: Tensor, real: Tensor) -> Tensor:
    """Sum over rows of 1 - cosine of the weights' gradients, plus 1 - cosine of the bias's whole gradient.

    Args:
        synthetic: (..., C, d + 1), the last column being the bias's.
        real: likewise.

    Returns:
        (...,) distances; 1e-6 in every denominator, as in the authors' code.
    """
    rows = (1 - _cosine(synthetic[..., :-1], real[..., :-1])).sum(dim=-1)
    return rows + (1 - _cosine(synthetic[..., -1], real[..., -1]))


def _cosine(left: Tensor, right: Tensor) -> Tensor:
    cosine: Tensor = (left * right).sum(dim=-1) / (left.norm(dim=-1) * right.norm(dim=-1) + COSINE_FLOOR)
    return cosine


def match_features(
    features: Tensor, labels: Sequence[int], classifier: Tensor, real: Tensor, steps: int, lr: float
) -> Tensor:
    """Features (S, m, d) after SGD on the distance between their classifier gradients and the real ones.

    Args:
        features: (S, m, d) of S classes.
        labels: the S class ids.
        classifier: (C, d + 1) at which all gradients are taken.
        real: (S, C, d + 1).
        steps: SGD steps.
        lr: learning rate.
    """
    targets = torch.eye(len(classifier), dtype=features.dtype, device=features.device)[list(labels), None]
    weights, bias = classifier[:, :-1].T, classifier[:, -1]
    for _ in range(steps):
        live = features.detach().requires_grad_()
        with torch.enable_grad():
            slope = ((live @ weights + bias).softmax(dim=2) - targets) / features.shape[1]
            synthetic = torch.cat([slope.mT @ live, slope.sum(dim=1)[..., None]], dim=2)
            (gradient,) = torch.autograd.grad(matching_distance(synthetic, real).sum(), live)
        features = features - lr * gradient
    return features


def retrain(features: Tensor, rng: np.random.Generator, epochs: int, batch: int, lr: float) -> Tensor:
    """A fresh linear classifier (C, d + 1) trained by plain SGD on labelled features; the last column is the bias.

    Args:
        features: (C, m, d), m of each class.
        rng: draws first values and the order of every epoch.
        epochs: passes over all C m features.
        batch: features per step.
        lr: learning rate.
    """
    classes, each, dim = features.shape
    flat = torch.cat([features, torch.ones_like(features[..., :1])], dim=2).flatten(0, 1)
    targets = torch.eye(classes, dtype=flat.dtype, device=flat.device).repeat_interleave(each, dim=0)
    classifier = fresh_classifier(rng, classes, dim, flat)
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(classes * each)).to(flat.device)
        shuffled, wanted_of = flat[order], targets[order]
        for start in range(0, len(order), batch):
            inputs, wanted = shuffled[start : start + batch], wanted_of[start : start + batch]
            # The gradient in closed form: thousands of such small steps a round would drown in autograd's calls.
            slope = (inputs @ classifier.T).softmax(dim=1) - wanted
            classifier.addmm_(slope.T, inputs, alpha=-lr / len(inputs))
    return classifier


def fresh_classifier(rng: np.random.Generator, classes: int, dim: int, like: Tensor) -> Tensor:
    """(C, d + 1) weights and bias, uniform within 1 / sqrt(d), of the type and on the device of `like`."""
    bound = 1 / math.sqrt(dim)
    return torch.from_numpy(rng.uniform(-bound, bound, (classes, dim + 1))).to(like)


@register
class CReFF(Algorithm):
    """FedAvg whose scored classifier the server re-trains on federated features.

    The broadcast model, on which clients train, is FedAvg's bit for bit. A client reports one classifier gradient per
    class that it holds, taken with the backbone in eval mode at the global model and at the last re-trained
    classifier; the server averages them per class, each client once.

    With FedReLa: classes are those of the labels in force. Posterior heads: `broadcast` (FedAvg's classifier) and
    `scored` (the re-trained one). Features and classifier live on the server; clients keep nothing.
    """

    name: ClassVar[str] = "creff"
    citation: ClassVar[str] = "Shang et al., IJCAI 2022"
    purpose: ClassVar[str] = "FedAvg with a classifier that the server re-trains on balanced synthetic features"
    differences: ClassVar[str] = (
        "The authors augment the drawn images with siamese differentiable augmentation of six kinds; here none, or "
        "crop and flip (augment = crop_flip). Before the first round the re-trained classifier is a fresh one, as in "
        "their code. Communication is declared for a client that holds every class; one that lacks classes sends "
        "less."
    )
    published: ClassVar[Settings] = {
        "training.lr": 0.1,
        "training.momentum": 0.0,
        "training.batch_size": 32,
        "training.local_epochs": 10,
        "federation.clients": 20,
        "federation.rounds": 200,
        "federation.participation": 0.4,
    }
    OptionsModel: ClassVar[type[Options]] = CReFFOptions
    posterior_heads: ClassVar[tuple[str, ...]] = ("broadcast", "scored")
    options: CReFFOptions
    _feature_dim: int

    def needs_images(self) -> str:
        """Crop and flip do."""
        crops = self.options.augment != "none"
        return "federation.options.augment = crop_flip moves pixels; set it to none" if crops else ""

    def make_head(self, feature_dim: int) -> nn.Module:
        """A linear head, whose width the server's features share."""
        self._feature_dim = feature_dim
        return super().make_head(feature_dim)

    def initial_server_state(self, server: Server) -> State:
        """Features (C, m, d) from N(0, 1) and a fresh classifier (C, d + 1)."""
        classes, dim = server.num_classes, self._feature_dim
        drawn = generator(server.seed, "creff features").standard_normal(
            (classes, self.options.features_per_class, dim)
        )
        first = generator(server.seed, "creff first classifier")
        return {
            "features": torch.from_numpy(drawn).to(server.params),
            "classifier": fresh_classifier(first, classes, dim, server.params),
        }

    def communication(self, size: ModelSize) -> tuple[int, int]:
        """The model both ways, a classifier down, a classifier gradient per class up (all classes present)."""
        head = size.classes * (size.features + 1)
        return size.shared + head, size.shared + size.classes * head

    def probe_clients(self, server: Server, participants: Sequence[int]) -> Sequence[int]:
        """Whoever trains."""
        return participants

    def probe(self, net: Net, context: LocalContext) -> State:
        """Gradient (C, d + 1) of every class that the client holds, by class id."""
        labels, rng = context.labels.cpu().numpy(), context.generator("creff")
        picks = {int(label): self._picks(rng, np.flatnonzero(labels == label)) for label in np.unique(labels)}
        if self.options.augment == "none":
            features = plain_outputs(net, context.pipeline, context.images).features
            return {str(label): self._plain(features, label, drawn, context) for label, drawn in picks.items()}
        return {str(label): self._augmented(net, label, drawn, context, rng) for label, drawn in picks.items()}

    def _picks(self, rng: np.random.Generator, rows: np.ndarray) -> np.ndarray:
        """(repeats, m) rows of one class, without replacement inside a draw."""
        count = min(len(rows), self.options.images_per_draw)
        return np.stack([rng.choice(rows, count, replace=False) for _ in range(self.options.repeats)])

    def _plain(self, features: Tensor, label: int, drawn: np.ndarray, context: LocalContext) -> Tensor:
        """The mean over draws as one weighted mean: without augmentation a draw only decides who counts."""
        rows, times = np.unique(drawn, return_counts=True)
        weights = torch.from_numpy(times / drawn.size).to(features)
        chosen = features[torch.from_numpy(rows).to(features.device)]
        return class_gradient(chosen, label, context.server.state["classifier"], weights)

    def _augmented(
        self, net: Net, label: int, drawn: np.ndarray, context: LocalContext, rng: np.random.Generator
    ) -> Tensor:
        """Every draw moved by one crop and flip of its own."""
        moves = rng.integers(0, (2 * PADDING + 1, 2 * PADDING + 1, 2), (len(drawn), 3)).repeat(drawn.shape[1], axis=0)
        device = context.images.device
        images = crop_flip(
            context.images[torch.from_numpy(drawn.ravel()).to(device)], torch.from_numpy(moves).to(device)
        )
        features = plain_outputs(net, context.pipeline, images).features
        weights = features.new_full((len(features),), 1 / len(features))
        return class_gradient(features, label, context.server.state["classifier"], weights)

    def receive(self, server: Server, messages: Mapping[int, State]) -> None:
        """Match the features of the classes that were seen, then re-train the classifier on all."""
        seen = sorted({int(name) for message in messages.values() for name in message})
        features, old, options = server.state["features"].clone(), server.state["classifier"], self.options
        for start in range(0, len(seen), MATCHED_TOGETHER):
            labels = seen[start : start + MATCHED_TOGETHER]
            real = torch.stack([_mean_of(str(label), messages) for label in labels])
            features[labels] = match_features(
                features[labels], labels, old, real, options.match_steps, options.match_lr
            )
        rng = generator(server.seed, "creff classifier", server.round)
        server.state["features"] = features
        server.state["classifier"] = retrain(
            features, rng, options.retrain_epochs, options.retrain_batch, options.retrain_lr
        )

    def score(self, net: Net, outputs: Outputs, server: Server) -> Tensor:
        """Logits of the re-trained classifier."""
        classifier = server.state["classifier"]
        return outputs.features @ classifier[:, :-1].T + classifier[:, -1]

    def posterior(self, net: Net, outputs: Outputs, server: Server, head: str) -> Tensor:
        """broadcast: FedAvg's classifier; scored: the re-trained one."""
        return self.score(net, outputs, server) if head == "scored" else outputs.logits


def _mean_of(name: str, messages: Mapping[int, State]) -> Tensor:
    return torch.stack([message[name] for message in messages.values() if name in message]).mean(dim=0)
