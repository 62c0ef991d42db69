"""What `report --plan` says: runs by setting and arm, what is there, what is missing, and what that takes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

from fedrela_bench.cli.forecast import SECONDS, Cost, cost_of, duration, slots_of
from fedrela_bench.words import counted

if TYPE_CHECKING:
    from fedrela_bench.bench.rates import Rate
    from fedrela_bench.cli.wanted import Ask, Job
    from fedrela_bench.nested import Json
    from fedrela_bench.study.plan import Plan
    from fedrela_bench.study.wanted import ArmState

BUDGET = 10.0
"""Seconds for all timing of one plan together."""
LONGEST = 46
"""Letters of an arm's name in a line."""


@dataclass
class Clock:
    """Times one run of every dataset and algorithm, as long as the budget lasts."""

    device: str
    deadline: float = field(default_factory=lambda: time.perf_counter() + BUDGET)
    rates: dict[tuple[str, str], Rate] = field(default_factory=dict)

    def costs(self, plan: Plan) -> dict[str, Cost]:
        """Seconds by algorithm; those that there is no time for are taken as the others' mean; {} for none."""
        from fedrela_bench.data.load import settled

        request, known = plan.request, {}
        for name, base in plan.bases.items():
            config = base.replace({"seed": request.all_seeds[0]})
            rate = self.rates.get((request.dataset, name))
            if rate is None and time.perf_counter() > self.deadline:
                continue
            dataset = request.engine.dataset(config, request.data_dir, request.cache_dir)
            config = settled(config, dataset)
            if rate is None:
                from fedrela_bench.bench.rates import rate_of

                rate = rate_of(config, dataset, self.device, SECONDS, request.cache_dir)
                self.rates[request.dataset, name] = rate
            known[name] = cost_of(config, dataset, rate)
        if not known:
            return {}
        mean = Cost(fmean(cost.run for cost in known.values()), fmean(cost.relabel for cost in known.values()))
        return {name: known.get(name, mean) for name in plan.bases}


def hours_of(jobs: Sequence[Job]) -> tuple[float | None, str]:
    """Hours of what is missing in settings that can be computed here, one setting after the other; and the line."""
    import torch

    from fedrela_bench.bench.rates import study_hours
    from fedrela_bench.study.cluster import pick_device

    wanted = [(job, job.plan) for job in jobs if job.plan is not None and job.missing]
    if not wanted:
        return 0.0, ""
    device, gpus = pick_device(wanted[0][1].request)
    if device == "cuda" and not torch.cuda.is_available():
        return None, "time: unknown, no run can be timed on this machine"
    clock, total, untimed = Clock(device), 0.0, 0
    slots = slots_of(wanted[0][1].request, device, gpus)
    shared = 1 / gpus if 0 < gpus < 1 else 1.0
    for job, plan in wanted:
        costs = clock.costs(plan)
        seconds = {name: shared * _seconds(job.arms, name, cost) for name, cost in costs.items()}
        longest = max((shared * cost.run for cost in costs.values()), default=0.0)
        total += study_hours(seconds, longest, slots) if costs else 0.0
        untimed += not costs
    if untimed:
        return None, f"time: more than {duration(total)}; {untimed} settings were not timed"
    return total, f"time: about {duration(total)}, {counted(slots, 'run')} side by side (pieces were timed here)"


def _seconds(arms: Sequence[ArmState], algorithm: str, cost: Cost) -> float:
    own = [arm for arm in arms if arm.algorithm == algorithm]
    passes = sum(arm.missing for arm in own if arm.point)
    return sum(arm.cost for arm in own) * cost.run + passes * cost.relabel


def plan_json(name: str, jobs: Sequence[Job], ask: Ask, hours: float | None) -> Json:
    """Plain values of a plan."""
    return {
        "spec": name,
        "out": str(ask.out),
        "profile": ask.size,
        "settings": [
            {
                "name": job.name,
                "dataset": job.dataset,
                "out": str(job.out),
                "faults": job.faults,
                "arms": [arm.to_json() for arm in job.arms],
                "missing": job.missing,
                "full_runs": round(job.cost, 4),
            }
            for job in jobs
        ],
        "missing": sum(job.missing for job in jobs),
        "full_runs": round(sum(job.cost for job in jobs), 4),
        "hours": None if hours is None else round(hours, 4),
    }


def plan_lines(title: str, name: str, jobs: Sequence[Job], ask: Ask, time_line: str) -> Iterator[str]:
    """A plan for people."""
    yield title
    yield f"{counted(len(jobs), 'setting')}, profile {ask.size}, studies in {ask.out}"
    for job in jobs:
        yield ""
        yield f"{job.name} ({job.dataset})"
        yield from (f"  cannot be computed here: {fault}" for fault in job.faults)
        yield from (_arm_line(arm) for arm in job.arms)
    yield ""
    yield from _totals(jobs, name, time_line)


def _arm_line(arm: ArmState) -> str:
    shown = f"  + {arm.name.removeprefix(f'{arm.algorithm} ')}" if arm.point else f"  {arm.name}"
    begun = sum(run.state == "begun" for run in arm.runs)
    there = f"{len(arm.runs) - arm.missing} of {len(arm.runs)} there{f', {begun} begun' if begun else ''}"
    cost = f"{arm.cost:.2f} full runs" if arm.missing else ""
    return f"{shown[:LONGEST]:<{LONGEST}} {there:<22} {cost}".rstrip()


def _totals(jobs: Sequence[Job], name: str, time_line: str) -> Iterator[str]:
    arms = [arm for job in jobs for arm in job.arms]
    baselines, cells = (sum(arm.missing for arm in arms if bool(arm.point) == cell) for cell in (False, True))
    cost = sum(arm.cost for arm in arms)
    if baselines + cells:
        yield f"missing: {baselines} baselines and {cells} runs forked from them, {cost:.2f} full runs"
    elif not any(job.faults for job in jobs):
        yield "nothing is missing"
    if time_line:
        yield time_line
    faulty = [job.name for job in jobs if job.faults]
    if faulty:
        yield f"cannot be computed here: {len(faulty)} of {len(jobs)} settings; choose others with --setting NAME"
        yield f"the published numbers alone: fedrela-bench report {name} --published"
    yield "nothing was started (--plan); --run computes what is missing and shows the table"
