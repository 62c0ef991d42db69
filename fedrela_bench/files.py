"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import uuid
from pathlib import Path


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
