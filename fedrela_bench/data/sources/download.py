"""Downloads through torchvision: once, under a lock, into place only when complete."""

from __future__ import annotations

import http.client
import shutil
import socket
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fedrela_bench.data.sources.places import Found, Place, expected, places, search
from fedrela_bench.errors import DataError

LOCK_SECONDS = 3600.0
SILENCE_SECONDS = 30.0
TORCHVISION = {
    "fashion_mnist": ("FashionMNIST", "FashionMNIST"),
    "cifar10": ("CIFAR10", "cifar-10-batches-py"),
    "cifar100": ("CIFAR100", "cifar-100-python"),
}
"""Class in torchvision.datasets, and the folder it leaves in its root."""


def find_or_download(source: str, data_dir: Path | None, cache_dir: Path) -> Found:
    """A complete copy of a named set.

    Args:
        source: fashion_mnist, cifar10 or cifar100.
        data_dir: searched first.
        cache_dir: searched, and where a download goes. Of several processes one downloads, the others wait and find it.

    Raises:
        DataError: not found and not downloadable; names every place looked in and the command that fetches.
    """
    listed = places(source, data_dir, cache_dir)
    found, reasons = search(source, listed)
    if found:
        return found
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with FileLock(cache_dir / f"{source}.lock", timeout=LOCK_SECONDS):
            found, reasons = search(source, listed)
            if found:
                return found
            _download(source, cache_dir)
    except (RuntimeError, OSError, EOFError, zlib.error, tarfile.TarError, http.client.HTTPException) as error:
        raise DataError(_not_found(source, reasons, error, cache_dir)) from error
    found, reasons = search(source, [Place("cache", cache_dir.absolute())])
    if not found:
        raise DataError(_not_found(source, reasons, RuntimeError("the download is incomplete"), cache_dir))
    return found


def _download(source: str, cache_dir: Path) -> None:
    from torchvision import datasets

    name, folder = TORCHVISION[source]
    staging = cache_dir / f".{source}-download"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    dataset: Any = getattr(datasets, name)
    try:
        with _socket_timeout():
            dataset(root=str(staging), train=True, download=True)
        # An incomplete folder of that name lies there only if somebody removed files from it.
        shutil.rmtree(cache_dir / folder, ignore_errors=True)
        (staging / folder).replace(cache_dir / folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def _socket_timeout() -> Iterator[None]:
    """A limit that torchvision does not set: a firewall that drops packets would hang a compute node forever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(SILENCE_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _not_found(source: str, reasons: list[str], error: Exception, cache_dir: Path) -> str:
    if isinstance(error, Timeout):
        error = RuntimeError(f"another process held {cache_dir / source}.lock for {LOCK_SECONDS:.0f} s")
    looked = "\n".join(f"  {i}. {reason}" for i, reason in enumerate(reasons, 1))
    return (
        f"{source} is not on this machine and could not be downloaded to {cache_dir.absolute()} "
        f"({str(error).strip() or type(error).__name__}). Looked for {expected(source)} in:\n{looked}\n"
        f"On a machine with network run: fedrela-bench data get {source}\n"
        "then copy the folder, or point data_dir (--data-dir) or FEDRELA_DATA at it."
    )
