"""Devices: whether one can be used, how its memory is treated, how small tensors reach it."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from fedrela_bench.errors import ConfigError, RunError

MIB = 1 << 20
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


@contextmanager
def memory_share(share: float, device: torch.device) -> Iterator[None]:
    """This process may hold that share of the GPU's memory inside the block; nothing is reserved for it.

    Args:
        share: above 0, at most 1.
        device: the GPU.

    Raises:
        RunError: the block wanted more.
    """
    place = device if device.index is not None else None
    torch.cuda.set_per_process_memory_fraction(share, place)
    try:
        yield
    except torch.OutOfMemoryError as error:
        total = torch.cuda.get_device_properties(device).total_memory
        raise RunError(
            f"out of GPU memory: this process may hold {share:.1%} of it, {share * total / MIB:,.0f} MiB. Lower "
            "training.batch_size, give trials a larger share of the GPU (--gpus-per-trial), or choose a smaller model"
        ) from error
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, place)


def peak_memory() -> dict[str, int]:
    """What this process's tensors held of its GPU at most since the peak was reset, and what the GPU has, in bytes.

    Returns:
        ``peak_bytes`` and ``total_bytes``; nothing where no GPU was used.
    """
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return {}
    total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    return {"peak_bytes": int(torch.cuda.max_memory_allocated()), "total_bytes": int(total)}
