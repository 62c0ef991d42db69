"""SSE-C, the fixed sparse classifier of FedLoGe: a simplex ETF thinned out and spread again.

Xiao et al., "FedLoGe: Joint Local and Generic Federated Learning under Long-tailed Data", ICLR 2024 (Static Sparse
ETF Classifier), with the constants of the released code: target norm 0.1, Adam with learning rate 1e-4, 10,000 steps.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedrela_bench.data.sources import default_cache_dir
from fedrela_bench.errors import ConfigError
from fedrela_bench.files import write_atomically
from fedrela_bench.models.base import fill_from
from fedrela_bench.models.heads import etf_from_basis, wider
from fedrela_bench.rng import generator

Matrix = NDArray[np.float64]

TARGET_NORM = 0.1
COSINE_LIMIT = 0.99999
LEARNING_RATE, BETA1, BETA2, EPSILON = 1e-4, 0.9, 0.999, 1e-8
FORMAT = 1
DISK_STEPS = 1000
"""From here on a matrix is kept on disk: 10,000 steps take about 9 s for d = 512 and C = 100, fewer than these none."""


def ssec_objective(vectors: Tensor, target_norm: float = TARGET_NORM) -> Tensor:
    """Sum over classes of (norm - target)^2, minus the mean over classes of the angle to the nearest other class.

    Args:
        vectors: (C, d) class vectors.
        target_norm: 0.1 in the released code.

    Returns:
        Scalar; angles in radians, cosines clipped to +-0.99999.
    """
    norms = vectors.norm(dim=1)
    unit = vectors / norms[:, None]
    cosines = (unit @ unit.T).fill_diagonal_(-2)
    nearest = cosines.max(dim=1).values.clamp(-COSINE_LIMIT, COSINE_LIMIT)
    value: Tensor = (norms - target_norm).square().sum() - nearest.arccos().mean()
    return value


def ssec_gradient(vectors: Tensor, target_norm: float = TARGET_NORM) -> Tensor:
    """(C, d) gradient of `ssec_objective`.

    Only the nearest pair of each class carries an angle, so that after one (C, C) product everything is of size (C, d):
    three times faster than differentiating the objective.
    """
    norms = vectors.norm(dim=1, keepdim=True)
    unit = vectors / norms
    nearest, index = (unit @ unit.T).fill_diagonal_(-2).max(dim=1)
    slope = torch.where(nearest.abs() < COSINE_LIMIT, (1 - nearest.square()).rsqrt(), 0.0) / len(vectors)
    gradient: Tensor = unit.index_select(0, index).mul_(slope[:, None])
    gradient.index_add_(0, index, unit * slope[:, None])
    radial = torch.linalg.vecdot(gradient, unit)[:, None]
    gradient.addcmul_(unit, radial, value=-1).div_(norms).addcmul_(unit, norms - target_norm, value=2)
    return gradient


def sparse_start(dim: int, num_classes: int, sparsity: float, rng: np.random.Generator) -> tuple[Matrix, np.ndarray]:
    """A simplex ETF of which floor(sparsity d C) entries, chosen uniformly over the whole matrix, are zero.

    Returns:
        (C, d) class vectors and the sorted flat indices of the entries that are free. A class that would be left
        without any, as can happen in a few dimensions, keeps one.
    """
    basis = torch.linalg.qr(torch.from_numpy(rng.uniform(0.0, 1.0, (dim, num_classes)))).Q.numpy()
    vectors = np.ascontiguousarray(etf_from_basis(basis).T)
    free = np.ones(vectors.shape, dtype=bool)
    free.reshape(-1)[rng.choice(free.size, math.floor(sparsity * free.size), replace=False)] = False
    spare = rng.integers(dim, size=num_classes)
    free[np.arange(num_classes), spare] |= ~free.any(axis=1)
    return vectors * free, np.flatnonzero(free)


def build_ssec(dim: int, num_classes: int, seed: int, steps: int, sparsity: float) -> Matrix:
    """(C, d) SSE-C, computed anew: zeros stay exactly zero, norms end near 0.1.

    On the CPU, in float64 and on one thread, so that the bits depend neither on the device nor on the threads of the
    process that asks.

    Args:
        dim: d, at least C.
        num_classes: C.
        seed: keys the ETF and the choice of zeros.
        steps: of Adam.
        sparsity: share of the entries that are zero.
    """
    with _one_thread(), torch.no_grad():
        start, free = sparse_start(dim, num_classes, sparsity, generator(seed, "sse-c"))
        vectors, index = torch.from_numpy(start), torch.from_numpy(free)
        _descend(vectors, index, steps)
        return vectors.numpy()


def _descend(vectors: Tensor, free: Tensor, steps: int) -> None:
    flat = vectors.view(-1)
    values = flat[free]
    first, second = torch.zeros_like(values), torch.zeros_like(values)
    for step in range(1, steps + 1):
        gradient = ssec_gradient(vectors).view(-1).index_select(0, free)
        first.lerp_(gradient, 1 - BETA1)
        second.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        scale = second.sqrt().mul_(1 / math.sqrt(1 - BETA2**step)).add_(EPSILON)
        values.addcdiv_(first, scale, value=-LEARNING_RATE / (1 - BETA1**step))
        flat.index_copy_(0, free, values)


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@lru_cache(maxsize=16)
def cached_ssec(dim: int, num_classes: int, seed: int, steps: int, sparsity: float) -> Matrix:
    """`build_ssec`, read-only, from memory or the user's cache folder where it is there undamaged; the same bits."""
    key = f"d{dim}_c{num_classes}_s{seed}_n{steps}_z{sparsity!r}"
    path = default_cache_dir() / "ssec" / f"{key}.ssec"
    head = f"fedrela-bench ssec {FORMAT} {key} ".encode()
    try:
        matrix = _decode(path.read_bytes(), head, (num_classes, dim))
    except OSError:
        matrix = None
    if matrix is None:
        matrix = build_ssec(dim, num_classes, seed, steps, sparsity)
        if steps >= DISK_STEPS:
            # Without room for a cache the next process builds the matrix again.
            with suppress(OSError):
                write_atomically(path, _encode(matrix, head))
    matrix.setflags(write=False)
    return matrix


def _encode(matrix: Matrix, head: bytes) -> bytes:
    data = matrix.astype("<f8").tobytes()
    return head + _digest(data) + b"\n" + data


def _decode(content: bytes, head: bytes, shape: tuple[int, int]) -> Matrix | None:
    first, _, data = content.partition(b"\n")
    if first != head + _digest(data) or len(data) != 8 * math.prod(shape):
        return None
    return np.frombuffer(data, dtype="<f8").astype(np.float64).reshape(shape)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).hexdigest().encode()


class SSECHead(nn.Module):
    """The fixed classifier W_s h + b_s; its buffers never change after `reset`.

    Args:
        feature_dim: d of the backbone, at least C.
        num_classes: C.
        steps: of the construction.
        sparsity: share of zeros.
        random_bias: draw b_s uniformly within 1 / sqrt(d), as a linear layer does; otherwise it is zero.

    Raises:
        ConfigError: fewer features than classes, or fewer than two classes.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, feature_dim: int, num_classes: int, steps: int, sparsity: float, random_bias: bool) -> None:
        super().__init__()
        if num_classes < 2 or feature_dim < num_classes:
            raise ConfigError(
                f"FedLoGe's fixed classifier starts from a simplex ETF, which needs at least 2 classes and as many "
                f"features as classes; here are {num_classes} classes and {feature_dim} features; {wider(num_classes)}"
            )
        self.steps = steps
        self.sparsity = sparsity
        self.random_bias = random_bias
        with torch.device("meta"):
            self.register_buffer("weight", torch.empty(num_classes, feature_dim))
            self.register_buffer("bias", torch.empty(num_classes))

    def reset(self, rng: np.random.Generator) -> None:
        """Build the matrix of a seed that `rng` gives."""
        classes, dim = self.weight.shape
        matrix = cached_ssec(dim, classes, int(rng.integers(2**63)), self.steps, self.sparsity)
        fill_from(self.weight, matrix.copy())
        bound = 1 / math.sqrt(dim) if self.random_bias else 0.0
        fill_from(self.bias, rng.uniform(-bound, bound, classes))

    def forward(self, features: Tensor) -> Tensor:
        """(B, d) -> logits (B, C)."""
        return nn.functional.linear(features, self.weight, self.bias)
