"""What a measurement was made on."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from fedrela_bench import __version__
from fedrela_bench.host import usable_cores
from fedrela_bench.nested import Json

FLAGS = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16")
"""Instruction sets that decide how fast products are."""


def describe(device: str) -> Json:
    """Processor with the flags that matter, cores, threads, versions, and the device's name."""
    import torch

    info = _cpuinfo()
    flags = set(info.get("flags", "").split())
    return {
        "cpu": info.get("model name") or platform.processor() or platform.machine(),
        "flags": [flag for flag in FLAGS if flag in flags],
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "fedrela_bench": __version__,
    }


def _cpuinfo() -> dict[str, str]:
    """The first processor's entries of Linux's list; {} elsewhere."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def peak_bytes() -> int:
    """The most memory this process has held at once.

    Linux's own counter is read where it is, since the portable one starts at the parent's peak.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
