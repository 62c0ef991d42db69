"""Whether a process's share of a GPU's memory is kept."""

from __future__ import annotations

import torch

from fedrela_bench.bench.gpu.budget import Budget
from fedrela_bench.bench.gpu.federation import Case
from fedrela_bench.bench.gpu.steps import Settings, Status
from fedrela_bench.errors import RunError
from fedrela_bench.nested import Json
from fedrela_bench.simulation.devices import MIB, memory_share

ROOM, SMALL, LARGE = 256 * MIB, 64 * MIB, 512 * MIB
"""What the check leaves free under the cap, and what it asks for: once less than that, once more."""


def take(size: int, device: torch.device) -> None:
    """Ask for so many bytes and let them go."""
    torch.empty(size, dtype=torch.uint8, device=device)


def refused(size: int, device: torch.device) -> str | None:
    """The message with which so many bytes are refused, or None where they are granted."""
    try:
        take(size, device)
    except torch.OutOfMemoryError as error:
        return str(error).splitlines()[0]
    return None


def run(settings: Settings, budget: Budget, results: Json) -> Status:
    """The step: a run under a cap goes well, a request above it is refused with a remedy, and is granted afterwards."""
    if not settings.on_gpu:
        results["note"] = "a CPU has no memory of its own to cap"
        return "not applicable"
    device = settings.place
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(device).total_memory
    share = min(1.0, (torch.cuda.memory_reserved(device) + ROOM) / total)
    results |= {"total_mib": total / MIB, "share": share}
    try:
        with memory_share(share, device):
            results["below"] = refused(SMALL, device)
            Case("fedavg").simulation("float32", settings.device).run_round()
            take(LARGE, device)
        results["message"] = None
    except RunError as error:
        results["message"] = str(error)
    results["afterwards"] = refused(LARGE, device)
    torch.cuda.empty_cache()
    kept = results["message"] is not None and results["below"] is None and results["afterwards"] is None
    return "passed" if kept else "failed"
