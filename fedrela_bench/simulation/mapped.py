"""Images that stay in their file because they are too many for memory; rows are read when they are asked for.

What is read is the same, wherever images lie: no bit of a result depends on it.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from fedrela_bench.simulation.devices import to_device

KEPT_BYTES = 1 << 30
"""Images that take no more are always kept in memory."""
GPU_SHARE = 0.5
"""Of a GPU's free memory that images may take; the rest is for the network, its gradients and activations."""
COPY_ROWS = 1024
"""Images copied to a GPU at once."""


class Mapped:
    """Rows of a memory-mapped array, as a tensor on a device would give them.

    Indexing reads; `view` and `split` do not. Any other use as a tensor reads all rows.

    Args:
        source: (N, H, W, C), the whole of a file.
        rows: (n,) int64 rows of it.
        device: where what is read goes.
    """

    def __init__(self, source: np.memmap[Any, Any], rows: np.ndarray, device: torch.device) -> None:
        self.source = source
        self.rows = rows
        self.device = device

    @property
    def shape(self) -> torch.Size:
        """(n, H, W, C)."""
        return torch.Size((len(self.rows), *self.source.shape[1:]))

    @property
    def nbytes(self) -> int:
        """Of the rows, were they read."""
        return int(len(self.rows) * self.stride(0) * self.source.dtype.itemsize)

    def stride(self, dim: int) -> int:
        """Elements from one image, row, column or channel to the next."""
        return int(np.prod(self.source.shape[dim + 1 :]))

    def view_rows(self, rows: Tensor) -> Mapped:
        """Some rows, unread: (m,) int64 places among these."""
        return Mapped(self.source, self.rows[rows.cpu().numpy()], self.device)

    def split(self, size: int, dim: int = 0) -> tuple[Mapped, ...]:
        """Pieces of `size` images, unread."""
        assert dim == 0, "images are split by rows"
        starts = range(0, len(self.rows), size)
        return tuple(Mapped(self.source, self.rows[start : start + size], self.device) for start in starts)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Tensor:
        rows = self.rows[index.cpu().numpy() if isinstance(index, Tensor) else index]
        return to_device(torch.from_numpy(np.array(self.source[rows])), self.device)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("source", "rows", "device"):
            raise AttributeError(name)
        return getattr(self[:], name)

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function is torch.split and isinstance(args[0], Mapped):
            return args[0].split(*args[1:], **(kwargs or {}))
        return function(*(arg[:] if isinstance(arg, Mapped) else arg for arg in args), **(kwargs or {}))

    def __reduce__(self) -> tuple[Any, ...]:
        # An array would travel with its content.
        file = self.source
        return _opened, (str(file.filename), file.offset, file.dtype.str, file.shape, self.rows)


def _opened(path: str, offset: int, kind: str, shape: tuple[int, ...], rows: np.ndarray) -> Mapped:
    """In another process, on the CPU."""
    source = np.memmap(Path(path), dtype=kind, mode="r", offset=offset, shape=shape)
    return Mapped(source, rows, torch.device("cpu"))


def resident_images(source: np.ndarray, rows: np.ndarray, device: torch.device) -> Tensor:
    """The images of some rows on the device; where they are mapped and too many for its memory, a `Mapped`.

    Args:
        source: (N, H, W, C).
        rows: (n,) int64.
        device: where they are used.
    """
    size = len(rows) * int(np.prod(source.shape[1:])) * source.dtype.itemsize
    if _is_file(source) and size > _room(device):
        return cast(Tensor, Mapped(cast("np.memmap[Any, Any]", source), rows.astype(np.int64), device))
    if device.type == "cpu" or size <= KEPT_BYTES:
        return torch.from_numpy(np.ascontiguousarray(source[rows])).to(device)
    images = torch.empty((len(rows), *source.shape[1:]), dtype=torch.from_numpy(source[:0].copy()).dtype, device=device)
    for start in range(0, len(rows), COPY_ROWS):
        part = np.ascontiguousarray(source[rows[start : start + COPY_ROWS]])
        images[start : start + len(part)] = torch.from_numpy(part).to(device)
    return images


def client_images(images: Tensor, rows: Tensor) -> Tensor:
    """The images of some positions; of mapped ones, unread."""
    if isinstance(images, Mapped):
        return cast(Tensor, images.view_rows(rows))
    return images[rows]


def _is_file(source: np.ndarray) -> bool:
    """Whether the array is all of what its file holds, so that another process finds it again."""
    return isinstance(source, np.memmap) and isinstance(source.base, mmap.mmap)


def _room(device: torch.device) -> int:
    """Bytes that images may take."""
    if device.type != "cuda":
        return KEPT_BYTES
    free, total = torch.cuda.mem_get_info(device)
    share = getattr(torch.cuda, "get_per_process_memory_fraction", lambda _: 1.0)(device)
    own = int(share * total) - torch.cuda.memory_allocated(device)
    return max(KEPT_BYTES, int(GPU_SHARE * min(free, own)))
