"""Scoring the global model on the test set, one read from the device per evaluation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from fedrela_bench.algorithms.base import Algorithm, Server
from fedrela_bench.data.transforms import Pipeline
from fedrela_bench.models import Outputs
from fedrela_bench.simulation.flat import FlatModel
from fedrela_bench.simulation.precision import autocast

EVAL_BATCH = 200
"""Images per batch: larger ones fall out of the cache of a core."""
SCORED = ""
"""Name of the score that `Algorithm.score` gives; others come from `Algorithm.extra_scores`."""


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

    def batch_size(self, algorithm: Algorithm) -> int:
        """Images per batch: the algorithm's, where that is part of its definition."""
        return algorithm.eval_batch() or EVAL_BATCH

    def predict(
        self, model: FlatModel, algorithm: Algorithm, server: Server, start: int = 0, stop: int | None = None
    ) -> dict[str, np.ndarray]:
        """(stop - start,) predicted class ids of test images from a multiple of the batch size on, by score.

        The algorithm's score has the name ``""``, its further ones theirs.
        """
        parts: dict[str, list[Tensor]] = {}
        with torch.inference_mode(), autocast(self.amp, model.params.device):
            for outputs in self._outputs(model, algorithm, start, len(self.images) if stop is None else stop):
                scores = {SCORED: algorithm.score(model.net, outputs, server)}
                for name, logits in (scores | algorithm.extra_scores(model.net, outputs, server)).items():
                    parts.setdefault(name, []).append(logits.argmax(dim=1))
        return {name: torch.cat(predicted).cpu().numpy() for name, predicted in parts.items()}

    def scores(self, model: FlatModel, algorithm: Algorithm, server: Server) -> Tensor:
        """(M, C) what `Algorithm.score` gives for all images."""
        with torch.inference_mode(), autocast(self.amp, model.params.device):
            parts = self._outputs(model, algorithm, 0, len(self.images))
            return torch.cat([algorithm.score(model.net, outputs, server) for outputs in parts])

    def collect(self, model: FlatModel, algorithm: Algorithm) -> Outputs:
        """Features (M, d) and logits (M, C) of all test images."""
        with torch.inference_mode(), autocast(self.amp, model.params.device):
            features, logits = zip(*self._outputs(model, algorithm, 0, len(self.images)), strict=True)
            return Outputs(torch.cat(features), torch.cat(logits))

    def _outputs(self, model: FlatModel, algorithm: Algorithm, start: int, stop: int) -> Iterator[Outputs]:
        algorithm.prepare_eval(model.net, "test")
        size = self.batch_size(algorithm)
        for first in range(start, stop, size):
            outputs: Outputs = model.net(self.pipeline.plain(self.images[first : min(first + size, stop)]))
            yield outputs
