"""What every step of the check is given, and how it goes through cases within its time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from fedrela_bench.bench.gpu.budget import Budget
from fedrela_bench.bench.gpu.federation import Case
from fedrela_bench.bench.gpu.waits import place_of
from fedrela_bench.nested import Json

Status = Literal["passed", "failed", "found", "done", "incomplete", "not applicable"]
"""found: something that a reader should know but that is no fault; incomplete: nothing wrong in what there was time
for."""


@dataclass(frozen=True)
class Settings:
    """Where, and how small."""

    device: str
    tiny: bool

    @property
    def place(self) -> torch.device:
        """The device as torch knows it."""
        return torch.device("cuda", 0) if self.device == "cuda" else torch.device(self.device)

    @property
    def on_gpu(self) -> bool:
        """Whether there are streams, launches and device memory."""
        return self.place.type == "cuda"


@dataclass(frozen=True)
class Step:
    """One part of the check."""

    name: str
    purpose: str
    weight: float
    """Its share of the time, against the others."""
    run: Callable[[Settings, Budget, Json], Status]
    """Fills the results while it goes, so that what it had is kept if it is stopped."""


def over_cases(cases: Sequence[Case], budget: Budget, results: Json, measure: Callable[[Case], Json]) -> None:
    """Measure case after case into `results["cases"]` while one like the last still fits.

    `results["not_run"]` names those that there was no time for, `results["errors"]` says how others ended.
    """
    results["cases"], results["errors"], results["not_run"] = {}, {}, [case.key for case in cases]
    taken = 0.0
    for number, case in enumerate(cases):
        if not budget.left or not budget.fits(taken):
            return
        before = budget.left
        try:
            results["cases"][case.key] = measure(case)
        except Exception as error:
            results["errors"][case.key] = f"{type(error).__name__}: {place_of(error)}"
        results["not_run"].remove(case.key)
        # The first case also pays for libraries that are loaded on first use.
        taken = before - budget.left if number else 0.0


def verdict(good: bool, results: Json) -> Status:
    """What a step over cases comes to: nothing passes that is wrong, ended with an error, or was left out."""
    if not good or results["errors"]:
        return "failed"
    return "incomplete" if results["not_run"] else "passed"
