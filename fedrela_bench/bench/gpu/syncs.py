"""Whether the host ever waits for the device while a block of clients trains."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from fedrela_bench.bench.gpu.budget import Budget
from fedrela_bench.bench.gpu.federation import Case, cases
from fedrela_bench.bench.gpu.steps import Settings, Status, over_cases, verdict
from fedrela_bench.bench.gpu.waits import Wait, listen, place_at, place_of
from fedrela_bench.nested import Json
from fedrela_bench.simulation import Simulation

MARK = "called a synchronizing CUDA operation"


def ready_block(case: Case, device: str) -> Callable[[], object]:
    """The training of a round's participants as one block, after a first round and the exchange before training.

    What a first step sets up once (libraries, workspaces, pinned memory, constants) is behind it. On the meta device
    the first round and the exchange are the CPU's.
    """
    simulation = case.simulation("float32", "cpu" if device == "meta" else device)
    simulation.run_round()
    trainer, index, server = simulation._trainer, simulation.completed_rounds, simulation.state.server
    participants = trainer.participants(index)
    total = int(server.client_sizes[participants].sum())
    server.round = index
    trainer._probe(index, participants, total)
    if device == "meta":
        trainer = _without_values(simulation, case)._trainer
    return lambda: trainer.train(tuple(participants), index, total)


def _without_values(simulation: Simulation, case: Case) -> Simulation:
    """The same state on the meta device."""
    there = case.simulation("float32", "meta")
    there.restore(simulation.snapshot())
    there.state.server.round = simulation.state.server.round
    return there


def host_waits(case: Case) -> list[Wait]:
    """Every place where training would wait for a GPU, as far as the meta device shows it."""
    call = ready_block(case, "meta")
    listen(call)
    return listen(call)


@contextmanager
def watched(mode: str) -> Iterator[None]:
    """Synchronising operations are errors or warnings inside the block."""
    torch.cuda.set_sync_debug_mode(mode)
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def detects(device: torch.device) -> bool:
    """Whether a read that surely waits is an error here; without that, silence says nothing."""
    number = torch.ones((), device=device)
    try:
        with watched("error"):
            number.item()
    except RuntimeError as error:
        return MARK in str(error)
    return False


def device_waits(case: Case, device: str) -> list[Wait]:
    """Every place where training waits for the GPU: none if it passes with such operations as errors."""
    call = ready_block(case, device)
    try:
        with watched("error"):
            call()
    except RuntimeError as error:
        if MARK not in str(error):
            raise
        first = place_of(error)
    else:
        return []
    return _all_waits(ready_block(case, device)) or [first]


def _all_waits(call: Callable[[], object]) -> list[Wait]:
    with warnings.catch_warnings(record=True) as caught, watched("warn"):
        warnings.simplefilter("always")
        call()
    mine = (item for item in caught if MARK in str(item.message))
    return list(dict.fromkeys(place_at(item.filename, item.lineno, MARK) for item in mine))


def run(settings: Settings, budget: Budget, results: Json) -> Status:
    """The step: every case's block on the GPU with waits as errors; without one, what would be waits."""
    results["detector"] = (
        "torch.cuda.set_sync_debug_mode" if settings.on_gpu else "reads and uploads on the meta device"
    )
    if settings.on_gpu and not detects(settings.place):
        results["fault"] = "torch does not notice a read of a value from the device; what follows means nothing"
        return "failed"

    def measure(case: Case) -> Json:
        found = device_waits(case, settings.device) if settings.on_gpu else host_waits(case)
        return {"waits": [{"place": wait.place, "line": wait.line, "what": wait.what} for wait in found]}

    over_cases(cases(settings.tiny), budget, results, measure)
    results["waiting"] = [name for name, found in results["cases"].items() if found["waits"]]
    outcome = verdict(True, results)
    return "found" if results["waiting"] and outcome == "passed" else outcome
