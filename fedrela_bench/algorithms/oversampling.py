"""Random over-sampling on every client, then FedAvg.

Chawla, Bowyer, Hall and Kegelmeyer, "SMOTE: Synthetic Minority Over-sampling Technique", JAIR 2002, section 3 compare
with over-sampling by replication; here each draw takes a local class uniformly, then one of its images uniformly.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedrela_bench.algorithms.base import Algorithm, LocalContext
from fedrela_bench.algorithms.data_level import host_labels
from fedrela_bench.algorithms.registry import register


@register
class OverSampling(Algorithm):
    """Epochs of n_k draws with replacement in which all local classes are equally likely.

    With FedReLa the classes are those of the labels in force. Needs training.shuffle, which draws an epoch's rows.
    """

    name: ClassVar[str] = "oversampling"
    citation: ClassVar[str] = "replication as compared in Chawla et al., JAIR 2002"
    purpose: ClassVar[str] = "each client draws its classes equally often, then FedAvg"
    differences: ClassVar[str] = "An epoch stays n_k images long, so that FedAvg's numbers of steps are kept."

    def epoch_rows(self, context: LocalContext, rng: np.random.Generator) -> np.ndarray:
        """(n_k,) rows, drawn class by class."""
        labels = host_labels(context)
        present, position, counts = np.unique(labels, return_inverse=True, return_counts=True)
        chances = 1 / (len(present) * counts[position])
        return rng.choice(len(labels), size=len(labels), p=chances / chances.sum())
