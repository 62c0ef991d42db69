"""Ray: what a study may ask of it, checked with numbers before anything waits."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from fedrela_bench.errors import ConfigError
from fedrela_bench.host import usable_cores
from fedrela_bench.study.request import TuneRequest

NODE_LABEL = "ray.io/node-id"
SMALLEST_SHARE = 1e-4
"""Ray counts GPUs in steps of this size."""


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
    return Capacity(((float(usable_cores()), float(_cuda_devices() if device == "cuda" else 0)),))


def check_cpus(request: TuneRequest) -> None:
    """Look at this machine's CPUs alone, for which no library must be loaded.

    Raises:
        ConfigError: a trial asks for more.
    """
    if request.cpus_per_trial > usable_cores():
        raise ConfigError(
            f"a trial asks for {request.cpus_per_trial} CPUs, but there are {usable_cores()}; lower --cpus-per-trial"
        )


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


def avoiding(nodes: Iterable[str]) -> dict[str, str]:
    """A label selector for everything but these nodes; empty when there are none to avoid."""
    listed = sorted(nodes)
    return {NODE_LABEL: f"!in({', '.join(listed)})"} if listed else {}


def cluster_capacity() -> Capacity:
    """CPUs and GPUs of the connected cluster's live nodes."""
    import ray

    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return Capacity(tuple((node.get("CPU", 0.0), node.get("GPU", 0.0)) for node in alive))


def is_connected() -> bool:
    """Whether this process has a connection to Ray already."""
    return "ray" in sys.modules and bool(sys.modules["ray"].is_initialized())
