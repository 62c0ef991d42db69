"""How long a study would take here: pieces of its runs are timed, for seconds, and kept for the machine."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedrela_bench.bench.rates import Rate
    from fedrela_bench.config import TrialConfig
    from fedrela_bench.data.federated import FederatedDataset
    from fedrela_bench.study.request import TuneRequest

SECONDS = 6.0
"""For all timing together."""
LEAST = 1.0
"""An algorithm is not timed for less."""


@dataclass(frozen=True)
class Forecast:
    """Hours of a study and what they follow from."""

    hours: float
    slots: int
    """Runs side by side."""
    timed: str
    """What was timed, in words."""

    def text(self) -> str:
        """One line."""
        side = "on 1 trial at a time" if self.slots == 1 else f"on {self.slots} trials side by side"
        return f"time: about {duration(self.hours)} {side} ({self.timed})"


@dataclass(frozen=True)
class _Cost:
    """Seconds of one algorithm's full run and of its average trial behind the fork."""

    run: float
    trial: float


def forecast(request: TuneRequest, tails: dict[str, float]) -> Forecast | None:
    """Time what a checked request would run; None where that is not possible here, as for a GPU that others have.

    Args:
        request: has passed preflight.
        tails: mean share of a run behind the fork, by algorithm.
    """
    import torch

    from fedrela_bench.bench.rates import study_hours
    from fedrela_bench.study.cluster import pick_device

    device, gpus = pick_device(request)
    if device == "cuda" and not torch.cuda.is_available():
        return None
    threads = torch.get_num_threads()
    torch.set_num_threads(request.cpus_per_trial)
    try:
        costs, said = _costs(request, tails, device)
    finally:
        torch.set_num_threads(threads)
    mean = _Cost(fmean(cost.run for cost in costs.values()), fmean(cost.trial for cost in costs.values()))
    known = {name: costs.get(name, mean) for name in request.bases}
    slots = _slots(request, device, gpus)
    # A GPU that trials share is taken to be no faster than one that a single trial has.
    shared = 1 / gpus if 0 < gpus < 1 else 1.0
    runs = {name: shared * cost.run for name, cost in known.items()}
    trials = {name: shared * cost.trial for name, cost in known.items()}
    hours = study_hours(runs, trials, len(request.all_seeds), request.target, slots)
    untimed = [name for name in known if name not in costs]
    rest = f"; {', '.join(untimed)} taken as the others' mean" if untimed else ""
    return Forecast(hours, slots, said + rest)


def _slots(request: TuneRequest, device: str, gpus: float) -> int:
    from fedrela_bench.study.cluster import address_of, concurrency, local_capacity

    if address_of(request) is not None:
        return request.max_concurrent or 1
    return concurrency(request, gpus, local_capacity(device))


def _costs(request: TuneRequest, tails: dict[str, float], device: str) -> tuple[dict[str, _Cost], str]:
    from fedrela_bench.bench.rates import model_name, rate_of

    deadline = time.perf_counter() + SECONDS
    costs: dict[str, _Cost] = {}
    said = ""
    for place, (name, base) in enumerate(request.bases.items()):
        left = deadline - time.perf_counter()
        if costs and left < LEAST:
            break
        config = base.replace({"seed": request.all_seeds[0]})
        dataset: FederatedDataset = request.engine.dataset(config, request.data_dir, request.cache_dir)
        rate = rate_of(config, dataset, device, max(LEAST, left / (len(request.bases) - place)), request.cache_dir)
        costs[name] = _cost(config, dataset, rate, tails[name])
        said = said or _said(model_name(config, dataset), config, rate)
    return costs, said


def _cost(config: TrialConfig, dataset: FederatedDataset, rate: Rate, tail: float) -> _Cost:
    images = sum(len(rows) for rows in dataset.clients)
    run = rate.run_seconds(config, images, len(dataset.test_labels))
    return _Cost(run, tail * run + images * rate.relabelled)


def _said(model: str, config: TrialConfig, rate: Rate) -> str:
    return f"timed here: {model}, batch {config.training.batch_size}: {1 / rate.step_image:,.0f} samples/s"


def duration(hours: float) -> str:
    """In the unit that people would use."""
    if hours < 1 / 60:
        return f"{max(1, round(hours * 3600))} s"
    if hours < 1.5:
        return f"{round(hours * 60)} min"
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"
