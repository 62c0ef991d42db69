"""Which scored models a study keeps, computes again and frees; tracking logs those of the best configurations.

A finished run of the first seed leaves its model in the store, where the disk has room. At the end those of the front
and of confirmed configurations stay, so that a larger study finds them; whatever is recommended and has none, because
another study computed it or the disk was full, is computed again from the last state there is.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedrela_bench.nested import Json
from fedrela_bench.study.batch import Job, run_jobs
from fedrela_bench.study.confirm import confirmed_rows
from fedrela_bench.study.plan import Plan
from fedrela_bench.study.results import Row, StudyResult, best_rows, collect
from fedrela_bench.study.stages import Session
from fedrela_bench.study.worker import run_model_task


def best_records(plan: Plan, rows: dict[str, Row]) -> dict[str, str]:
    """The run of the first seed behind every recommendation, as tracking names it."""
    entries = {name: plan.entry(row.point, plan.seeds[0]) for name, row in rows.items()}
    return {name: f"{entry.kind}:{entry.key}" for name, entry in entries.items()}


def unmodelled(session: Session) -> list[Json]:
    """Points that are recommended now and whose model is not in the store."""
    plan = session.plan
    if plan.request.log_models == "none":
        return []
    _, trials = collect(plan, session.ledgers)
    confirming = "confirm" in plan.request.stages
    confirmed = confirmed_rows(plan, session.confirmed_arms(), plan.request.final_seeds) if confirming else []
    best = best_rows(plan, trials, confirmed, plan.request.final_seeds if confirming else ())
    points = {plan.entry(row.point, plan.seeds[0]).key: dict(row.point) for row in best.values()}
    return [point for point in points.values() if not plan.entry(point, plan.seeds[0]).model.exists()]


def compute_models(session: Session, gpus: float, limit: int) -> None:
    """Compute what `unmodelled` says; a failure leaves a remark."""
    plan, points = session.plan, unmodelled(session)
    if not points:
        return
    session.progress.stage("models", len(points))
    seed, jobs = plan.seeds[0], list[Job]()
    for point in points:
        own = plan.lineage(point, seed)[-1]
        name = f"model of {session.named(point)} seed {seed}"
        jobs.append(Job(name, own.entry.key, own.entry.journal.path, own.last - own.first + 1, (point, seed)))
    run_jobs(session.crew(gpus, limit), jobs, run_model_task, session.modelled)


def free_models(plan: Plan, result: StudyResult) -> None:
    """Delete the models of a finished study that it would never recommend, however many trials follow."""
    kept = {_entry_key(plan, row) for row in _candidates(result)}
    for row in result.trials:
        entry = plan.entry(row.point, plan.seeds[0])
        if entry.key not in kept:
            entry.model.unlink(missing_ok=True)
    for trunk in plan.trunks(plan.seeds[:1], ()):
        if trunk.entry.key not in kept:
            trunk.entry.model.unlink(missing_ok=True)


def _entry_key(plan: Plan, row: Row) -> str:
    return plan.entry(row.point, plan.seeds[0]).key


def _candidates(result: StudyResult) -> Sequence[Row]:
    return [*result.pareto, *(row for row in result.confirmed if row.number is not None)]
