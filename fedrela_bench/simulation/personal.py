"""How well each client's own model does on the client's own classes."""

from __future__ import annotations

import numpy as np
import torch

from fedrela_bench.simulation.local import class_counts
from fedrela_bench.simulation.precision import autocast
from fedrela_bench.simulation.training import RoundTrainer


def personal_metrics(trainer: RoundTrainer) -> dict[str, float]:
    """``test/personal`` (and ``val/personal``): accuracy of the clients' own models, mean weighted by samples.

    A client's model (`Algorithm.personal_score`) is measured on the slice's images, each class weighted by its share of
    the client's original labels. Clients that never trained have the first private part. The backbone runs once for
    all.
    """
    algorithm, data, evaluator = trainer.algorithm, trainer.data, trainer.evaluator
    trainer.load_global()
    outputs = evaluator.collect(trainer.model, algorithm)
    hits, weights = [], []
    for client in trainer.with_data(range(len(data.rows))):
        trainer.load_client(client)
        rows = data.rows[client]
        counts = class_counts(trainer.state.labels[rows], algorithm.num_classes)
        with torch.inference_mode(), autocast(evaluator.amp, rows.device):
            predicted = algorithm.personal_score(trainer.model.net, outputs, counts).argmax(dim=1)
        hits.append(predicted.cpu().numpy() == data.test_labels)
        weights.append(class_counts(data.original[rows], algorithm.num_classes).cpu().numpy())
    return {
        f"{name}/personal": weighted_accuracy(np.array(hits)[:, rows], data.test_labels[rows], np.array(weights))
        for name, rows in data.slices.items()
    }


def weighted_accuracy(hits: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> float:
    """Mean accuracy of clients by their samples, each on classes weighted as its own.

    Args:
        hits: (K, m) whether client k's model is right about image i.
        labels: (m,) true class ids.
        weights: (K, C) samples of each client and class; classes without images drop out.
    """
    totals = np.bincount(labels, minlength=weights.shape[1])
    right = np.stack([np.bincount(labels, weights=row, minlength=len(totals)) for row in hits])
    accuracy, shares = right / np.maximum(totals, 1), weights * (totals > 0)
    return float((shares * accuracy).sum() / shares.sum())
