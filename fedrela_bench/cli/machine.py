"""What `doctor` says of versions, processors, memory, GPUs and temporary files."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fedrela_bench import host
from fedrela_bench.cli.findings import Finding, looked

PROJECT = "fedrela-bench"
SHOWN = ("torch", "torchvision", "numpy", "ray", "optuna", "mlflow", "pandas", "matplotlib")
"""Packages that are named although nothing is wrong with them."""
SOFTWARE, MACHINE = "software", "machine"
ROOMY_MEMORY, ROOMY_DISK = 2 * 2**30, 2**30
LONGEST_TEMP = 32
"""Below a longer temporary folder Ray's sockets have paths that the kernel refuses (107 characters)."""
SHARED_MEMORY = Path("/dev/shm")
CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")
NVIDIA = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidia0"))
GIB = 2**30


def software() -> Iterator[Finding]:
    """Python and the packages that this one needs, against the versions that it was tested with."""
    yield from looked(SOFTWARE, "python", _python)
    yield from looked(SOFTWARE, "packages", _packages)


def machine() -> Iterator[Finding]:
    """Processors, threads, memory, GPUs, shared memory and the temporary folder."""
    parts = {"cpu": _cpu, "threads": _threads, "memory": _memory, "gpu": _gpu, "shared memory": _shared_memory}
    for name, look in {**parts, "temporary files": _temporary}.items():
        yield from looked(MACHINE, name, look)


def size_text(size: float) -> str:
    """Bytes as people read them."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / 2**20:.0f} MiB"


def _python() -> Iterator[Finding]:
    from packaging.specifiers import SpecifierSet

    here = platform.python_version()
    try:
        wanted = ",".join(importlib.metadata.metadata(PROJECT).get_all("Requires-Python") or [])
    except importlib.metadata.PackageNotFoundError:
        wanted = ""
    if SpecifierSet(wanted).contains(here, prereleases=True):
        yield Finding(SOFTWARE, "python", "ok", here)
    else:
        yield Finding(SOFTWARE, "python", "fail", f"{here}, but {wanted} is needed", "use such a Python")


def _packages() -> Iterator[Finding]:
    from packaging.requirements import Requirement

    try:
        needed = [Requirement(text) for text in importlib.metadata.requires(PROJECT) or ()]
    except importlib.metadata.PackageNotFoundError:
        needed = [Requirement(name) for name in SHOWN]
    ours = [one for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    place = {name: index for index, name in enumerate(SHOWN)}
    for one in sorted(ours, key=lambda one: place.get(one.name, len(SHOWN))):
        spelled = f"{one.name}{one.specifier}"
        install = f"pip install '{spelled}'"
        try:
            version = importlib.metadata.version(one.name)
        except importlib.metadata.PackageNotFoundError:
            yield Finding(SOFTWARE, one.name, "fail", "not installed", install)
            continue
        if not one.specifier.contains(version, prereleases=True):
            yield Finding(SOFTWARE, one.name, "warn", f"{version}, not one of {one.specifier}", install)
        elif one.name in SHOWN:
            yield Finding(SOFTWARE, one.name, "ok", version)


def _cpu() -> Iterator[Finding]:
    usable, total = host.usable_cores(), os.cpu_count() or 1
    fact = f"{total} cores" if usable == total else f"{total} cores, of which this process may use {usable}"
    quota = _quota()
    if quota is not None and quota < usable:
        most = max(1, int(quota))
        fact += f", and its container the time of {quota:g}"
        yield Finding(MACHINE, "cpu", "warn", fact, f"give tune --max-concurrent {most}")
    else:
        yield Finding(MACHINE, "cpu", "ok", fact)


def _quota() -> float | None:
    """Cores whose time a container may use; None where nothing limits it."""
    try:
        quota, period = CPU_LIMIT.read_text(encoding="ascii").split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _threads() -> Iterator[Finding]:
    asked, cores = os.environ.get("OMP_NUM_THREADS"), host.usable_cores()
    if asked is not None and not (asked.isdigit() and 0 < int(asked) <= cores):
        fact = f"OMP_NUM_THREADS is {asked!r} on {cores} usable cores"
        yield Finding(MACHINE, "threads", "warn", fact, f"unset it, or set it to a number from 1 to {cores}")
    else:
        import torch

        where = " (OMP_NUM_THREADS)" if asked else ""
        fact = f"{torch.get_num_threads()} of a run{where}; a trial has as many as --cpus-per-trial"
        yield Finding(MACHINE, "threads", "ok", fact)


def _memory() -> Iterator[Finding]:
    from fedrela_bench.study.room import LEAST_MEMORY, free_memory

    free = free_memory()
    if free is None:
        yield Finding(MACHINE, "memory", "ok", "not known on this system")
        return
    fact = f"{size_text(free)} free"
    if free < LEAST_MEMORY:
        remedy = "end other programs, or give the container more memory"
        yield Finding(MACHINE, "memory", "fail", f"{fact}, too little to start Ray", remedy)
    elif free < ROOMY_MEMORY:
        yield Finding(MACHINE, "memory", "warn", fact, "a trial takes about 1 GiB: give tune --max-concurrent 1")
    else:
        yield Finding(MACHINE, "memory", "ok", fact)


def _gpu() -> Iterator[Finding]:
    try:
        import torch
    except (ImportError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        yield Finding(MACHINE, "gpu", "fail", f"torch cannot be loaded ({reason})", "install torch again")
        return
    if torch.cuda.is_available():
        for place in range(torch.cuda.device_count()):
            gpu = torch.cuda.get_device_properties(place)
            yield Finding(MACHINE, f"gpu {place}", "ok", f"{gpu.name}, {size_text(gpu.total_memory)}")
    elif any(path.exists() for path in NVIDIA):
        built = f"is built for CUDA {torch.version.cuda}" if torch.version.cuda else "is a build without CUDA"
        remedy = "update the driver" if torch.version.cuda else "install a build of torch for CUDA"
        fact = f"an NVIDIA driver is here, but torch {torch.__version__} {built} and cannot use it"
        yield Finding(MACHINE, "gpu", "warn", fact, f"{remedy}; until then runs use the CPU")
    else:
        yield Finding(MACHINE, "gpu", "ok", "none; runs use the CPU and small sizes (published ones: --profile paper)")


def _shared_memory() -> Iterator[Finding]:
    from fedrela_bench.study.room import OBJECT_STORE_BYTES

    if not SHARED_MEMORY.is_dir():
        yield Finding(MACHINE, "shared memory", "ok", "none on this system; files are used")
        return
    usage = shutil.disk_usage(SHARED_MEMORY)
    fact = f"{size_text(usage.free)} of {size_text(usage.total)} free"
    if usage.free < OBJECT_STORE_BYTES:
        short = f"{fact}, less than the {size_text(OBJECT_STORE_BYTES)} of Ray's object store, which goes to disk then"
        remedy = "give the container more, such as docker run --shm-size=1g"
        yield Finding(MACHINE, "shared memory", "warn", short, remedy)
    else:
        yield Finding(MACHINE, "shared memory", "ok", fact)


def _temporary() -> Iterator[Finding]:
    from fedrela_bench.study.room import LEAST_DISK

    told = partial(Finding, MACHINE, "temporary files")
    try:
        folder = Path(tempfile.gettempdir())
    except FileNotFoundError:
        yield told("fail", "no folder can be written", "set TMPDIR to a short path that can be")
        return
    free = host.free_disk(folder) or 0
    fact = f"{folder}, {size_text(free)} free"
    if free < LEAST_DISK:
        yield told("fail", f"{fact}, too little to start Ray", "free space there, or set TMPDIR to another disk")
    elif len(str(folder)) > LONGEST_TEMP:
        yield told("warn", f"{fact}; too long a path for Ray's sockets", "set TMPDIR to a short one, such as /tmp")
    elif free < ROOMY_DISK:
        yield told("warn", fact, "free space there, or set TMPDIR to another disk")
    else:
        yield told("ok", fact)
