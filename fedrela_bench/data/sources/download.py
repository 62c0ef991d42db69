"""Downloads of named sets: once, under a lock, checked against the published sums, into place only when complete."""

from __future__ import annotations

import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from filelock import FileLock, Timeout

from fedrela_bench.data.sources.imagenet import not_found
from fedrela_bench.data.sources.places import LAYOUTS, Found, Layout, Place, expected, places, search
from fedrela_bench.data.sources.transfer import Tell, TransferError, fetch_file
from fedrela_bench.errors import DataError

LOCK_SECONDS = 3600.0
MIRROR_VARIABLE = "FEDRELA_MIRROR"
"""Address of a folder with the published files, asked instead of the places that they are published at."""
TORCHVISION = {"fashion_mnist": "FashionMNIST", "cifar10": "CIFAR10", "cifar100": "CIFAR100"}
"""Classes of torchvision.datasets, which keeps addresses and sums."""


@dataclass(frozen=True)
class Remote:
    """A published file."""

    name: str
    md5: str
    urls: tuple[str, ...]


def _silent(line: str) -> None:
    """Nobody listens."""


def find_or_download(source: str, data_dir: Path | None, cache_dir: Path, tell: Tell = _silent) -> Found:
    """A complete copy of a named set.

    Args:
        source: fashion_mnist, cifar10, cifar100, or imagenet, which is only looked for.
        data_dir: searched first.
        cache_dir: searched, and where a download goes. Of several processes one downloads, the others wait and find it.
        tell: takes lines about a download's progress.

    Raises:
        DataError: not found and not downloadable; names every place looked in and the command that fetches.
    """
    listed = places(source, data_dir, cache_dir)
    found, reasons = search(source, listed)
    if found:
        return found
    if source == "imagenet":
        raise DataError(not_found(reasons))
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with FileLock(cache_dir / f"{source}.lock", timeout=LOCK_SECONDS):
            found, reasons = search(source, listed)
            if found:
                return found
            _download(source, cache_dir, tell)
    except (TransferError, OSError, EOFError, ValueError, zlib.error, tarfile.TarError) as error:
        raise DataError(_not_found(source, reasons, error, cache_dir)) from error
    found, reasons = search(source, [Place("cache", cache_dir.absolute())])
    if not found:
        raise DataError(_not_found(source, reasons, RuntimeError("the download is incomplete"), cache_dir))
    return found


def remotes(source: str) -> list[Remote]:
    """The published files of a named set; where MIRROR_VARIABLE is set, at that address."""
    from torchvision import datasets

    known: Any = getattr(datasets, TORCHVISION[source])
    if hasattr(known, "resources"):
        found = [Remote(name, md5, tuple(f"{base}{name}" for base in known.mirrors)) for name, md5 in known.resources]
    else:
        found = [Remote(known.filename, known.tgz_md5, (known.url,))]
    mirror = os.environ.get(MIRROR_VARIABLE)
    if not mirror:
        return found
    return [Remote(remote.name, remote.md5, (f"{mirror.rstrip('/')}/{remote.name}",)) for remote in found]


def _download(source: str, cache_dir: Path, tell: Tell) -> None:
    """Fetch into a folder that later calls go on with, and rename what is complete."""
    staging, published = cache_dir / f".{source}-download", remotes(source)
    staging.mkdir(exist_ok=True)
    try:
        for remote in published:
            if not (staging / remote.name).exists():
                fetch_file(remote.urls, staging / remote.name, remote.md5, tell)
    except BaseException:
        with suppress(OSError):  # Not empty: something has arrived.
            staging.rmdir()
        raise
    try:
        _put_in_place(staging, [remote.name for remote in published], LAYOUTS[source], cache_dir)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _put_in_place(staging: Path, names: list[str], layout: Layout, cache_dir: Path) -> None:
    ready, target = staging / "ready", cache_dir / layout.folders[0]
    shutil.rmtree(ready, ignore_errors=True)
    ready.mkdir()
    for name in names:
        if name.endswith(".tar.gz"):
            _unpack(staging / name, layout.files, ready)
        else:
            (staging / name).replace(ready / name)
    # An incomplete folder of that name lies there only if somebody removed files from it.
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    ready.replace(target)


def _unpack(archive: Path, wanted: tuple[str, ...], folder: Path) -> None:
    """The files of an archive that have wanted names; nothing else in it is written anywhere."""
    with tarfile.open(archive) as opened:
        for member, name in _members(opened, wanted):
            content = opened.extractfile(member)
            if content is not None:
                with content, (folder / name).open("wb") as file:
                    shutil.copyfileobj(content, file)


def _members(opened: tarfile.TarFile, wanted: tuple[str, ...]) -> Iterator[tuple[tarfile.TarInfo, str]]:
    for member in opened:
        name = PurePosixPath(member.name).name
        if member.isfile() and name in wanted:
            yield member, name


def _not_found(source: str, reasons: list[str], error: Exception, cache_dir: Path) -> str:
    if isinstance(error, Timeout):
        error = RuntimeError(f"another process held {cache_dir / source}.lock for {LOCK_SECONDS:.0f} s")
    looked = "\n".join(f"  {i}. {reason}" for i, reason in enumerate(reasons, 1))
    return (
        f"{source} is not on this machine and could not be downloaded to {cache_dir.absolute()} "
        f"({str(error).strip() or type(error).__name__}). Looked for {expected(source)} in:\n{looked}\n"
        f"On a machine with network run: fedrela-bench data get {source}\n"
        "then copy the folder, or point data_dir (--data-dir) or FEDRELA_DATA at it. A server of your own that has the "
        f"published files can be named in {MIRROR_VARIABLE}."
    )
