"""One file of tensors and plain values, whole or not at all; its first line holds the digest of the rest."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

from fedrela_bench.errors import StoreError
from fedrela_bench.files import write_atomically

T = TypeVar("T")


def write_values(path: Path, kind: str, values: dict[str, Any]) -> None:
    """Write atomically: temporary name, fsync, rename.

    Args:
        path: of the file.
        kind: what it is, such as snapshot; named in the file and in messages.
        values: what `torch.load` reads back without running code.

    Raises:
        StoreError: the file cannot be written (full disk, permissions); what was under `path` before is still there.
    """
    buffer = io.BytesIO()
    torch.save(values, buffer)
    data = buffer.getvalue()
    try:
        write_atomically(path, _head(kind, data) + b"\n" + data)
    except OSError as error:
        raise StoreError(
            f"cannot write {kind} {path}: {error.strerror or error}; free space or choose --out"
        ) from error


def read_values(path: Path, kind: str, make: Callable[..., T]) -> T:
    """Read what `write_values` wrote and check it against its digest.

    Args:
        path: of the file.
        kind: what it is.
        make: takes the values by their names.

    Raises:
        StoreError: missing, damaged or written by another version.
    """
    try:
        head, _, data = path.read_bytes().partition(b"\n")
    except OSError as error:
        raise StoreError(f"cannot read {kind} {path}: {error.strerror or error}") from error
    if head != _head(kind, data):
        raise StoreError(f"{kind} {path} is damaged (its digest does not match); delete it to compute it again")
    try:
        return make(**torch.load(io.BytesIO(data), weights_only=True))
    except (TypeError, RuntimeError, pickle.UnpicklingError) as error:
        raise StoreError(f"{kind} {path} was written by another version; delete it to compute it again") from error


def _head(kind: str, data: bytes) -> bytes:
    return f"fedrela-bench {kind} {hashlib.blake2b(data, digest_size=16).hexdigest()}".encode()
