"""Leases: the right of one process to write in a folder, taken over only from the dead.

A lease is a file that names its owner and is touched every few seconds. On the owner's own machine the process table
says whether it lives; elsewhere the file's age does, measured by the clock of the file system that both machines see.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from fedrela_bench.errors import RunError, StoreError

HEARTBEAT_SECONDS = 10.0
LIMIT_SECONDS = 90.0
"""Without a heartbeat for that long, an owner on another machine counts as dead."""
UNREADABLE_SECONDS = 30.0
"""Where files cannot be linked a lease may be seen before its content; older than this it is litter."""
POLL_SECONDS = 0.1, 1.0
"""Shortest and longest pause of a process that waits."""


@dataclass(frozen=True)
class Owner:
    """A process that holds a lease."""

    host: str
    pid: int
    started: str
    """When the process began, as its kernel counts: a reused process id does not inherit a lease."""
    place: str
    """Boot and process namespace: process ids of containers that share a host name mean different processes."""
    token: str

    def text(self) -> str:
        """For messages."""
        return f"process {self.pid} on {self.host}"


@dataclass
class _Held:
    owner: Owner
    thread: int
    depth: int = 1
    lost: bool = False


_HELD: dict[Path, _Held] = {}
_LOCK = threading.Lock()
_BEATING = threading.Event()


@contextlib.contextmanager
def hold(path: Path, until: Callable[[], bool] = lambda: False) -> Iterator[bool]:
    """Hold a lease; a thread that has it already keeps it.

    Args:
        path: of the lease; its folder is made.
        until: ends the wait for another living owner, without the lease.

    Yields:
        Whether the lease is held.

    Raises:
        StoreError: the lease cannot be written.
    """
    path = path.absolute()
    held = _again(path) or _wait(path, until)
    try:
        yield held
    finally:
        if held:
            _release(path)


def holder(path: Path) -> Owner | None:
    """The living process that holds a lease, if there is one."""
    owner, age = _read(path)
    if age is None:
        return None
    if owner is None:
        return None if abs(age) > UNREADABLE_SECONDS else Owner("an unknown host", 0, "", "", "")
    if (owner.host, owner.place) == (socket.gethostname(), _place()):
        return owner if _started(owner.pid) == owner.started else None
    # A time in the future is from before a clock was set back; who lives has touched the file since.
    return owner if abs(age) <= LIMIT_SECONDS else None


def require(path: Path) -> None:
    """Refuse to go on writing under a lease that another process took over.

    Raises:
        RunError: this process slept so long that it was taken for dead.
    """
    held = _HELD.get(path.absolute())
    if held is not None and held.lost:
        raise RunError(f"{path} was taken over while this process did not answer; the other process goes on")


def _again(path: Path) -> bool:
    with _LOCK:
        held = _HELD.get(path)
        if held is None or held.thread != threading.get_ident():
            return False
        held.depth += 1
        return True


def _wait(path: Path, until: Callable[[], bool]) -> bool:
    pause = POLL_SECONDS[0]
    while not _take(path):
        if until():
            return False
        time.sleep(pause)
        pause = min(2 * pause, POLL_SECONDS[1])
    return True


def _take(path: Path) -> bool:
    """Make the lease, after removing that of a dead owner; False while a living one has it."""
    owner = Owner(socket.gethostname(), os.getpid(), _started(os.getpid()), _place(), uuid.uuid4().hex)
    try:
        if path.exists() and not _bury(path):
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        if not _create(path, json.dumps(asdict(owner)).encode(), owner.token):
            return False
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror or error}; free space or choose another --out"
        ) from error
    with _LOCK:
        _HELD[path] = _Held(owner, threading.get_ident())
        if not _BEATING.is_set():
            _BEATING.set()
            threading.Thread(target=_beat, name="leases", daemon=True).start()
    return True


def _create(path: Path, data: bytes, token: str) -> bool:
    temporary = path.with_name(f".{path.name}.{token}.tmp")
    try:
        temporary.write_bytes(data)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError:
            return _create_exclusively(path, data)
        return True
    finally:
        temporary.unlink(missing_ok=True)


def _create_exclusively(path: Path, data: bytes) -> bool:
    """For file systems without hard links."""
    try:
        with path.open("xb") as file:
            file.write(data)
    except FileExistsError:
        return False
    return True


def _bury(path: Path) -> bool:
    """Remove a dead owner's lease; False while the owner lives."""
    from filelock import FileLock

    if holder(path) is not None:
        return False
    # Two processes may see the same dead owner; the second must not bury the first one's new lease.
    with FileLock(path.with_name(f"{path.name}.guard")):
        if holder(path) is not None:
            return False
        path.unlink(missing_ok=True)
        return True


def _release(path: Path) -> None:
    with _LOCK:
        held = _HELD[path]
        held.depth -= 1
        if held.depth:
            return
        del _HELD[path]
    # Where it cannot be removed any more, it is the lease of a dead process soon.
    with contextlib.suppress(OSError):
        if _is_ours(path, held):
            path.unlink(missing_ok=True)


def _beat() -> None:
    while True:
        time.sleep(HEARTBEAT_SECONDS)
        beat()


def beat() -> None:
    """Show that this process lives, and notice leases that were taken from it."""
    with _LOCK:
        held = list(_HELD.items())
    for path, mine in held:
        if not _is_ours(path, mine):
            mine.lost = True
            continue
        with contextlib.suppress(OSError):
            os.utime(path)


def _is_ours(path: Path, held: _Held) -> bool:
    owner, _ = _read(path)
    return owner is not None and owner.token == held.owner.token


def _read(path: Path) -> tuple[Owner | None, float | None]:
    """The owner that a lease names (None where it is unreadable) and its age (None where there is no lease)."""
    try:
        data, stamp = path.read_bytes(), path.stat().st_mtime
    except OSError:
        return None, None
    try:
        owner = Owner(**json.loads(data))
    except (ValueError, TypeError):
        owner = None
    if owner is None or not _is_sound(owner):
        return None, _now(path) - stamp
    here = (owner.host, owner.place) == (socket.gethostname(), _place())
    return owner, 0.0 if here else _now(path) - stamp


def _is_sound(owner: Owner) -> bool:
    texts = (owner.host, owner.started, owner.place, owner.token)
    return isinstance(owner.pid, int) and owner.started != "" and all(isinstance(text, str) for text in texts)


def _now(path: Path) -> float:
    """The time by the clock that stamps files in this folder, which need not be this machine's."""
    probe = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        probe.touch()
        return probe.stat().st_mtime
    except OSError:
        return time.time()
    finally:
        probe.unlink(missing_ok=True)


def _started(pid: int) -> str:
    """When a process began; empty when it does not run (any more)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return "" if Path("/proc/self/stat").exists() else _running(pid)
    return "" if fields[0] in ("Z", "X") else fields[19]


def _running(pid: int) -> str:
    """Where processes cannot be looked up: whether one with this id runs at all."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        return "running"
    return "running"


@cache
def _place() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
