"""Whether the device computes what the CPU does: some float64 rounds of every algorithm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedrela_bench.bench.gpu.budget import Budget
from fedrela_bench.bench.gpu.federation import Case, cases
from fedrela_bench.bench.gpu.steps import Settings, Status, over_cases, verdict
from fedrela_bench.nested import Json
from fedrela_bench.simulation import RoundResult, Snapshot

TOLERANCE = 1e-9
"""Largest difference of parameters over the largest parameter."""
Figures = Mapping[str, float]


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind, on the CPU."""

    snapshot: Snapshot
    results: Sequence[RoundResult]

    @property
    def metrics(self) -> list[dict[str, float]]:
        """Of every round, without the clock."""
        return [{k: v for k, v in result.metrics.items() if not k.startswith("time/")} for result in self.results]


def outcome(case: Case, dtype: str, device: str) -> Outcome:
    """Run the case from its first round to its last."""
    simulation = case.simulation(dtype, device)
    results = list(simulation)
    return Outcome(simulation.snapshot(), results)


def relative(first: Tensor, second: Tensor) -> float:
    """Largest difference over the largest value; infinite where shapes differ or one is not finite."""
    first, second = first.double(), second.double()
    if first.shape != second.shape or not (first.isfinite().all() and second.isfinite().all()):
        return float("inf")
    if not first.numel():
        return 0.0
    largest = max(float(first.abs().max()), torch.finfo(torch.float64).tiny)
    return float((first - second).abs().max()) / largest


def compare(here: Outcome, there: Outcome) -> Json:
    """Differences of two runs, and whether they are equal.

    Equal means: parameters and running statistics within `TOLERANCE`, labels and counters exactly, losses within
    `TOLERANCE`, every other figure exactly. What clients and server keep besides is compared for the reader only:
    values that cancel to nearly nothing have no relative size.
    """
    a, b = here.snapshot, there.snapshot
    found: Json = {
        "parameters": relative(a.params, b.params),
        "statistics": relative(a.buffers, b.buffers),
        "kept": _kept(a, b),
        "labels": int((a.labels != b.labels).sum()),
        "relabelled": int(here.metrics[-1].get("relabel/changed", 0)),
        "figures": differing(here.metrics, there.metrics),
    }
    counted = all(torch.equal(*pair) for pair in zip(a.counters, b.counters, strict=True))
    near = max(found["parameters"], found["statistics"]) <= TOLERANCE
    found["equal"] = near and counted and not found["labels"] and not found["figures"] and a.status == b.status
    return found


def differing(here: Sequence[Figures], there: Sequence[Figures]) -> list[str]:
    """Names of the figures that differ in any round, with the first such round."""
    if len(here) != len(there):
        return [f"{len(here)} rounds against {len(there)}"]
    found: dict[str, int] = {}
    for number, (mine, other) in enumerate(zip(here, there, strict=True), 1):
        for name in sorted(mine.keys() | other.keys()):
            if not _same(name, mine.get(name), other.get(name)):
                found.setdefault(name, number)
    return [f"{name} in round {number}" for name, number in found.items()]


def _same(name: str, mine: float | None, other: float | None) -> bool:
    if mine is None or other is None or name != "train/loss":
        return mine == other
    return abs(mine - other) <= TOLERANCE * max(abs(mine), 1.0)


def _kept(a: Snapshot, b: Snapshot) -> float:
    """Largest relative difference of what server and clients keep."""
    groups = [(a.server_state, b.server_state)]
    for mine, other in ((a.client_states, b.client_states), (a.private, b.private)):
        if mine.keys() != other.keys():
            return float("inf")
        groups += [(mine[client], other[client]) for client in mine]
    if any(mine.keys() != other.keys() for mine, other in groups):
        return float("inf")
    return max((relative(mine[name], other[name]) for mine, other in groups for name in mine), default=0.0)


def run(settings: Settings, budget: Budget, results: Json) -> Status:
    """The step: the CPU's run of every case beside the device's."""
    results["tolerance"] = TOLERANCE

    def measure(case: Case) -> Json:
        return compare(outcome(case, "float64", "cpu"), outcome(case, "float64", settings.device))

    over_cases(cases(settings.tiny), budget, results, measure)
    return verdict(all(found["equal"] for found in results["cases"].values()), results)
