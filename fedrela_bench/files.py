"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT)
FULL_TEXTS = ("No space left on device", "Disk quota exceeded", "disk is full")
"""How libraries that keep only the text of an error say so."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write under a temporary name, fsync, rename: readers see the old content or the new, never a part.

    Missing folders are made.

    Raises:
        OSError: the file cannot be written; what was under `path` is still there, and nothing else is.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Threads share a process id, and so do processes of containers that share a folder.
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def unusable_path(error: BaseException) -> str | None:
    """What is wrong with a path that no file can have; None where something else went wrong."""
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return f"{str(error.filename)[:60]}...: no file can have a name this long; give a shorter path"
    return None


def full_disk(error: BaseException | None) -> str | None:
    """What says so, where a full disk is behind an error; None where something else is."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        text = next((line for line in str(error).splitlines() if any(full in line for full in FULL_TEXTS)), None)
        if text is not None or (isinstance(error, OSError) and error.errno in FULL):
            return (text or str(error)).strip()
        error = error.__cause__ or error.__context__
    return None
