"""FedReLa's equations (2)-(8) and Algorithm 1 in torch, for posteriors that live on an accelerator.

The same steps as the numpy engine on whole (n, C) matrices: sums have a fixed order and no value is read back by the
host, so labels repeat from run to run and a stream is never stalled.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fedrela_bench.relabel.numpy_engine import SMALLEST_SIGMA, quantile_position
from fedrela_bench.relabel.options import RelabelOptions


class Outcome(NamedTuple):
    """Labels (n,), strength (n,), thresholds (C,), prior weight (C, C), scores (n, C) or None."""

    labels: Tensor
    strength: Tensor
    thresholds: Tensor
    prior_weight: Tensor
    scores: Tensor | None


def working_dtype(device: torch.device) -> torch.dtype:
    """float64, so that labels agree with numpy's; float32 on devices that have nothing wider."""
    return torch.float32 if device.type == "mps" else torch.float64


def prior_weights(counts: Tensor, dtype: torch.dtype, options: RelabelOptions) -> Tensor:
    """Eq. (6) as a (C, C) table: row l, column c is max(prior[c] - prior[l], 0)."""
    low, high = counts.aminmax()
    prior = 1 - (counts - low).to(dtype) / (high - low).clamp(min=1).to(dtype)
    weight = (prior[None, :] - prior[:, None]).clamp(min=0)
    if options.absent_targets == "forbid":
        weight = torch.where(counts[None, :] > 0, weight, 0)
    return weight


def class_sums(sorted_rows: Tensor, counts: Tensor) -> Tensor:
    """(n, C) rows in order of label -> (C, C) sums per label."""
    return torch.segment_reduce(sorted_rows, "sum", lengths=counts, axis=0, unsafe=True, initial=0)


def standardise(rows: Tensor, labels: Tensor, counts: Tensor, options: RelabelOptions) -> Tensor:
    """Z-scores of eqs. (3)-(5) for rows (n, C) in order of label."""
    first = (counts.cumsum(0) - counts).clamp(max=len(rows) - 1)
    reference = rows[first]
    sizes = counts.clamp(min=1).to(rows.dtype)[:, None]
    mean = reference + class_sums(rows - reference[labels], counts) / sizes
    rows = rows - mean[labels]
    sizes = (counts - options.std_ddof).clamp(min=1).to(rows.dtype)[:, None]
    sigma = (class_sums(rows * rows, counts) / sizes).sqrt().clamp(min=options.sigma_floor)
    smallest = SMALLEST_SIGMA if rows.dtype == torch.float64 else torch.finfo(rows.dtype).tiny
    inverse = torch.where(sigma > smallest, 1 / sigma.clamp(min=smallest), 0)
    return rows.mul_(inverse[labels])


def scale_to_unit(rows: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """Min-max scores inside each class for rows (n, C) in order of label; 0 where a class is constant."""
    infinity = torch.full((len(counts), rows.shape[1]), torch.inf, dtype=rows.dtype, device=rows.device)
    index = labels[:, None].expand_as(rows)
    low = infinity.scatter_reduce(0, index, rows, "amin")
    high = (-infinity).scatter_reduce(0, index, rows, "amax")
    span = torch.where(high > low, high - low, infinity)
    return (rows - low[labels]) / span[labels]


def column_quantiles(scores: Tensor, tau: float, options: RelabelOptions) -> Tensor:
    """(n, C) -> (C,) quantiles at 1 - tau, eq. (7)."""
    rank, fraction = quantile_position(len(scores), tau, options)
    columns = scores.T.contiguous()
    low = columns.kthvalue(rank + 1, dim=1).values
    if fraction == 0.0:
        return low
    return low + (columns.kthvalue(rank + 2, dim=1).values - low) * fraction


def other_class_quantiles(
    scores: Tensor, labels: Tensor, counts: Tensor, tau: float, options: RelabelOptions
) -> Tensor:
    """(C,) quantiles of each column over the samples of other classes; over all samples where there is no other."""
    n, classes = scores.shape
    own = labels[:, None] == torch.arange(classes, device=scores.device)
    own &= (counts < n)[None, :]
    ordered = scores.masked_fill(own, torch.inf).sort(dim=0).values
    # Pool sizes are known to the device only, so every possible size gets its position: a table of n entries.
    table = [(0, 0.0), *(quantile_position(size, tau, options) for size in range(1, n + 1))]
    ranks = torch.tensor([rank for rank, _ in table], device=scores.device)
    fractions = torch.tensor([fraction for _, fraction in table], dtype=scores.dtype, device=scores.device)
    size = torch.where(counts < n, n - counts, n)
    rank = ranks[size][None, :]
    low = ordered.gather(0, rank)[0]
    high = ordered.gather(0, torch.minimum(rank + 1, size[None, :] - 1))[0]
    return low + (high - low) * fractions[size]


def thresholds_of(scores: Tensor, labels: Tensor, counts: Tensor, tau: float, options: RelabelOptions) -> Tensor:
    """(C,) thresholds under any of the options."""
    if options.constant_threshold is not None or options.score == "none":
        return scores.new_full(scores.shape[1:], options.constant_threshold or 0.0)
    if options.threshold_pool == "all":
        return column_quantiles(scores, tau, options)
    return other_class_quantiles(scores, labels, counts, tau, options)


def flip_probabilities(
    scores: Tensor, labels: Tensor, thresholds: Tensor, prior_weight: Tensor, options: RelabelOptions
) -> Tensor:
    """Rho (n, C) of eq. (8) from scores (n, C)."""
    excess = (scores - thresholds).clamp_(min=0)
    if options.score == "zscore":
        excess.tanh_()
    elif options.score == "minmax":
        excess /= torch.where(thresholds < 1, 1 - thresholds, 1)
    return excess.mul_(prior_weight[labels.long()])


def without_noise(rho: Tensor) -> Tensor:
    """Rho rounded to 40 bits, so that values equal but for the order of operations compare as equal."""
    if rho.dtype != torch.float64:
        return rho
    return ((rho.view(torch.int64) + (1 << 11)) & -(1 << 12)).view(torch.float64)


@torch.no_grad()
def reallocate(
    posterior: Tensor, labels: Tensor, tau: float, uniforms: Tensor, options: RelabelOptions, diagnostics: bool
) -> Outcome:
    """Re-allocate checked inputs: posterior (n, C), labels (n,) with n >= 1, tau a fraction, uniforms (n, C)."""
    dtype = working_dtype(posterior.device)
    order = labels.argsort(stable=True)
    origin = labels[order].long()
    counts = torch.zeros(posterior.shape[1], dtype=torch.int64, device=labels.device)
    counts.scatter_add_(0, origin, torch.ones_like(origin))
    weights = prior_weights(counts, dtype, options)
    scores = posterior[order].to(dtype)
    if options.score == "zscore":
        scores = standardise(scores, origin, counts, options)
    elif options.score == "minmax":
        scores = scale_to_unit(scores, origin, counts)
    thresholds = thresholds_of(scores, origin, counts, tau, options)
    rho = flip_probabilities(scores, origin, thresholds, weights, options)
    hit = rho > uniforms[order]
    rho = without_noise(rho)
    if options.pick == "drawn":
        rho.mul_(hit)
    best, choice = rho.max(dim=1)
    drawn = hit.any(dim=1)
    moved, strength = torch.empty_like(labels), torch.empty_like(best)
    moved[order] = torch.where(drawn, choice, origin).to(labels.dtype)
    strength[order] = torch.where(drawn, best, 0)
    if not diagnostics:
        return Outcome(moved, strength, thresholds, weights, None)
    kept = torch.empty_like(posterior)
    kept[order] = scores.to(posterior.dtype)
    return Outcome(moved, strength, thresholds, weights, kept)
