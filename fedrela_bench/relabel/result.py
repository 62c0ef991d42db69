"""What a re-allocation gives back, for numpy arrays and torch tensors alike."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrela_bench.errors import ConfigError
from fedrela_bench.relabel import numpy_engine, torch_engine
from fedrela_bench.relabel.options import RelabelOptions

Array = TypeVar("Array", NDArray[Any], Tensor)


@dataclass(frozen=True, eq=False)
class Reallocation(Generic[Array]):
    """New labels and how they came about; arrays are of the kind (and on the device) of the posterior.

    Attributes:
        original: (n,) labels before.
        labels: (n,) labels after.
        strength: (n,) rho of the new label, 0 where the label stayed.
        thresholds: (C,) t of eq. (7).
        prior_weight: (C, C) row l, column c: weight of moving from l to c, eq. (6).
        scores: (n, C) what the thresholds apply to, or None if it was not kept.
        options: the options it was made with.
    """

    original: Array
    labels: Array
    strength: Array
    thresholds: Array
    prior_weight: Array
    scores: Array | None
    options: RelabelOptions

    @property
    def changed(self) -> Array:
        """(n,) bool: samples whose label moved."""
        changed: Any = self.labels != self.original
        return cast("Array", changed)

    @property
    def zscores(self) -> Array:
        """(n, C) z-scores of eq. (5), free of NaN; for the ablations the posterior or the min-max scores.

        Raises:
            ConfigError: made with ``diagnostics=False``.
        """
        if self.scores is None:
            raise ConfigError("z-scores and rho were not kept; call reallocate with diagnostics=True")
        return self.scores

    @cached_property
    def rho(self) -> Array:
        """(n, C) flip probabilities of eq. (8), computed on first access so that labels alone cost no memory.

        Raises:
            ConfigError: made with ``diagnostics=False``.
        """
        engine: Any = torch_engine if isinstance(self.labels, Tensor) else numpy_engine
        rho = engine.flip_probabilities(self.zscores, self.original, self.thresholds, self.prior_weight, self.options)
        return cast("Array", rho)

    def to_torch(self) -> Reallocation[Tensor]:
        """The same result as tensors on the CPU that share the arrays' memory."""
        return Reallocation(
            torch.as_tensor(self.original),
            torch.as_tensor(self.labels),
            torch.as_tensor(self.strength),
            torch.as_tensor(self.thresholds),
            torch.as_tensor(self.prior_weight),
            None if self.scores is None else torch.as_tensor(self.scores),
            self.options,
        )

    def flow(self) -> Array:
        """(C, C) int: row = label before, column = label after, samples that kept theirs on the diagonal."""
        classes = self.prior_weight.shape[0]
        if isinstance(self.labels, Tensor):
            cells = self.original.long() * classes + self.labels.long()
            table = torch.zeros(classes * classes, dtype=torch.int64, device=cells.device)
            return table.scatter_add_(0, cells, torch.ones_like(cells)).reshape(classes, classes)
        pairs = self.original.astype(np.int64) * classes + self.labels.astype(np.int64)
        return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)
