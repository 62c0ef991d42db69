"""Runs the steps in order within the time, and keeps what each of them found on disk."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from fedrela_bench.bench.check import write_text
from fedrela_bench.bench.gpu import equality, memory, repeat, syncs, times
from fedrela_bench.bench.gpu.budget import Budget, OutOfTime, alarm
from fedrela_bench.bench.gpu.steps import Settings, Step
from fedrela_bench.bench.gpu.table import table
from fedrela_bench.bench.gpu.waits import place_of
from fedrela_bench.bench.gpu.work import FORMATS, NAMES, Work
from fedrela_bench.bench.machine import describe
from fedrela_bench.nested import Json

SCHEMA = 1
LEAST_SECONDS = 1.0
"""With less left no step begins."""
BAD = ("failed", "error")
Say = Callable[[str], None]


def all_steps(tiny: bool = False) -> list[Step]:
    """Every step; what decides whether the rest means anything comes first, whole formats one after the other."""
    checks = [
        Step("equality", "float64 on the device against the CPU, some rounds of every algorithm", 3, equality.run),
        Step("waits", "a block of clients trains without the host waiting for the device", 1.5, syncs.run),
        Step("repeat", "two float32 runs on the device give the same bits", 1.5, repeat.run),
        Step("memory", "a process keeps to its share of the device's memory", 0.2, memory.run),
    ]
    works = (Work(name, form) for form in FORMATS for name in NAMES)
    return [*checks, *(_timing(work, 0.2 if tiny else 1.0) for work in works)]


def _timing(work: Work, weight: float) -> Step:
    share = weight * (0.7 if work.name == "fm" else 1.2)
    return Step(work.key, "seconds of a round, memory and profile", share, partial(times.run, work))


def run(steps: Sequence[Step], settings: Settings, budget: Budget, out: Path, command: str, say: Say) -> Json:
    """Run the steps; after each one `gpu_check.json` and `gpu_check.txt` hold everything so far.

    A step gets its share of what is left by weight, and is stopped when the whole time is over. One that fails with an
    error does not keep the others from running.

    Raises:
        StoreError: results cannot be written.
    """
    torch.set_num_threads(1)
    document: Json = {
        "schema": SCHEMA,
        "command": command,
        "device": settings.device,
        "tiny": settings.tiny,
        "seconds": budget.seconds,
        "machine": describe(settings.place.type),
        "finished": False,
        "steps": [],
    }
    for place, step in enumerate(steps):
        say(f"{step.name}: {step.purpose}")
        share = step.weight / sum(later.weight for later in steps[place:])
        entry = _entry(step, settings, budget, share)
        document["steps"].append(entry)
        document["finished"] = place + 1 == len(steps)
        say(f"{step.name}: {entry['status']} after {entry['seconds']:.1f} s, {budget.left:.0f} s left")
        _write(document, out)
    return document


def _entry(step: Step, settings: Settings, budget: Budget, share: float) -> Json:
    results: Json = {}
    allowed = budget.part(share)
    started, fault = time.monotonic(), None
    status = "skipped"
    if budget.left >= LEAST_SECONDS:
        try:
            with alarm(budget.left):
                status = step.run(settings, allowed, results)
        except OutOfTime:
            status = "stopped"
        except Exception as error:
            status, fault = "error", f"{type(error).__name__}: {place_of(error)}"
    return {
        "name": step.name,
        "purpose": step.purpose,
        "status": status,
        "seconds": time.monotonic() - started,
        "allowed_seconds": allowed.seconds,
        "error": fault,
        "results": results,
    }


def _write(document: Json, out: Path) -> None:
    write_text(out / "gpu_check.json", json.dumps(document, indent=2) + "\n")
    write_text(out / "gpu_check.txt", table(document) + "\n")


def exit_code(document: Json) -> int:
    """1 where an equality, a repetition or the memory cap fails, or a step ends with an error; else 0."""
    return int(any(step["status"] in BAD for step in document["steps"]))
