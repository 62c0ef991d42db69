"""Heads over features: fixed simplex ETF classifiers of the FedETF family (a linear head is `torch.nn.Linear`).

Sources: Li et al., No Fear of Classifier Biases, arXiv 2303.10058 (FedETF); the dot-regression head is the one that the
released code of FedReLa and FedLoGe calls FedETF. ETF matrices are buffers named ``etf``: drawn once, never trained.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from fedrela_bench.errors import ConfigError
from fedrela_bench.models.base import fill_from


def simplex_etf(dim: int, num_classes: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """A simplex equiangular tight frame: (dim, C), columns of norm 1 whose pairwise products are -1 / (C - 1).

    Raises:
        ConfigError: fewer dimensions than classes, or fewer than two classes.
    """
    _check_sizes(dim, num_classes)
    basis, _ = np.linalg.qr(rng.uniform(0.0, 1.0, (dim, num_classes)))
    return etf_from_basis(basis)


def etf_from_basis(basis: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthonormal columns P (dim, C) -> sqrt(C / (C - 1)) P (I - 11'/C)."""
    classes = basis.shape[1]
    centred: NDArray[np.float64] = basis - basis.mean(axis=1, keepdims=True)
    return math.sqrt(classes / (classes - 1)) * centred


def _check_sizes(dim: int, num_classes: int) -> None:
    if num_classes < 2:
        raise ConfigError(f"a simplex ETF needs at least 2 classes, not {num_classes}")
    if dim < num_classes:
        raise ConfigError(
            f"a simplex ETF of {num_classes} classes needs as many feature dimensions, the model has {dim}; "
            f"{wider(num_classes)}, or algorithm fedetf, which projects features to one dimension per class"
        )


def wider(num_classes: int) -> str:
    """The remedy where a network has fewer features than there are classes."""
    from fedrela_bench.models import wide_models

    names = wide_models(num_classes)
    if not names:
        return f"no model of this package has {num_classes}; register a wider one"
    return f"set training.model to one that has them: {', '.join(names)}"


class CosineETFHead(nn.Module):
    """FedETF's head: a trained projection to C dimensions, normalised, compared with a fixed ETF.

    Args:
        feature_dim: d of the backbone.
        num_classes: C.
    """

    etf: Tensor

    def __init__(self, feature_dim: int, num_classes: int) -> None:
        super().__init__()
        _check_sizes(num_classes, num_classes)
        with torch.device("meta"):
            self.projection = nn.Linear(feature_dim, num_classes)
            self.beta = nn.Parameter(torch.empty(()))
            self.register_buffer("etf", torch.empty(num_classes, num_classes))

    def reset(self, rng: np.random.Generator) -> None:
        """Draw the ETF; beta starts at 1."""
        fill_from(self.etf, simplex_etf(len(self.etf), len(self.etf), rng))
        fill_from(self.beta, np.ones(()))

    def unit(self, features: Tensor) -> Tensor:
        """(B, d) -> (B, C) of norm 1."""
        return functional.normalize(self.projection(features), dim=1, eps=1e-12)

    def cosines(self, features: Tensor) -> Tensor:
        """(B, d) -> (B, C) cosines with the class vectors: logits at scale 1."""
        return self.unit(features) @ self.etf

    def forward(self, features: Tensor) -> Tensor:
        """(B, d) -> logits (B, C): the cosines times the learnable beta."""
        return self.beta * self.cosines(features)


class DotRegressionETFHead(nn.Module):
    """The head of the released FedReLa and FedLoGe code: features, normalised by batch and by length, against an ETF.

    Args:
        feature_dim: d of the backbone, at least num_classes.
        num_classes: C.
        bn: whether features pass a BatchNorm1d first; a training batch of one sample bypasses it.
    """

    etf: Tensor

    def __init__(self, feature_dim: int, num_classes: int, bn: bool = True) -> None:
        super().__init__()
        _check_sizes(feature_dim, num_classes)
        with torch.device("meta"):
            self.bn = nn.BatchNorm1d(feature_dim) if bn else None
            self.register_buffer("etf", torch.empty(feature_dim, num_classes))

    def reset(self, rng: np.random.Generator) -> None:
        """Draw the ETF."""
        fill_from(self.etf, simplex_etf(self.etf.shape[0], self.etf.shape[1], rng))

    def unit(self, features: Tensor) -> Tensor:
        """(B, d) -> (B, d) of norm 1."""
        if self.bn is not None and not (self.training and len(features) == 1):
            features = self.bn(features)
        return functional.normalize(features, dim=1, eps=1e-8)

    def forward(self, features: Tensor) -> Tensor:
        """(B, d) -> logits (B, C): cosines with the class vectors."""
        return self.unit(features) @ self.etf


def etf_lengths(labels: Tensor, num_classes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Class lengths (C,) of dot regression: sqrt((B / classes present) / count), 1 for absent classes.

    Args:
        labels: (B,) int64 class ids of the batch.
        num_classes: C.
        dtype: of the result.
    """
    counts = torch.zeros(num_classes, dtype=dtype, device=labels.device)
    counts.scatter_add_(0, labels, counts.new_ones(()).expand(len(labels)))
    share = len(labels) / (counts > 0).sum().to(dtype)
    return torch.where(counts > 0, (share / counts.clamp(min=1)).sqrt(), 1.0)


def dot_regression_loss(unit: Tensor, etf: Tensor, labels: Tensor) -> Tensor:
    """Half the mean of (u.m - |m||u|)^2 / |u| with target m = length * class vector; |u| and |m| carry no gradient.

    Args:
        unit: (B, d) features u, usually of norm 1.
        etf: (d, C) class vectors.
        labels: (B,) int64 class ids.
    """
    targets = (etf * etf_lengths(labels, etf.shape[1], unit.dtype).to(etf.dtype)).T[labels]
    lengths = unit.detach().norm(dim=1)
    gap = (unit * targets).sum(dim=1) - targets.norm(dim=1) * lengths
    loss: Tensor = 0.5 * (gap.square() / torch.where(lengths > 0, lengths, 1.0)).mean()
    return loss
