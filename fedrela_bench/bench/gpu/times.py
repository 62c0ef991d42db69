"""Times of a workload's rounds, evaluation and memory, and the profile of its steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median

import torch

from fedrela_bench.bench.gpu.budget import Budget
from fedrela_bench.bench.gpu.ladder import Rate, Rung, climb, fit, round_steps, rungs
from fedrela_bench.bench.gpu.profile import record, summary
from fedrela_bench.bench.gpu.steps import Settings, Status
from fedrela_bench.bench.gpu.work import PUBLISHED_SECONDS, Work
from fedrela_bench.bench.timing import timed
from fedrela_bench.config import TrialConfig
from fedrela_bench.data import FederatedDataset
from fedrela_bench.nested import Json
from fedrela_bench.simulation import Simulation
from fedrela_bench.simulation.precision import set_arithmetic

LADDER_SHARE = 0.45
"""Of a step's time, for clients of doubling size."""
PROFILED_STEPS = 20
MOST_ROUNDS = 5
WHOLE_SHARE = 0.8
"""Of the time that is left, what a whole round may take to be tried."""
TINY_STEPS = 8


def run(work: Work, settings: Settings, budget: Budget, results: Json) -> Status:
    """The step of one workload in one number format."""
    config = work.config(settings.tiny)
    dataset = work.dataset(config, settings.tiny)
    results |= _described(work, config, dataset)
    _clear(settings)
    _parts(config, dataset, settings, budget, results)
    _clear(settings)
    _whole_rounds(config, dataset, settings, budget, results)
    results["published_seconds"] = None if settings.tiny else PUBLISHED_SECONDS.get(work.name)
    return "done"


def _described(work: Work, config: TrialConfig, dataset: FederatedDataset) -> Json:
    return {
        "workload": work.name,
        "format": work.format,
        "algorithm": config.federation.algorithm,
        "model": config.training.model,
        "config": config.model_dump(mode="json"),
        "images": "synthetic images in the recipe's shape, counts and partition; times do not depend on pixels",
        "training_images": len(dataset.labels) * config.training.local_epochs,
        "test_images": len(dataset.test_labels),
    }


def _parts(config: TrialConfig, dataset: FederatedDataset, settings: Settings, budget: Budget, results: Json) -> None:
    """Time clients of doubling size and the evaluation, extrapolate the round, and profile some steps."""
    dealt, ladder = rungs(dataset, config)
    ladder = [rung for rung in ladder if not settings.tiny or rung.steps <= TINY_STEPS]
    simulation = Simulation(config, dealt, settings.device)
    set_arithmetic(config.training.tf32, settings.place)
    train = partial(_train, simulation)
    _seconds(train(ladder[0]), settings)
    found = climb(ladder, lambda rung: _seconds(train(rung), settings), budget.part(LADDER_SHARE))
    rate = fit(found)
    simulation.evaluate()
    evaluation = _seconds(simulation.evaluate, settings)
    clients, steps = round_steps(dataset, config, simulation.model.has_batch_norm)
    results |= _rates(rate, clients, steps, evaluation, results["training_images"])
    results["timed"] = [{"steps": rung.steps, "seconds": seconds} for rung, seconds in found]
    results |= _peaks(settings)
    small = max((rung for rung, _ in found if rung.steps <= PROFILED_STEPS), key=lambda rung: rung.steps, default=None)
    chosen = small or found[0][0]
    events = record(train(chosen), settings.place)
    results["profile"] = summary(events, chosen.steps, rate.step_seconds, settings.on_gpu)


def _train(simulation: Simulation, rung: Rung) -> Callable[[], object]:
    return lambda: simulation._trainer.train((rung.client,), 0, rung.images)


def _seconds(call: Callable[[], object], settings: Settings) -> float:
    return timed(call, settings.place).wall


def _rates(rate: Rate, clients: int, steps: int, evaluation: float, images: int) -> Json:
    training = rate.seconds(clients, steps)
    return {
        "clients": clients,
        "steps": steps,
        "step_seconds": rate.step_seconds,
        "client_seconds": rate.client_seconds,
        "evaluation_seconds": evaluation,
        "training_seconds": training,
        "images_per_second": images / training,
        "round_seconds": training + evaluation,
        "extrapolated": True,
        "note": "a round is extrapolated: clients times seconds of a client plus steps times seconds of a step, "
        "plus one evaluation",
    }


def _whole_rounds(
    config: TrialConfig, dataset: FederatedDataset, settings: Settings, budget: Budget, results: Json
) -> None:
    """Time real rounds where they fit; they replace the extrapolated figure, which stays beside them."""
    if results["round_seconds"] > WHOLE_SHARE * budget.left:
        return
    simulation, taken = Simulation(config, dataset, settings.device), list[float]()
    most = 1 if settings.tiny else MOST_ROUNDS
    while len(taken) < most and budget.fits(max(taken, default=results["round_seconds"])):
        taken.append(_seconds(simulation.run_round, settings))
    if not taken:
        return
    results["extrapolated_seconds"] = results["round_seconds"]
    results |= {"round_seconds": median(taken), "rounds": taken, "extrapolated": False}
    results["note"] = f"median of {len(taken)} whole rounds"
    results["images_per_second"] = results["training_images"] / max(
        results["round_seconds"] - results["evaluation_seconds"], 1e-9
    )


def _clear(settings: Settings) -> None:
    if settings.on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(settings.place)


def _peaks(settings: Settings) -> Json:
    if not settings.on_gpu:
        return {"peak_allocated_mib": None, "peak_reserved_mib": None}
    return {
        "peak_allocated_mib": torch.cuda.max_memory_allocated(settings.place) / 2**20,
        "peak_reserved_mib": torch.cuda.max_memory_reserved(settings.place) / 2**20,
    }
