"""`tune`: preflight, baselines, search, results. The same call again continues, extends, or answers at once."""

from __future__ import annotations

import json
import shlex
import time

from fedrela_bench.study.cluster import concurrency, drop_temp, prove_shared, ray_session
from fedrela_bench.study.identity import register, study_lock, update
from fedrela_bench.study.interrupt import Interrupts
from fedrela_bench.study.ledger import Ledger, Proposal, open_study
from fedrela_bench.study.output import counts_of, render_text, write_best, write_tables
from fedrela_bench.study.plan import Plan, Trunk
from fedrela_bench.study.preflight import STOP_FILE, Checked, make_plan, preflight
from fedrela_bench.study.request import TuneRequest
from fedrela_bench.study.results import StudyResult, collect, pareto_front
from fedrela_bench.study.stages import Session, drop_tune_folder
from fedrela_bench.tracking.manifest import Manifest
from fedrela_bench.tracking.mlflow_sink import Sink, is_complete
from fedrela_bench.tracking.progress import Progress

__all__ = ["Checked", "StudyResult", "TuneRequest", "make_plan", "preflight", "render_text", "tune"]

BOUND_SECONDS = 90.0
"""From the first signal to the end of the process, whatever hangs."""


def tune(request: TuneRequest) -> StudyResult:
    """Run, continue or extend a study.

    Raises:
        ConfigError, DataError: the request cannot work; nothing was started.
        RunError: a baseline failed.
        StoreError: results cannot be kept, or another process drives the study.
    """
    began = time.monotonic()
    checked = preflight(request)
    plan = checked.plan
    with study_lock(plan.request.out):
        register(plan)
        with Progress(plan.request.progress) as progress:
            return _drive(plan, checked.gpus, progress, began)


def _drive(plan: Plan, gpus: float, progress: Progress, began: float) -> StudyResult:
    request = plan.request
    path = request.out / "optuna.journal"
    ledger = Ledger(open_study(path, len(request.objectives), request.sampler, request.search_seed), plan)
    ledger.start()
    manifest = Manifest(request.out)
    warnings: list[str] = []
    with Interrupts(request.out / STOP_FILE, progress.note) as interrupts:
        session = Session(plan, ledger, manifest, progress, interrupts)
        interrupts.bound(BOUND_SECONDS, lambda: _leave(session, warnings, began))
        for trunk in plan.trunks():
            session.list_trunk(trunk)
        first = ledger.next_point()
        todo = [trunk for trunk in plan.trunks() if _unfinished(plan, trunk, searching=first is not None)]
        sink = Sink(request.out, request.uri, lambda text: _warn(text, warnings, progress))
        try:
            if todo or first:
                update(request.out, status="running")
                sink.start()
                _compute(session, todo, first, gpus)
        except BaseException as error:
            ledger.release()
            stopped = interrupts.adopt(error)
            update(request.out, status="interrupted" if stopped else "failed")
            sink.close("KILLED" if stopped else "FAILED", patience=30)
            if not stopped:
                raise
            return _conclude(session, None, interrupts, warnings, began)
        ledger.release()
        return _conclude(session, sink, interrupts, warnings, began)


def _unfinished(plan: Plan, trunk: Trunk, searching: bool) -> bool:
    if plan.runtime.store.result("trunk", trunk.entry.key) is None:
        return True
    return searching and any(not trunk.entry.snapshot(fork).exists() for fork in trunk.fork_rounds)


def _warn(text: str, warnings: list[str], progress: Progress) -> None:
    warnings.append(text)
    progress.note(f"warning: {text}")


def _compute(session: Session, todo: list[Trunk], first: Proposal | None, gpus: float) -> None:
    request = session.plan.request
    if session.interrupts.stopping:
        return
    with ray_session(request, session.plan.runtime.device, session.interrupts.install) as capacity:
        limit = concurrency(request, gpus, capacity)
        prove_shared(request.out.resolve())
        if todo:
            session.run_trunks(todo, gpus, limit)
        session.check_objectives()
        if first is not None and not session.interrupts.stopping:
            session.search(first, gpus, limit)


def _conclude(
    session: Session, sink: Sink | None, interrupts: Interrupts, warnings: list[str], began: float
) -> StudyResult:
    plan, ledger = session.plan, session.ledger
    request = plan.request
    for key in ledger.finished:
        session.list_cells(ledger.points[key], key, ledger.numbers[key])
    baselines, trials = collect(plan, ledger)
    failed = [row for row in trials if row.outcome.status == "failed"]
    result = StudyResult(
        status="interrupted" if interrupts.stopping else "finished",
        exit_code=interrupts.exit_code or int(bool(failed)),
        out=request.out,
        dataset=request.dataset,
        objectives=request.objectives,
        seeds=plan.seeds,
        baselines=baselines,
        trials=trials,
        pareto=pareto_front(trials),
        failed=failed,
        warnings=[*warnings, *dict.fromkeys(plan.runtime.store.damaged)],
        ui_command=shlex.join(["fedrela-bench", "ui", str(request.out)]),
        report_command=shlex.join(["fedrela-bench", "report", str(request.out)]),
        resume_command=request.resume_command,
    )
    if ledger.exhausted:
        result.warnings.append(
            f"the space holds only {len(ledger.finished)} different configurations; all are computed"
        )
    computed = {"trunks_computed": session.trunks_computed, "cells_computed": session.cells_computed}
    computed["rounds_computed"] = session.rounds_computed
    result.counts = counts_of(plan, result, {**computed, "cells_reused": ledger.reused * len(plan.seeds)})
    result.best = write_best(plan, result)
    write_tables(result)
    if result.status == "finished":
        _drop_branch_states(plan, result)
    if sink is not None:
        _track(sink, result, warnings)
    result.seconds = time.monotonic() - began
    return result


def _drop_branch_states(plan: Plan, result: StudyResult) -> None:
    """What only helped to compute less is no use to a finished study; its baselines' snapshots serve larger ones."""
    for row in result.trials:
        for seed in plan.seeds:
            for part in plan.lineage(row.point, seed)[1:]:
                if part.entry.snapshot_rounds():
                    part.entry.drop_snapshots()


def _leave(session: Session, warnings: list[str], began: float) -> None:
    """What a stop request owes its user although something hangs: tables, the resume command, no litter."""
    out, progress = session.plan.request.out, session.progress
    late = "the study did not stop in time and was left; the resume command brings MLflow up to date"
    result = _conclude(session, None, session.interrupts, [*warnings, late], began)
    progress.last_words(json.dumps(result.to_json()) if progress.mode in ("quiet", "json") else render_text(result))
    update(out, status=result.status)
    drop_temp(out)
    drop_tune_folder(out)


def _track(sink: Sink, result: StudyResult, warnings: list[str]) -> None:
    update(result.out, status=result.status)
    if result.status == "finished" and is_complete(result.out, sink.uri):
        return
    sink.summary = {"trials": float(len(result.trials)), "full_runs": result.counts["full_runs"]}
    for index, name in enumerate(result.objectives):
        values = [row.outcome.values[index] for row in result.pareto]
        sink.summary |= {f"best/{name}": max(values)} if values else {}
    before = len(warnings)
    sink.close("KILLED" if result.status == "interrupted" else "FINISHED")
    result.warnings += warnings[before:]
