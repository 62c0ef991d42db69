"""Devices: whether one can be used, how its memory is treated, how small tensors reach it."""

from __future__ import annotations

import ctypes
import functools

import torch
from torch import Tensor

from fedrela_bench.errors import ConfigError

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES, _HEAP_BYTES = 256 << 20, 32 << 20


def usable_device(device: str | torch.device) -> torch.device:
    """The device, after putting something on it.

    Raises:
        ConfigError: there is no such device here.
    """
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"device {device!s} cannot be used here ({reason}); choose cpu or a device there is"
        ) from None
    if place.type == "cpu":
        keep_freed_memory()
    return place


@functools.cache
def keep_freed_memory() -> bool:
    """Have the C library keep up to 256 MiB of freed memory instead of handing it back after every step.

    Activations and gradients of a step are freed and wanted again by the next one; fetched from the system each time
    they cost a page fault per page. Returns whether the C library took the settings (glibc does).
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _HEAP_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The CPU tensor on the device; a GPU fetches it from pinned memory without the host waiting."""
    if device.type == "cpu":
        return tensor
    return (tensor.pin_memory() if tensor.numel() else tensor).to(device, non_blocking=True)
