"""`tune`: preflight, baselines, search, results. The same call again continues, extends, or answers at once."""

from __future__ import annotations

import contextlib
import json
import shlex
import time
from collections.abc import Callable

from fedrela_bench.errors import BenchError, StoreError
from fedrela_bench.files import full_disk
from fedrela_bench.study.confirm import confirmed_rows
from fedrela_bench.study.connection import drop_temp, joined
from fedrela_bench.study.controls import candidates
from fedrela_bench.study.identity import register, study_lock, summarise, update
from fedrela_bench.study.interrupt import Interrupts
from fedrela_bench.study.models import best_records, free_models
from fedrela_bench.study.output import counts_of, render_text, shown_rows, write_best, write_tables
from fedrela_bench.study.plan import Plan
from fedrela_bench.study.preflight import STOP_FILE, Checked, make_plan, preflight
from fedrela_bench.study.request import TuneRequest
from fedrela_bench.study.results import StudyResult, best_rows, collect, pareto_front
from fedrela_bench.study.stages import DEFAULTS_ONLY, Session
from fedrela_bench.study.tuner import drop_tune_folder
from fedrela_bench.study.unpaired import write_baselines
from fedrela_bench.study.work import JOURNAL, Work, open_ledgers
from fedrela_bench.tracking.manifest import Manifest
from fedrela_bench.tracking.mlflow_sink import Sink
from fedrela_bench.tracking.progress import Progress
from fedrela_bench.tracking.state import is_complete
from fedrela_bench.words import counted

__all__ = ["Checked", "StudyResult", "TuneRequest", "make_plan", "preflight", "render_text", "tune"]

ENDS: dict[bool, tuple[str, str]] = {True: ("interrupted", "KILLED"), False: ("failed", "FAILED")}
"""How a study that was stopped, or failed, is recorded here and in MLflow."""
FREE = "free some, and the same command goes on"
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
    with joined(plan.request, checked.gpus) as leave, study_lock(plan.request.out):
        register(plan)
        with Progress(plan.request.progress) as progress:
            for text in plan.data_notes:
                progress.note(f"data: {text}")
            return _drive(checked, progress, began, leave)


def _drive(checked: Checked, progress: Progress, began: float, leave: Callable[[], None]) -> StudyResult:
    plan = checked.plan
    request = plan.request
    manifest = Manifest(request.out)
    warnings: list[str] = []
    with Interrupts(request.out / STOP_FILE, progress.note) as interrupts:
        session = Session(plan, manifest, progress, interrupts)
        session.ledgers = open_ledgers(plan)
        interrupts.bound(BOUND_SECONDS, lambda: _leave(session, warnings, began))
        work = Work(session)
        sink = Sink(request.out, request.uri, lambda text: _warn(text, warnings, progress))
        try:
            if work.anything:
                update(request.out, status="running")
                sink.start()
                try:
                    work.compute(checked.gpus)
                finally:
                    leave()
        except BaseException as error:
            stopped, full = interrupts.adopt(error), full_disk(error)
            _wind_up(session, sink, stopped)
            if full is not None and not stopped and not isinstance(error, BenchError):
                raise StoreError(f"no space is left on a disk ({full}); {FREE}: {request.resume_command}") from error
            if not stopped:
                raise
            return _conclude(session, None, warnings, began)
        _release(session)
        return _conclude(session, sink, warnings, began)


def _wind_up(session: Session, sink: Sink, stopped: bool) -> None:
    """Give back what is in flight and say how the study ended; what fails now has its reason in what came before."""
    out, (status, run_status) = session.plan.request.out, ENDS[stopped]
    steps: list[Callable[[], object]] = [
        lambda: _release(session),
        lambda: update(out, status=status),
        lambda: sink.close(run_status, patience=30),
    ]
    for step in steps:
        with contextlib.suppress(OSError, BenchError):
            step()


def _release(session: Session) -> None:
    for ledger in session.ledgers:
        ledger.release()


def _warn(text: str, warnings: list[str], progress: Progress) -> None:
    warnings.append(text)
    progress.note(f"warning: {text}")


def _conclude(session: Session, sink: Sink | None, warnings: list[str], began: float) -> StudyResult:
    plan, interrupts = session.plan, session.interrupts
    request = plan.request
    for ledger in session.ledgers:
        for key in ledger.finished:
            session.list_cells(ledger.points[key], ledger.numbers[key])
    baselines, trials = collect(plan, session.ledgers)
    confirming = "confirm" in request.stages and not interrupts.stopping
    failed = [row for row in trials if row.outcome.status == "failed"]
    many = len(failed) + len(session.failures) > request.max_failures
    result = StudyResult(
        status="interrupted" if interrupts.stopping else "finished",
        exit_code=interrupts.exit_code or int(many),
        out=request.out,
        dataset=request.dataset,
        objectives=request.objectives,
        seeds=plan.seeds,
        baselines=baselines,
        trials=trials,
        pareto=pareto_front(candidates(trials, plan.bases)),
        failed=failed,
        confirmed=confirmed_rows(plan, session.confirmed_arms(), request.final_seeds) if confirming else [],
        confirm_seeds=request.final_seeds if confirming else (),
        warnings=[
            *warnings,
            *session.failures,
            *session.remarks,
            *_remarks(session),
            *dict.fromkeys(plan.runtime.store.damaged),
        ],
        ui_command=shlex.join(["fedrela-bench", "ui", str(request.out)]),
        report_command=shlex.join(["fedrela-bench", "report", str(request.out)]),
        dashboard_command=shlex.join(["optuna-dashboard", str(request.optuna_storage or request.out / JOURNAL)]),
        resume_command=request.resume_command,
        sources=request.sources,
    )
    session.list_baselines(trials, plan.seeds)
    session.list_baselines(result.confirmed, request.final_seeds)
    lacking = [*shown_rows(result), *result.confirmed]
    result.baseline_commands = write_baselines(plan, lacking, request.final_seeds if confirming else plan.seeds)
    computed = {"trunks_computed": session.trunks_computed, "cells_computed": len(session.computed)}
    computed["rounds_computed"] = session.rounds_computed
    computed["cells_reused"] = session.cells_reused
    result.counts = counts_of(plan, result, computed, session.confirmed_runs() if confirming else ())
    best = best_rows(plan, result.trials, result.confirmed, result.confirm_seeds)
    result.best = write_best(plan, result, best)
    update(request.out, best=best_records(plan, best))
    write_tables(result)
    complete = all(ledger.remaining <= 0 or ledger.exhausted for ledger in session.ledgers)
    if result.status == "finished" and complete:
        _drop_branch_states(plan, result)
        free_models(plan, result)
    if sink is not None:
        _track(sink, result, warnings, complete)
    result.seconds = time.monotonic() - began
    return result


def _remarks(session: Session) -> list[str]:
    remarks = []
    for ledger in session.ledgers:
        if ledger.exhausted:
            count = len(ledger.finished) + len(ledger.failed)
            remarks.append(f"the space holds only {counted(count, 'different configuration')}; all were tried")
    remarks += [DEFAULTS_ONLY] if session.confirms_defaults_only and not session.interrupts.stopping else []
    plan = session.plan
    alone = plan.runtime.futility is not None and "trunks" not in plan.request.stages
    if alone and any(plan.baseline(name) is None for name in plan.bases):
        remarks.append(
            "--futility judges only rounds that the baseline has, and it is not finished; add trunks to --stage"
        )
    if session.broken:
        remarks.append(
            f"{session.failed_in_a_row} trials in a row failed, so nothing more was proposed; the last messages say why"
        )
    return remarks


def _drop_branch_states(plan: Plan, result: StudyResult) -> None:
    """What only helped to compute less is no use to a finished study; its baselines' snapshots serve larger ones."""
    runs = [(row.point, seed) for row in result.trials for seed in plan.seeds]
    runs += [(row.point, seed) for row in result.confirmed for seed in result.confirm_seeds]
    for point, seed in runs:
        for part in plan.lineage(point, seed)[1:]:
            if part.entry.snapshot_rounds():
                part.entry.drop_snapshots()


def _leave(session: Session, warnings: list[str], began: float) -> None:
    """What a stop request owes its user although something hangs: tables, the resume command, no litter."""
    out, progress = session.plan.request.out, session.progress
    late = "the study did not stop in time and was left; the resume command brings MLflow up to date"
    result = _conclude(session, None, [*warnings, late], began)
    progress.last_words(json.dumps(result.to_json()) if progress.mode in ("quiet", "json") else render_text(result))
    update(out, status=result.status)
    drop_temp(out)
    drop_tune_folder(out)


def _track(sink: Sink, result: StudyResult, warnings: list[str], complete: bool) -> None:
    summary = {"trials": float(len(result.trials)), "full_runs": result.counts["full_runs"]}
    for index, name in enumerate(result.objectives):
        values = [row.outcome.values[index] for row in result.pareto]
        summary |= {f"best/{name}": max(values)} if values else {}
    summarise(result.out, summary)
    update(result.out, status=result.status if complete or result.status != "finished" else "partial")
    if result.status == "finished" and is_complete(result.out, sink.uri):
        return
    before = len(warnings)
    sink.close("KILLED" if result.status == "interrupted" else "FINISHED")
    result.warnings += warnings[before:]
