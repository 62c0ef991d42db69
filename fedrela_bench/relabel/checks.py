"""Faults in the arguments of ``reallocate``, all found before anything is computed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrela_bench.errors import ConfigError


def check(posterior: Any, labels: Any, tau: object, uniforms: Any) -> None:
    """Raise ConfigError with every fault of the arguments, or return."""
    faults = _tau_faults(tau) + _shape_faults(posterior, labels, uniforms)
    if faults or len(posterior) == 0:
        _raise_any(faults)
        return
    on_device = isinstance(posterior, Tensor) and posterior.device.type != "cpu"
    if not (on_device and _sound_on_device(posterior, labels, uniforms)):
        _raise_any(_value_faults(as_numpy(posterior), as_numpy(labels), as_numpy(uniforms)))


def as_numpy(array: Any) -> NDArray[Any]:
    """The array itself, or a tensor's memory (copied from an accelerator)."""
    return array.detach().cpu().numpy() if isinstance(array, Tensor) else array


def _raise_any(faults: list[str]) -> None:
    if faults:
        raise ConfigError(faults)


def _tau_faults(tau: object) -> list[str]:
    if isinstance(tau, bool) or not isinstance(tau, int | float | np.integer | np.floating) or not math.isfinite(tau):
        return [f"tau = {tau!r} must be a number from 0 to 1"]
    if tau > 1:
        return [f"tau = {tau} is a fraction of the local samples, at most 1; did you mean {float(tau) / 100:g}?"]
    return [f"tau = {tau} is negative; give a fraction from 0 to 1"] if tau < 0 else []


def _shape_faults(posterior: Any, labels: Any, uniforms: Any) -> list[str]:
    faults = []
    shape = tuple(posterior.shape)
    if len(shape) != 2 or shape[1] == 0:
        return [f"posterior has shape {shape}; give one row per sample and one column per class"]
    if tuple(labels.shape) != shape[:1]:
        faults.append(f"labels have shape {tuple(labels.shape)}; a posterior of shape {shape} needs ({shape[0]},)")
    if not _is_integer(labels):
        faults.append(f"labels are of type {labels.dtype}; give integer class ids")
    if tuple(uniforms.shape) != shape:
        faults.append(f"uniforms have shape {tuple(uniforms.shape)}; they need the posterior's shape {shape}")
    return faults


def _is_integer(labels: Any) -> bool:
    if isinstance(labels, Tensor):
        return not labels.dtype.is_floating_point and not labels.dtype.is_complex and labels.dtype != torch.bool
    return labels.dtype.kind in "iu"


def _sound_on_device(posterior: Tensor, labels: Tensor, uniforms: Tensor) -> bool:
    low, high = uniforms.aminmax()
    smallest, largest = labels.aminmax()
    sound = posterior.isfinite().all() & (low >= 0) & (high <= 1) & (smallest >= 0) & (largest < posterior.shape[1])
    return bool(sound)  # the one value the host waits for


def _value_faults(posterior: NDArray[Any], labels: NDArray[Any], uniforms: NDArray[Any]) -> list[str]:
    faults = []
    # A finite sum proves finite terms without a second array of the posterior's size.
    with np.errstate(over="ignore", invalid="ignore"):
        doubtful = not math.isfinite(posterior.sum())
    if doubtful and (rows := np.flatnonzero(~np.isfinite(posterior).all(axis=1))).size:
        faults.append(f"posterior holds values that are not finite in {rows.size} of its rows, first in row {rows[0]}")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= posterior.shape[1]:
        faults.append(
            f"labels reach from {low} to {high}; a posterior of {posterior.shape[1]} columns has classes 0 to "
            f"{posterior.shape[1] - 1}"
        )
    smallest, largest = uniforms.min(), uniforms.max()
    if not (smallest >= 0 and largest <= 1):
        faults.append(f"uniforms reach from {smallest:g} to {largest:g}; draw them from [0, 1)")
    return faults
