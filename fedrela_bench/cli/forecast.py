"""How long a study would take here: pieces of its runs are timed, for seconds, and kept for the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedrela_bench.bench.rates import Rate
    from fedrela_bench.config import TrialConfig
    from fedrela_bench.data.federated import FederatedDataset
    from fedrela_bench.study.forecast import Forecast as Costs
    from fedrela_bench.study.request import TuneRequest

SECONDS = 4.0
"""For timing an algorithm; what was timed before is remembered."""


@dataclass(frozen=True)
class Forecast:
    """Hours of a study and what they follow from."""

    hours: float
    slots: int
    """Runs side by side."""
    timed: str
    """What was timed, in words."""
    relative: dict[str, float]
    """Seconds of an algorithm's full run over those of the first one's."""

    def text(self) -> str:
        """One line."""
        side = "on 1 trial at a time" if self.slots == 1 else f"on {self.slots} trials side by side"
        return f"time: about {duration(self.hours)} {side} ({self.timed})"


@dataclass(frozen=True)
class Cost:
    """Seconds of one algorithm's full run and of a relabelling pass over all clients."""

    run: float
    relabel: float


def forecast(request: TuneRequest, costs: Costs) -> Forecast | None:
    """Time what a checked request would run; None where that is not possible here, as for a GPU that others have.

    Args:
        request: has passed preflight.
        costs: what it computes at most.
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
        timed, said = _costs(request, device)
    finally:
        torch.set_num_threads(threads)
    slots = slots_of(request, device, gpus)
    # A GPU that trials share is taken to be no faster than one that a single trial has.
    shared = 1 / gpus if 0 < gpus < 1 else 1.0
    seconds = {
        name: shared * (costs.runs.get(name, 0.0) * cost.run + costs.passes.get(name, 0) * cost.relabel)
        for name, cost in timed.items()
    }
    hours = study_hours(seconds, shared * max(cost.run for cost in timed.values()), slots)
    first = next(iter(timed))
    relative = {name: cost.run / timed[first].run for name, cost in timed.items()}
    others = ", ".join(f"{name} {factor:.1f} x" for name, factor in relative.items() if name != first)
    return Forecast(hours, slots, f"{said}; a run relative to {first}: {others}" if others else said, relative)


def slots_of(request: TuneRequest, device: str, gpus: float) -> int:
    """Runs side by side."""
    from fedrela_bench.study.address import address_of
    from fedrela_bench.study.cluster import concurrency, local_capacity

    if address_of(request) is not None:
        return request.max_concurrent or 1
    return concurrency(request, gpus, local_capacity(device))


def _costs(request: TuneRequest, device: str) -> tuple[dict[str, Cost], str]:
    """What every algorithm costs, and what was timed."""
    from fedrela_bench.bench.rates import model_name, rate_of
    from fedrela_bench.data.load import settled

    costs: dict[str, Cost] = {}
    said = ""
    for name, base in request.bases.items():
        config = base.replace({"seed": request.all_seeds[0]})
        dataset: FederatedDataset = request.engine.dataset(config, request.data_dir, request.cache_dir)
        config = settled(config, dataset)
        rate = rate_of(config, dataset, device, SECONDS, request.cache_dir)
        costs[name] = cost_of(config, dataset, rate)
        said = said or _said(model_name(config, dataset), config, rate)
    return costs, said


def cost_of(config: TrialConfig, dataset: FederatedDataset, rate: Rate) -> Cost:
    """What a rate means for a configuration."""
    images = sum(len(rows) for rows in dataset.clients)
    run = rate.run_seconds(config, images, len(dataset.test_labels))
    return Cost(run, images * rate.relabelled)


def _said(model: str, config: TrialConfig, rate: Rate) -> str:
    return f"timed here: {model}, batch {config.training.batch_size}: {1 / rate.step_image:,.0f} samples/s"


def duration(hours: float) -> str:
    """In the unit that people would use."""
    if hours < 1 / 60:
        return f"{max(1, round(hours * 3600))} s"
    if hours < 1.5:
        return f"{round(hours * 60)} min"
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"
