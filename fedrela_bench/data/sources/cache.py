"""Decoded images on disk: written once, atomically, and memory-mapped by every process of a node."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from fedrela_bench.data.sources.raw import ARRAYS, Column, RawData
from fedrela_bench.errors import DataError

FORMAT = 1
META = "meta.json"
OPTIONAL = ("train_clients",)
LOCK_SECONDS = 900.0


def load_or_build(
    cache_dir: Path,
    label: str,
    files: Sequence[tuple[str, Path]],
    params: Mapping[str, object],
    build: Callable[[], RawData],
) -> RawData:
    """The decoded arrays of some source files, from the cache or built and stored.

    The key covers the files' names, sizes and contents and `params`, so that a changed file is decoded anew. Of several
    processes one builds and the others wait. A damaged entry is rebuilt. Where the cache cannot be written (read-only,
    full disk) the arrays stay in memory and a note says so; nothing half-written is left.

    Args:
        cache_dir: created if needed.
        label: readable part of the entry's name.
        files: (name, path) in reading order; names must not depend on where the files lie.
        params: what else decides the arrays; JSON.
        build: reads and checks the source.

    Raises:
        DataError: a source file is unreadable, or whatever `build` raises.
    """
    entry = cache_dir / "arrays" / f"{label}-{_key(files, params)}"
    return replace(_load_or_build(entry, build), key=entry.name)


def _load_or_build(entry: Path, build: Callable[[], RawData]) -> RawData:
    stored = read_entry(entry)
    if stored is not None:
        return stored
    try:
        with _lock(entry):
            stored = read_entry(entry)
            return stored if stored is not None else _build_and_store(entry, build)
    except (Timeout, _NoLockError) as error:
        return _with_note(build(), entry, error)


def read_entry(entry: Path) -> RawData | None:
    """A complete and undamaged entry, its images memory-mapped read-only; otherwise None."""
    try:
        meta = json.loads((entry / META).read_text(encoding="utf-8"))
        if meta["format"] != FORMAT or meta["seal"] != _seal(meta):
            return None
        names = (*ARRAYS, *(name for name in OPTIONAL if name in meta["arrays"]))
        for name in names:
            with (entry / f"{name}.npy").open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != meta["arrays"][name]:
                    return None
        arrays = {name: np.load(entry / f"{name}.npy", mmap_mode="r" if "images" in name else None) for name in names}
        return RawData(**arrays, **_texts(meta))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _texts(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `RawData` that are no arrays; entries from before tables existed lack some."""
    columns = [Column(name, None if found is None else tuple(found)) for name, found in meta.get("columns", ())]
    texts = {name: tuple(meta.get(name, ())) for name in ("class_names", "notes", "stated", "client_names")}
    return {**texts, "columns": tuple(columns)}


class _NoLockError(Exception):
    """The cache's folder or lock file cannot be made."""


@contextmanager
def _lock(entry: Path) -> Iterator[None]:
    lock = FileLock(f"{entry}.lock", timeout=LOCK_SECONDS)
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except (OSError, NotImplementedError) as error:
        if isinstance(error, Timeout):
            raise
        raise _NoLockError(str(error)) from error
    try:
        yield
    finally:
        lock.release()


def _build_and_store(entry: Path, build: Callable[[], RawData]) -> RawData:
    built = build()
    staging = entry.with_name(f"{entry.name}.tmp")
    try:
        # Left behind by a killed process; the lock says that nobody writes it now.
        shutil.rmtree(staging, ignore_errors=True)
        _write(staging, built)
        shutil.rmtree(entry, ignore_errors=True)
        staging.replace(entry)
        _sync_folder(entry.parent)
    except OSError as error:
        shutil.rmtree(staging, ignore_errors=True)
        return _with_note(built, entry, error)
    return read_entry(entry) or _with_note(built, entry, OSError("what was written reads back differently"))


def _write(staging: Path, raw: RawData) -> None:
    staging.mkdir(parents=True)
    digests = {}
    for name in (*ARRAYS, *(name for name in OPTIONAL if getattr(raw, name) is not None)):
        path = staging / f"{name}.npy"
        with path.open("wb") as file:
            np.save(file, np.ascontiguousarray(getattr(raw, name)))
            file.flush()
            os.fsync(file.fileno())
        with path.open("rb") as file:
            digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
    meta = {
        "format": FORMAT,
        "arrays": digests,
        "class_names": raw.class_names,
        "notes": raw.notes,
        "stated": raw.stated,
        "client_names": raw.client_names,
        "columns": [(column.name, column.categories) for column in raw.columns],
    }
    with (staging / META).open("w", encoding="utf-8") as text:
        json.dump({**meta, "seal": _seal(meta)}, text)
        text.flush()
        os.fsync(text.fileno())
    _sync_folder(staging)


def _seal(meta: Mapping[str, object]) -> str:
    body = {name: value for name, value in meta.items() if name != "seal"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _with_note(raw: RawData, entry: Path, error: Exception) -> RawData:
    note = (
        f"decoded images could not be cached in {entry.parent} ({error}) and are kept in memory; "
        "set FEDRELA_CACHE to a folder with space that can be written"
    )
    return replace(raw, notes=(*raw.notes, note))


def _key(files: Iterable[tuple[str, Path]], params: Mapping[str, object]) -> str:
    state = hashlib.sha256(json.dumps([FORMAT, params], sort_keys=True).encode())
    for name, path in files:
        try:
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
                size = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error.strerror}); check that it exists and its rights") from error
        state.update(json.dumps([name, size, content]).encode())
    return state.hexdigest()[:24]
