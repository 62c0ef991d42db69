"""Scoring the global model on the test set, one read from the device per evaluation."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedrela_bench.algorithms.base import Algorithm, Server
from fedrela_bench.data.transforms import Pipeline
from fedrela_bench.simulation.flat import FlatModel
from fedrela_bench.simulation.precision import autocast

EVAL_BATCH = 200
"""Images per batch: larger ones fall out of the cache of a core."""


class Evaluator:
    """Predicts the test images with the model's live values.

    Args:
        images: (M, H, W, C) uint8 on the model's device.
        pipeline: turns images into inputs.
        amp: ``bf16`` evaluates in bfloat16 autocast.
    """

    def __init__(self, images: Tensor, pipeline: Pipeline, amp: str) -> None:
        self.images = images
        self.pipeline = pipeline
        self.amp = amp

    def predict(self, model: FlatModel, algorithm: Algorithm, server: Server) -> np.ndarray:
        """(M,) predicted class ids, in the order of the test images."""
        algorithm.prepare_eval(model.net, "test")
        size = algorithm.eval_batch() or EVAL_BATCH
        parts: list[Tensor] = []
        with torch.inference_mode(), autocast(self.amp, model.params.device):
            for start in range(0, len(self.images), size):
                outputs = model.net(self.pipeline.plain(self.images[start : start + size]))
                parts.append(algorithm.score(model.net, outputs, server).argmax(dim=1))
        return torch.cat(parts).cpu().numpy()
