"""Whether a run in float32 gives the same bits twice on the device."""

from __future__ import annotations

import torch

from fedrela_bench.bench.gpu.budget import Budget
from fedrela_bench.bench.gpu.equality import Outcome, differing, outcome
from fedrela_bench.bench.gpu.federation import Case, cases
from fedrela_bench.bench.gpu.steps import Settings, Status, over_cases, verdict
from fedrela_bench.nested import Json


def changed_bits(first: Outcome, second: Outcome) -> Json:
    """How many values of two runs differ at all."""
    a, b = first.snapshot, second.snapshot
    pairs = {"parameters": (a.params, b.params), "statistics": (a.buffers, b.buffers), "labels": (a.labels, b.labels)}
    found: Json = {name: int((x != y).sum()) for name, (x, y) in pairs.items()}
    found["figures"] = [] if first.metrics == second.metrics else differing(first.metrics, second.metrics)
    found["finite"] = bool(torch.isfinite(a.params).all())
    found["same"] = not any(found[name] for name in pairs) and first.metrics == second.metrics and found["finite"]
    return found


def run(settings: Settings, budget: Budget, results: Json) -> Status:
    """The step: every case twice."""

    def measure(case: Case) -> Json:
        return changed_bits(outcome(case, "float32", settings.device), outcome(case, "float32", settings.device))

    over_cases(cases(settings.tiny), budget, results, measure)
    return verdict(all(found["same"] for found in results["cases"].values()), results)
