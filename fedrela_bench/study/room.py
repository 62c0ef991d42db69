"""What Ray needs of a machine to start, and why it did not start where that is lacking."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from fedrela_bench import host

LATE = "timed out during startup"
"""What Ray says of a node whose processes did not answer in time, whatever the reason."""
LEAST_DISK = 64 * 2**20
"""For sockets and logs."""
LEAST_MEMORY = 400 * 2**20
"""For the processes of a node before any run."""
OBJECT_STORE_BYTES = 100 * 2**20
CACHES = ("inactive_file", "active_file", "slab_reclaimable")


def free_memory() -> int | None:
    """Bytes that programs can still get without swapping, a container's limit included; None where nothing says so."""
    known = [value for value in (_machine_memory(), _container_memory()) if value is not None]
    return min(known, default=None)


def lacking(temp: Path) -> Iterator[str]:
    """What is too little here for a node of Ray, each with a remedy; nothing where all is well or cannot be known."""
    disk, memory = host.free_disk(temp), free_memory()
    if disk is not None and disk < LEAST_DISK:
        yield (
            f"{temp} has {_mib(disk)} left for Ray's sockets and logs, which need {_mib(LEAST_DISK)}; free space "
            "there, or set TMPDIR to a short path on another disk"
        )
    if memory is not None and memory < LEAST_MEMORY:
        yield (
            f"{_mib(memory)} of memory are free, and Ray needs {_mib(LEAST_MEMORY)} before the first run; end other "
            "programs, or give the container more memory"
        )


def why_not(error: BaseException, temp: Path, tries: int) -> str:
    """One sentence of why a node did not start and one of what to do."""
    found = "; also, ".join(lacking(temp))
    if found:
        return f"Ray did not start: {found}"
    return f"Ray did not start ({first_line(error)}); {_remedy(error, tries)}"


def first_line(error: BaseException) -> str:
    """What an error says first."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _remedy(error: BaseException, tries: int) -> str:
    text = str(error)
    if LATE in text:
        return f"it was tried {tries} times: the machine is too busy; repeat the command when it does less"
    if "AF_UNIX" in text or "socket_filename" in text:
        return "its sockets need a short path; set TMPDIR to one, such as /tmp"
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EROFS, errno.ENOTDIR, errno.EPERM):
        return "set TMPDIR to a folder that can be written"
    if "address already in use" in text.lower() or "failed to bind" in text.lower():
        return "another program has its port; end Ray nodes that are left over (`ray stop`) and repeat the command"
    if "memory" in text:
        return "end other programs, or give the container more memory"
    return "see what else this machine does, and repeat the command; `fedrela-bench doctor` shows what it has"


def _machine_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        names = ("SC_AVPHYS_PAGES", "SC_PAGE_SIZE")
        known = all(name in os.sysconf_names for name in names)
        return os.sysconf(names[0]) * os.sysconf(names[1]) if known else None


def _container_memory(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What is left of a control group's limit; caches in it can be had back."""
    try:
        limit = int((root / "memory.max").read_text(encoding="ascii"))
        used = int((root / "memory.current").read_text(encoding="ascii"))
        lines = (root / "memory.stat").read_text(encoding="ascii").splitlines()
        held = {name: int(size) for name, size in (line.split() for line in lines)}
    except (OSError, ValueError):
        return None
    return max(0, limit - used + sum(held.get(name, 0) for name in CACHES))


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"
