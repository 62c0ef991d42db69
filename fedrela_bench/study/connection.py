"""How Ray is started or joined for a study, and left."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psutil

from fedrela_bench.errors import ConfigError, RunError
from fedrela_bench.study.address import address_of
from fedrela_bench.study.cluster import Capacity, cluster_capacity, concurrency, is_connected, local_capacity
from fedrela_bench.study.interrupt import handlers_kept, signals_blocked
from fedrela_bench.study.request import TuneRequest
from fedrela_bench.study.room import LATE, OBJECT_STORE_BYTES, first_line, lacking, why_not

TRIES = 4
LONGEST_TEMP = 40
"""Unix sockets below Ray's temporary folder must stay under 107 characters."""
T = TypeVar("T")
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
FLAGS = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # A dead cluster must not abort the driver before a stop request has been answered.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "180",
    # On a busy machine a process may need minutes to start, and one that is killed for it starts again.
    "RAY_worker_register_timeout_seconds": "300",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}


@contextlib.contextmanager
def joined(request: TuneRequest, gpus: float) -> Iterator[Callable[[], None]]:
    """The cluster of an address, connected to before anything is written.

    Args:
        request: what trials need.
        gpus: of each trial.

    Yields:
        A function that leaves the cluster early: what needs no cluster must not hang with one.

    Raises:
        ConfigError: no node of the cluster can run a trial; the message has the numbers.
    """
    address = address_of(request)
    if address is None or is_connected():
        yield lambda: None
        return
    _connect(address, request.cpus_per_trial)

    try:
        concurrency(request, gpus, cluster_capacity())
        yield leave
    finally:
        leave()


@contextlib.contextmanager
def ray_session(request: TuneRequest, device: str, connected: Callable[[], None]) -> Iterator[None]:
    """A connection to Ray: the one that is there already, or to a local one that is ended afterwards.

    Args:
        request: what trials need.
        device: of trials.
        connected: called before signals that arrived meanwhile are delivered; Ray has replaced the handlers.

    Raises:
        RunError: Ray does not start.
    """
    _set_flags()
    import ray

    if ray.is_initialized():
        yield
        return
    with _temp_dir(request.out) as temp:
        with _threads(request.cpus_per_trial), signals_blocked():
            _start(local_capacity(device), temp)
            connected()
        try:
            yield
        finally:
            leave()


def leave() -> None:
    """Leave Ray, and end the processes that this one has started for it; nothing happens where it is not joined.

    While Ray's core shuts down, it ends the whole process, with exit code 1 and no word on the terminal, as soon as
    another thread frees a reference to one of its objects. Cycles with such references are freed by whichever thread
    has the interpreter collect them, so they are freed before, and no collection starts meanwhile.
    """
    import ray

    gc.collect()
    collects = gc.isenabled()
    gc.disable()
    try:
        ray.shutdown()
    finally:
        if collects:
            gc.enable()


def _set_flags() -> None:
    os.environ.update({name: os.environ.get(name, value) for name, value in FLAGS.items()})


def _start(capacity: Capacity, temp: Path) -> None:
    import ray

    cpus, gpus = (int(amount) for amount in capacity.nodes[0])
    size = {"num_cpus": cpus, "num_gpus": gpus, "object_store_memory": OBJECT_STORE_BYTES}
    settings = {"_temp_dir": str(temp), "include_dashboard": False, **size, **QUIET}
    for fault in lacking(temp):
        raise RunError(f"Ray cannot start: {fault}")
    try:
        patiently(lambda: ray.init(address="local", **settings), lambda: any(lacking(temp)))
    except Exception as error:  # whatever Ray raises here, its traceback tells a user nothing
        raise RunError(why_not(error, temp, TRIES)) from error


def patiently(start: Callable[[], T], hopeless: Callable[[], bool] = lambda: False) -> T:
    """Start a node of Ray, which gives up when its helpers do not run within 15 s: a busy machine gets more tries.

    Args:
        start: one try.
        hopeless: whether another one would fail for the same reason.
    """
    for left in reversed(range(TRIES)):
        before = set(_helpers())
        try:
            return start()
        except Exception as error:  # Ray has no class of its own for this
            _end(set(_helpers()) - before)
            if LATE not in str(error) or hopeless() or not left:
                raise
    raise AssertionError("the last try returned or raised")


def _helpers() -> list[psutil.Process]:
    """Ray's processes among the children of this one."""
    import ray

    home = str(Path(ray.__file__).parent)
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any(home in word for word in child.cmdline()):
                found.append(child)
    return found


def _end(processes: Collection[psutil.Process]) -> None:
    """What a failed start leaves behind would keep its memory until this process ends."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=10)


def _connect(address: str, threads: int) -> None:
    _set_flags()
    import ray

    variables = {**FLAGS, **dict.fromkeys(_THREAD_VARIABLES, str(threads))}
    try:
        with handlers_kept():
            ray.init(address=address, runtime_env={"env_vars": variables}, **QUIET)
    except Exception as error:  # Ray has many classes for this, some of them only Exception
        raise ConfigError(
            f"cannot join the Ray cluster at {address} ({first_line(error)}); {_join_remedy(error)}"
        ) from error


def _join_remedy(error: BaseException) -> str:
    text = str(error)
    if "ersion mismatch" in text or "Python version" in text:
        return "install the versions of Ray and Python that the cluster has, or start it anew with these"
    if "ray[client]" in text:
        return "give the address of its head node without ray://, such as HOST:6379"
    if "node_ip_address" in text or "raylet" in text:
        return "start `tune` on a node of the cluster, or `ray start --address` on this machine first"
    return "check --ray-address, and `ray status` on its head node"


_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """Ray's processes inherit the thread limit; this process gets its own back."""
    old = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, str(count)))
    try:
        yield
    finally:
        for name, value in old.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def drop_temp(out: Path) -> None:
    """Remove what Ray keeps for a study on this machine."""
    note = out / ".ray_dir"
    if note.exists():
        shutil.rmtree(note.read_text(encoding="utf-8"), ignore_errors=True)
        note.unlink(missing_ok=True)


@contextlib.contextmanager
def _temp_dir(out: Path) -> Iterator[Path]:
    """A short folder for Ray's sockets and logs, in the study where its path allows; gone afterwards.

    Raises:
        RunError: it cannot be made.
    """
    drop_temp(out)
    inside = out.resolve() / ".ray"
    try:
        folder = inside if len(str(inside)) <= LONGEST_TEMP else Path(tempfile.mkdtemp(prefix="fr-"))
        (out / ".ray_dir").write_text(str(folder), encoding="utf-8")
    except OSError as error:
        raise RunError(
            f"no folder for Ray's sockets and logs can be made ({error.strerror or error}: {error.filename}); free "
            "space there, or set TMPDIR to a folder that can be written"
        ) from error
    try:
        yield folder
    finally:
        drop_temp(out)
