"""Clocks, and figures taken in turn so that what disturbs one disturbs all."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

import torch


@dataclass(frozen=True)
class Span:
    """Seconds of the clock on the wall, and of this process's cores."""

    wall: float
    cpu: float

    def __truediv__(self, parts: float) -> Span:
        return Span(self.wall / parts, self.cpu / parts)

    def __mul__(self, factor: float) -> Span:
        return Span(self.wall * factor, self.cpu * factor)


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of repeated figures."""

    median: float
    low: float
    high: float

    def to_json(self) -> dict[str, float]:
        """By name."""
        return {"median": self.median, "low": self.low, "high": self.high}


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles; of a single value three times itself."""
    if len(values) < 2:
        return Spread(values[0], values[0], values[0])
    low, _, high = quantiles(values, n=4, method="inclusive")
    return Spread(median(values), low, high)


def settle(device: torch.device) -> None:
    """Wait for what was sent to a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(call: Callable[[], object], device: torch.device, times: int = 1) -> Span:
    """Mean seconds of a call over `times` calls in a row."""
    settle(device)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(times):
        call()
    settle(device)
    return Span(time.perf_counter() - wall, time.process_time() - cpu) / times
