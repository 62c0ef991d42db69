"""FedReLa's label re-allocator: pure functions that any federated learning code can call.

At round T a client compares each sample's posterior with those of its class-mates and moves samples that lean
unusually far towards a locally rarer class to that class. Nothing else of the training changes.

Source: FedReLa, equations (2)-(8) and Algorithm 1 (arXiv 2606.26037).

    from fedrela_bench.relabel import RelabelOptions, reallocate

    r = reallocate(posterior, labels, tau=0.05, uniforms=rng.random(posterior.shape))
    train_on(r.labels)
"""

from __future__ import annotations

from typing import Any, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fedrela_bench.errors import ConfigError
from fedrela_bench.relabel import numpy_engine, torch_engine
from fedrela_bench.relabel.checks import as_numpy, check
from fedrela_bench.relabel.options import RelabelOptions
from fedrela_bench.relabel.relabeler import Relabeler, Relabelled
from fedrela_bench.relabel.result import Reallocation

__all__ = ["Reallocation", "RelabelOptions", "Relabeler", "Relabelled", "reallocate"]

PAPER = RelabelOptions()


@overload
def reallocate(
    posterior: Tensor,
    labels: Tensor | ArrayLike,
    tau: float,
    uniforms: Tensor | ArrayLike,
    options: RelabelOptions = ...,
    *,
    diagnostics: bool = ...,
) -> Reallocation[Tensor]: ...


@overload
def reallocate(
    posterior: ArrayLike,
    labels: ArrayLike,
    tau: float,
    uniforms: ArrayLike,
    options: RelabelOptions = ...,
    *,
    diagnostics: bool = ...,
) -> Reallocation[NDArray[Any]]: ...


def reallocate(
    posterior: Any,
    labels: Any,
    tau: float,
    uniforms: Any,
    options: RelabelOptions = PAPER,
    *,
    diagnostics: bool = True,
) -> Reallocation[Any]:
    """Re-allocate the labels of one client (FedReLa eqs. (2)-(8), Algorithm 1).

    Args:
        posterior: (n, C) class probabilities of the n local samples under the global model, float32 or float64;
            a numpy array, or a torch tensor, which stays on its device.
        labels: (n,) class ids 0..C-1.
        tau: relabelling budget, a fraction: thresholds are the (1 - tau)-quantiles; with quantile
            thresholds 0 changes nothing.
        uniforms: (n, C) draws from [0, 1); class c is drawn for sample i if rho[i, c] exceeds uniforms[i, c].
        options: readings of the paper; `RelabelOptions.preset` has the paper's and the released code's.
        diagnostics: keep z-scores (one more array of the posterior's size), from which rho is made when asked for.

    Returns:
        New labels and diagnostics of the posterior's kind. All arithmetic is in float64 and numpy and torch give the
        same labels. n = 0 gives an empty result.

    Raises:
        ConfigError: wrong shapes or values, every fault named.
    """
    if not isinstance(options, RelabelOptions):
        raise ConfigError(f"options = {options!r}: give RelabelOptions(...) or RelabelOptions.preset('paper'|'author')")
    if isinstance(posterior, Tensor):
        return _reallocate_tensor(posterior, labels, tau, uniforms, options, diagnostics)
    posterior = _floats(np.asarray(posterior))
    labels, uniforms = _class_ids(np.asarray(as_numpy(labels))), np.asarray(as_numpy(uniforms))
    check(posterior, labels, tau, uniforms)
    if len(posterior) == 0:
        return _empty(labels, posterior, np.zeros, options)
    made = numpy_engine.reallocate(posterior, labels, float(tau), uniforms, options, diagnostics)
    floats = (made.strength, made.thresholds, made.prior_weight)
    strength, thresholds, weight = (value.astype(posterior.dtype, copy=False) for value in floats)
    return Reallocation(labels.copy(), made.labels, strength, thresholds, weight, made.scores, options)


def _reallocate_tensor(
    posterior: Tensor, labels: Any, tau: float, uniforms: Any, options: RelabelOptions, diagnostics: bool
) -> Reallocation[Tensor]:
    device, posterior = posterior.device, _float_tensor(posterior)
    labels, uniforms = torch.as_tensor(labels, device=device), _float_tensor(torch.as_tensor(uniforms, device=device))
    if device.type == "cpu":
        # The same memory seen by numpy: its engine is the faster of the two here.
        arrays = reallocate(posterior.numpy(), labels.numpy(), tau, uniforms.numpy(), options, diagnostics=diagnostics)
        return arrays.to_torch()
    check(posterior, labels, tau, uniforms)
    if len(posterior) == 0:
        return _empty(labels, posterior, posterior.new_zeros, options)
    made = torch_engine.reallocate(posterior, labels, float(tau), uniforms, options, diagnostics)
    strength, thresholds, weight = (value.to(posterior.dtype) for value in made[1:4])
    return Reallocation(labels.clone(), made.labels, strength, thresholds, weight, made.scores, options)


def _empty(labels: Any, posterior: Any, zeros: Any, options: RelabelOptions) -> Reallocation[Any]:
    classes = posterior.shape[1]
    none, columns, table = (zeros(size, dtype=posterior.dtype) for size in (0, classes, (classes, classes)))
    return Reallocation(labels, labels, none, columns, table, posterior, options)


def _floats(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind not in "fiub":
        raise ConfigError(f"posterior is of type {array.dtype}; give real class probabilities")
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _float_tensor(tensor: Tensor) -> Tensor:
    return tensor.detach() if tensor.dtype in (torch.float32, torch.float64) else tensor.detach().float()


def _class_ids(array: NDArray[Any]) -> NDArray[Any]:
    return array if array.size else array.astype(np.int64)
