"""What this machine lets this process use."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_disk(path: Path) -> int | None:
    """Bytes that this user may still write below a path that may not be there yet; None where nothing says so."""
    for place in (path, *path.absolute().parents):
        try:
            return shutil.disk_usage(place).free
        except OSError:
            continue
    return None
