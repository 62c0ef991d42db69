"""Computing a list of runs side by side as Ray tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrela_bench.nested import Json
from fedrela_bench.study.cluster import avoiding
from fedrela_bench.study.failures import answer_of
from fedrela_bench.study.interrupt import Interrupts
from fedrela_bench.study.nodes import Nodes
from fedrela_bench.study.plan import Plan
from fedrela_bench.tracking.progress import Item, Progress

STARTS = 3
"""Tries of a run whose process fails before its first round."""


@dataclass(frozen=True)
class Job:
    """A run that one task computes."""

    name: str
    key: str
    journal: Path
    rounds: int
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Crew:
    """Where jobs are computed, and who is told."""

    plan: Plan
    progress: Progress
    interrupts: Interrupts
    nodes: Nodes
    gpus: float
    limit: int
    grace: float
    """Seconds that running jobs have after a stop request."""


def run_jobs(
    crew: Crew, jobs: Sequence[Job], function: Callable[..., Json], ended: Callable[[Job, Json], None]
) -> None:
    """Compute jobs until all are done or the study is to stop.

    Args:
        crew: where.
        jobs: in the order to start them.
        function: called in a worker with the plan, the job's arguments and the GPU share.
        ended: called for every job with its answer.
    """
    import ray

    request = crew.plan.request
    task = ray.remote(num_cpus=request.cpus_per_trial, num_gpus=crew.gpus, max_retries=2)(function)
    plan, waiting, running = ray.put(crew.plan), [(job, 1) for job in jobs], dict[Any, tuple[Job, int]]()
    while (waiting or running) and not crew.interrupts.overdue(crew.grace):
        while waiting and len(running) < crew.limit and not crew.interrupts.stopping:
            job, start = waiting.pop(0)
            selector = avoiding(crew.nodes.quarantined)
            call = task.options(label_selector=selector).remote(plan, *job.arguments, crew.gpus)
            running[call] = job, start
            crew.progress.begin(job.key, Item(job.name, [job.journal], job.rounds))
        if not running:
            break
        for call in ray.wait(list(running), timeout=0.5)[0]:
            job, start = running.pop(call)
            answer = answer_of(call, crew.plan.folder, job.key)
            if crew.nodes.note(answer) and start < STARTS:
                waiting.append((job, start + 1))
            else:
                ended(job, answer)
