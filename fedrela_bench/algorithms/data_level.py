"""What the local data-level baselines share: labels on the host, and mixtures of the images of a batch."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedrela_bench.algorithms.base import Batch, LocalContext


def host_labels(context: LocalContext) -> np.ndarray:
    """(n_k,) labels in force, read from the device once per client and round."""
    if "host labels" not in context.scratch:
        context.scratch["host labels"] = context.labels.cpu().numpy()
    return cast(np.ndarray, context.scratch["host labels"])


def draw_mixture(context: LocalContext, count: int, alpha: float) -> tuple[float, Tensor]:
    """A batch's mixing coefficient and partners.

    Args:
        context: the client; its stream "mixup" goes on from batch to batch.
        count: B, images in the batch.
        alpha: both parameters of the Beta distribution.

    Returns:
        lambda ~ Beta(alpha, alpha), and a (B,) permutation.
    """
    rng: np.random.Generator = context.scratch.setdefault("mixup", context.generator("mixup"))
    share = float(rng.beta(alpha, alpha))
    return share, torch.from_numpy(rng.permutation(count)).to(context.labels.device, non_blocking=True)


def mix_images(batch: Batch, share: float, partners: Tensor) -> Tensor:
    """Mixtures share x_i + (1 - share) x_j with j = partners[i], (B, channels, H, W)."""
    inputs: Tensor = batch.inputs
    return share * inputs + (1 - share) * inputs[partners]


def mixed_cross_entropy(logits: Tensor, first: Tensor, second: Tensor, weight: Tensor) -> Tensor:
    """Batch mean of w_i CE(y_a) + (1 - w_i) CE(y_b).

    Args:
        logits: (B, C).
        first: (B,) labels y_a.
        second: (B,) labels y_b.
        weight: (B,) or () weight of the first label.
    """
    own = F.cross_entropy(logits, first, reduction="none")
    other = F.cross_entropy(logits, second, reduction="none")
    share = weight.to(own.dtype)
    return (share * own + (1 - share) * other).mean()
