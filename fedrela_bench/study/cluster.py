"""Ray: what a study may ask of it, checked with numbers before anything waits, and how it is started and left."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import socket
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrela_bench.errors import ConfigError, StoreError
from fedrela_bench.study.interrupt import signals_blocked
from fedrela_bench.study.request import TuneRequest

CONNECT_SECONDS = 4.0
PROOF_SECONDS = 60.0
OBJECT_STORE_BYTES = 100 * 2**20
NODE_LABEL = "ray.io/node-id"
SMALLEST_SHARE = 1e-4
"""Ray counts GPUs in steps of this size."""
LONGEST_TEMP = 40
"""Unix sockets below Ray's temporary folder must stay under 107 characters."""
FLAGS = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # A dead cluster must not abort the driver before a stop request has been answered.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "180",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}


@dataclass(frozen=True)
class Capacity:
    """CPUs and GPUs of every node."""

    nodes: tuple[tuple[float, float], ...]

    def fit(self, cpus: float, gpus: float) -> int:
        """How many trials run at once."""
        return sum(_fit_node(node, cpus, gpus) for node in self.nodes)

    def text(self) -> str:
        """For messages: the largest node."""
        cpus, gpus = max(self.nodes, default=(0.0, 0.0))
        largest = f"{cpus:g} CPUs and {gpus:g} GPUs"
        return largest if len(self.nodes) == 1 else f"{len(self.nodes)} nodes, the largest with {largest}"


def _fit_node(node: tuple[float, float], cpus: float, gpus: float) -> int:
    by_cpu = int(node[0] / cpus + 1e-9) if cpus else 10**6
    if not gpus:
        return by_cpu
    by_gpu = int(node[1]) * int(1 / gpus + 1e-6) if gpus < 1 else int(node[1] / gpus + 1e-9)
    return min(by_cpu, by_gpu)


def gpu_faults(fraction: float) -> list[str]:
    """Why a GPU request wastes a device, with the fractions that do not."""
    if not math.isfinite(fraction) or fraction < 0:
        return [f"--gpus-per-trial {fraction:g} must be 0, a fraction 1/n, or a whole number"]
    if 0 < fraction < SMALLEST_SHARE:
        return [f"--gpus-per-trial {fraction:g} is less than {SMALLEST_SHARE:g}, the smallest share; use 0 or 1/n"]
    if fraction >= 1 and fraction != int(fraction):
        return [
            f"--gpus-per-trial {fraction:g}: above 1 only whole numbers; use {int(fraction)} or {int(fraction) + 1}"
        ]
    if 0 < fraction < 1 and 1 - int(1 / fraction + 1e-6) * fraction > 0.02:
        fits = int(1 / fraction)
        return [
            f"--gpus-per-trial {fraction:g} fits {fits} times on a GPU and wastes the rest; "
            f"use {1 / (fits + 1):.4g} ({fits + 1} per GPU) or {1 / fits:.4g} ({fits} per GPU)"
        ]
    return []


def local_capacity(device: str) -> Capacity:
    """This machine's CPUs (those this process may use) and GPUs."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Capacity(((float(cpus), float(_cuda_devices() if device == "cuda" else 0)),))


def _cuda_devices() -> int:
    import torch

    return int(torch.cuda.device_count()) if torch.cuda.is_available() else 0


def pick_device(request: TuneRequest) -> tuple[str, float]:
    """The device of trials and the GPUs each asks for.

    Raises:
        ConfigError: device and GPU request contradict each other or the request wastes devices.
    """
    device: str = request.device
    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"--device {device}: unknown device; choose auto, cpu or cuda")
    if device == "auto":
        wants_gpu = request.gpus_per_trial != 0
        device = "cuda" if wants_gpu and (request.gpus_per_trial or _cuda_devices()) else "cpu"
    gpus = request.gpus_per_trial if request.gpus_per_trial is not None else float(device == "cuda")
    faults = gpu_faults(gpus)
    if device == "cpu" and gpus:
        faults.append(f"--gpus-per-trial {gpus:g} with device cpu; drop one of the two")
    if device == "cuda" and not gpus:
        faults.append("device cuda needs --gpus-per-trial above 0")
    if faults:
        raise ConfigError(faults)
    return device, gpus


def concurrency(request: TuneRequest, gpus: float, capacity: Capacity) -> int:
    """Trials at a time.

    Raises:
        ConfigError: not even one fits; the message has the numbers.
    """
    fits = capacity.fit(request.cpus_per_trial, gpus)
    if fits < 1:
        raise ConfigError(
            f"a trial asks for {request.cpus_per_trial} CPUs and {gpus:g} GPUs, but there are {capacity.text()}; "
            "lower --cpus-per-trial or --gpus-per-trial"
        )
    return min(fits, request.max_concurrent or fits)


@contextlib.contextmanager
def ray_session(request: TuneRequest, device: str, connected: Callable[[], None]) -> Iterator[Capacity]:
    """A connection to Ray: the process's own, a cluster by address, or a local one that is ended afterwards.

    Args:
        request: what trials need.
        device: of trials.
        connected: called before signals that arrived meanwhile are delivered; Ray has replaced the handlers.
    """
    os.environ.update({name: os.environ.get(name, value) for name, value in FLAGS.items()})
    import ray

    if ray.is_initialized():
        yield cluster_capacity()
        return
    address = address_of(request)
    with _temp_dir(request.out) as temp:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
        if address:
            _connect(address, request.cpus_per_trial)
            connected()
        else:
            cpus, gpus = local_capacity(device).nodes[0]
            size = {"num_cpus": int(cpus), "num_gpus": int(gpus), "object_store_memory": OBJECT_STORE_BYTES}
            with _threads(request.cpus_per_trial), signals_blocked():
                ray.init(address="local", _temp_dir=str(temp), **size, **quiet)
                connected()
        try:
            yield cluster_capacity()
        finally:
            ray.shutdown()


def _connect(address: str, threads: int) -> None:
    import ray

    variables = {**FLAGS, **dict.fromkeys(_THREAD_VARIABLES, str(threads))}
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", runtime_env={"env_vars": variables})
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(f"no Ray cluster answers at {address} ({error}); check --ray-address") from error


def address_of(request: TuneRequest) -> str | None:
    """The cluster to connect to, or None for a local one."""
    return request.ray_address or os.environ.get("RAY_ADDRESS") or None


def knock(address: str) -> None:
    """Refuse an address at which nothing answers; Ray itself would wait for minutes.

    Raises:
        ConfigError: with the reason.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"no Ray cluster answers at {address} ({error}); check --ray-address") from error


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
    """A short folder for Ray's sockets and logs, in the study where its path allows; gone afterwards."""
    drop_temp(out)
    inside = out.resolve() / ".ray"
    folder = inside if len(str(inside)) <= LONGEST_TEMP else Path(tempfile.mkdtemp(prefix="fr-"))
    (out / ".ray_dir").write_text(str(folder), encoding="utf-8")
    try:
        yield folder
    finally:
        drop_temp(out)


def avoiding(nodes: Iterable[str]) -> dict[str, str]:
    """A label selector for everything but these nodes; empty when there are none to avoid."""
    listed = sorted(nodes)
    return {NODE_LABEL: f"!in({', '.join(listed)})"} if listed else {}


def cluster_capacity() -> Capacity:
    """CPUs and GPUs of the connected cluster's live nodes."""
    import ray

    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return Capacity(tuple((node.get("CPU", 0.0), node.get("GPU", 0.0)) for node in alive))


def prove_shared(folder: Path) -> None:
    """Show that every node of a cluster sees the study's folder.

    Raises:
        StoreError: naming the nodes that do not.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}
    if len(nodes) < 2:
        return
    # Another study may prove the same folder at the same time.
    text = uuid.uuid4().hex
    token = folder / f".token-{text}"
    token.write_text(text, encoding="utf-8")
    sees = ray.remote(num_cpus=0, max_retries=0)(_sees)
    calls = {}
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        calls[node] = sees.options(scheduling_strategy=there).remote(str(token), text)
    blind = sorted({nodes[node] for node, call in calls.items() if not _answered(call)})
    token.unlink(missing_ok=True)
    if blind:
        raise StoreError(
            f"{folder} is not visible (or not in time) on {', '.join(blind)}; give an --out that all nodes share"
        )


def _sees(path: str, text: str) -> bool:
    return Path(path).is_file() and Path(path).read_text(encoding="utf-8") == text


def _answered(call: Any) -> bool:
    """Whether a node says in time that it sees the folder."""
    import ray

    try:
        return bool(ray.get(call, timeout=PROOF_SECONDS))
    except ray.exceptions.RayError:
        return False
