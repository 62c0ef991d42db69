"""Forward passes over whole arrays, in pieces that fit the cache of a core."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrela_bench.data.transforms import Pipeline
from fedrela_bench.models import Net, Outputs

PASS_BATCH = 200
"""Images per forward pass."""


def plain_outputs(net: Net, pipeline: Pipeline, images: Tensor) -> Outputs:
    """Features (n, d) and logits (n, C) of un-augmented images, without gradients; the network's mode is the caller's.

    Args:
        net: at the values that are asked.
        pipeline: scales and normalises.
        images: (n, H, W, C) uint8, n at least 1.
    """
    with torch.no_grad():
        starts = range(0, len(images), PASS_BATCH)
        pieces: list[Outputs] = [net(pipeline.plain(images[start : start + PASS_BATCH])) for start in starts]
    return Outputs(torch.cat([piece.features for piece in pieces]), torch.cat([piece.logits for piece in pieces]))
