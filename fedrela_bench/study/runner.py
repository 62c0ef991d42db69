"""`tune`: preflight, baselines, search, results. The same call again continues, extends, or answers at once."""

from __future__ import annotations

import os
import platform
import time
from typing import Any

from fedrela_bench.config import canonical_json
from fedrela_bench.study.cluster import (
    address_of,
    concurrency,
    knock,
    local_capacity,
    pick_device,
    prove_shared,
    ray_session,
)
from fedrela_bench.study.engine import Runtime
from fedrela_bench.study.forecast import disk_bytes
from fedrela_bench.study.identity import register, study_lock, update
from fedrela_bench.study.interrupt import Interrupts
from fedrela_bench.study.ledger import Ledger, Proposal, open_study
from fedrela_bench.study.output import counts_of, render_text, write_best, write_tables
from fedrela_bench.study.plan import Plan, Trunk
from fedrela_bench.study.request import TuneRequest
from fedrela_bench.study.results import StudyResult, collect, pareto_front
from fedrela_bench.study.stages import Session
from fedrela_bench.study.store import Store, check_space
from fedrela_bench.tracking.manifest import Manifest
from fedrela_bench.tracking.mlflow_sink import Sink, is_complete
from fedrela_bench.tracking.progress import Progress

__all__ = ["StudyResult", "TuneRequest", "render_text", "tune"]

STOP_FILE = ".stop"


def tune(request: TuneRequest) -> StudyResult:
    """Run, continue or extend a study.

    Raises:
        ConfigError, DataError: the request cannot work; nothing was started.
        RunError: a baseline failed.
        StoreError: results cannot be kept, or another process drives the study.
    """
    began = time.monotonic()
    request = request.rooted()
    bases = request.settled()
    device, gpus = pick_device(request)
    address = address_of(request)
    if address is not None:
        knock(address)
    else:
        concurrency(request, gpus, local_capacity(device))
    plan = make_plan(request, bases, device)
    with study_lock(request.out):
        register(plan)
        with Progress(request.progress) as progress:
            return _drive(plan, gpus, progress, began)


def make_plan(request: TuneRequest, bases: dict[str, Any], device: str) -> Plan:
    """Load the datasets once to know their digests, and fix what keys depend on.

    Raises:
        DataError: a dataset is missing or cannot be split as asked.
    """
    runtime = Runtime(
        store=Store(request.store_dir),
        engine=request.engine,
        device=device,
        device_class=_device_class(device),
        threads=request.cpus_per_trial,
        rolling_seconds=request.rolling_seconds,
        stop_file=request.out.resolve() / STOP_FILE,
    )
    digests: dict[tuple[str, int], str] = {}
    known: dict[str, str] = {}
    for algorithm, base in bases.items():
        for seed in request.all_seeds:
            config = base.replace({"seed": seed})
            name = canonical_json([config.data.model_dump(mode="json"), config.federation.clients, seed])
            if name not in known:
                known[name] = request.engine.dataset(config, request.data_dir, request.cache_dir).digest
            digests[algorithm, seed] = known[name]
    return Plan(request, bases, runtime, digests, request.out.resolve())


def _device_class(device: str) -> str:
    if device == "cpu":
        return f"cpu {platform.machine()}"
    import torch

    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else device


def _drive(plan: Plan, gpus: float, progress: Progress, began: float) -> StudyResult:
    request = plan.request
    path = request.out / "optuna.journal"
    ledger = Ledger(open_study(path, len(request.objectives), request.sampler, request.search_seed), plan)
    ledger.start()
    manifest = Manifest(request.out)
    warnings: list[str] = []
    with Interrupts(request.out / STOP_FILE, progress.note) as interrupts:
        session = Session(plan, ledger, manifest, progress, interrupts)
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
            stopped = isinstance(error, KeyboardInterrupt) and interrupts.stopping
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
    check_space(request.store_dir, disk_bytes(session.plan, request.max_concurrent or os.cpu_count() or 1))
    with ray_session(request, session.plan.runtime.device) as capacity:
        session.interrupts.install()
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
        ui_command=f"fedrela-bench ui {request.out}",
        report_command=f"fedrela-bench report {request.out}",
        resume_command=request.resume_command,
    )
    if ledger.exhausted:
        result.warnings.append(
            f"the space holds only {len(ledger.finished)} different configurations; all are computed"
        )
    computed = {"trunks_computed": session.trunks_computed, "cells_computed": session.cells_computed}
    result.counts = counts_of(plan, result, {**computed, "cells_reused": ledger.reused * len(plan.seeds)})
    result.best = write_best(plan, result)
    write_tables(result)
    if sink is not None:
        _track(sink, result, warnings)
    result.seconds = time.monotonic() - began
    return result


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
