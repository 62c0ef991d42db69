"""Where the time of a training step goes: kernels, how busy the device is, launches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile

from fedrela_bench.bench.timing import settle
from fedrela_bench.nested import Json

TOP = 15
LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch")
COPIES = ("Memcpy", "Memset")
MOSTLY_WAITING, MOSTLY_BUSY = 0.5, 0.8


@dataclass(frozen=True)
class Event:
    """Something that ran; microseconds."""

    name: str
    start: float
    end: float
    on_device: bool
    own: float
    """Without what it called."""
    calls_nothing: bool = True


def record(call: Callable[[], object], device: torch.device) -> list[Event]:
    """Run the call and list what ran on the host and on the device."""
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=kinds) as profiler:
        call()
        settle(device)
    return [_event(item) for item in profiler.events() or () if not item.is_user_annotation]


def _event(item: torch.autograd.profiler_util.FunctionEvent) -> Event:
    start, end = item.time_range.start, item.time_range.end
    if item.device_type.name != "CPU":
        return Event(item.name, start, end, True, end - start)
    return Event(item.name, start, end, False, item.self_cpu_time_total, not item.cpu_children)


def busy(events: Iterable[Event]) -> float:
    """Microseconds in which at least one of the events runs."""
    total, reached = 0.0, float("-inf")
    for event in sorted(events, key=lambda event: event.start):
        if event.end > reached:
            total += event.end - max(event.start, reached)
            reached = event.end
    return total


def summary(events: Sequence[Event], steps: int, step_seconds: float, on_gpu: bool) -> Json:
    """Figures per step.

    Args:
        events: of `steps` training steps.
        steps: how many they were.
        step_seconds: of a step that was not profiled, which is what the device's work is compared with.
        on_gpu: whether kernels ran on a GPU; else the operators of the CPU take their place.
    """
    kernels = [event for event in events if event.on_device]
    operators = [event for event in events if not event.on_device and event.name.startswith("aten::")]
    copies = sum(event.name.startswith(COPIES) for event in kernels)
    found: Json = {
        "steps": steps,
        "step_ms": 1e3 * step_seconds,
        "operators_per_step": sum(event.calls_nothing for event in operators) / steps,
        "top": _top(kernels if on_gpu else operators, steps),
    }
    if not on_gpu:
        return found | {"device_busy": None, "verdict": "on a CPU there are no launches"}
    busy_ms = busy(kernels) / 1e3 / steps
    share = min(1.0, busy_ms / found["step_ms"])
    launches = sum(event.name.startswith(LAUNCHES) for event in events if not event.on_device)
    return found | {
        "device_busy": share,
        "device_busy_ms": busy_ms,
        "kernels_per_step": (len(kernels) - copies) / steps,
        "copies_per_step": copies / steps,
        "launches_per_step": launches / steps,
        "verdict": _verdict(share),
    }


def _verdict(share: float) -> str:
    if share < MOSTLY_WAITING:
        return "the device mostly waits for the host: launch overhead decides"
    if share > MOSTLY_BUSY:
        return "the device is mostly busy: the kernels decide"
    return "launches and kernels both count"


def _top(events: Sequence[Event], steps: int) -> list[Json]:
    """The names that take most time of their own."""
    sums: dict[str, tuple[float, int]] = {}
    for event in events:
        own, calls = sums.get(event.name, (0.0, 0))
        sums[event.name] = (own + event.own, calls + 1)
    everything = sum(own for own, _ in sums.values()) or 1.0
    first = sorted(sums.items(), key=lambda item: -item[1][0])[:TOP]
    return [
        {"name": name, "ms_per_step": own / 1e3 / steps, "calls_per_step": calls / steps, "share": own / everything}
        for name, (own, calls) in first
    ]
