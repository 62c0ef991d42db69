"""`fedrela-bench report SPEC --plan` and `--run`: the runs that a report needs."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fedrela_bench.cli import common
from fedrela_bench.cli.command import overrides_of
from fedrela_bench.cli.training_data import report_of
from fedrela_bench.cli.tune import parse_seeds
from fedrela_bench.cli.wanted import Ask, Job, jobs_of
from fedrela_bench.cli.wantedplan import hours_of, plan_json, plan_lines
from fedrela_bench.errors import ConfigError

if TYPE_CHECKING:
    from fedrela_bench.cli.wantedrun import Outcome
    from fedrela_bench.reporting.report import Report
    from fedrela_bench.reporting.view import View

MACHINE = {
    "data_dir": "data_dir",
    "tracking_uri": "tracking_uri",
    "snapshot_rounds": "rolling_rounds",
    "max_concurrent": "max_concurrent",
    "cpus_per_trial": "cpus_per_trial",
    "gpus_per_trial": "gpus_per_trial",
    "ray_address": "ray_address",
}
"""Options of the command line and the fields of a request that they are."""


def plan_or_run(ctx: typer.Context, name: str, view: View, formats: list[str]) -> int:
    """Say what a spec's runs take, or compute them and render the report.

    Args:
        ctx: of the verb.
        name: path of the spec.
        view: which of its settings.
        formats: of the report.

    Raises:
        ConfigError, DataError: what was asked cannot work; nothing was started.
        StoreError: results cannot be kept.
    """
    from fedrela_bench.reporting.spec import load_spec

    as_json, stem = bool(ctx.params["json_output"]), Path(name).stem
    ask, why = _ask(ctx, stem, as_json)
    spec = view.of(load_spec(name)[0])
    common.tell(why, to_stderr=as_json)
    jobs = jobs_of(spec, stem, ask)
    if ctx.params["plan"]:
        _say_plan(spec.title, stem, jobs, ask, as_json)
        return 0
    return _run(ctx, name, view, formats, jobs, ask)


def _ask(ctx: typer.Context, stem: str, as_json: bool) -> tuple[Ask, str]:
    """What the command line says about the runs, and why the profile is what it is."""
    given, faults = ctx.params, common.scanned(ctx)
    common.attempt(faults, "cpu", lambda: common.choose_device(given["device"]))
    size, why = common.attempt(faults, common.SMALL, lambda: common.choose_size(given["profile"], given["device"]))
    text = given["seeds"]
    seeds = common.attempt(faults, None, lambda: None if text is None else parse_seeds(text))
    if faults:
        raise ConfigError(list(dict.fromkeys(faults)))
    machine: dict[str, Any] = {field: given[option] for option, field in MACHINE.items()}
    machine |= {"device": given["device"], "progress": "quiet" if as_json else "auto"}
    out: Path = given["out"] or Path("studies") / stem
    return Ask(out, size, overrides_of(ctx), given["dataset"], seeds, given["store"], machine), why


def _say_plan(title: str, stem: str, jobs: list[Job], ask: Ask, as_json: bool) -> None:
    hours, line = hours_of(jobs)
    if as_json:
        print(json.dumps(plan_json(stem, jobs, ask, hours)))
    else:
        common.tell(*plan_lines(title, stem, jobs, ask, line))


def _run(ctx: typer.Context, name: str, view: View, formats: list[str], jobs: list[Job], ask: Ask) -> int:
    from fedrela_bench.cli.wantedrun import check_jobs, run_jobs

    as_json = bool(ctx.params["json_output"])
    check_jobs(jobs)
    outcome = run_jobs(jobs, partial(common.tell, to_stderr=as_json))
    studies = [job.out for job in jobs if (job.out / "study.json").exists()]
    made = None if outcome.interrupted else report_of(ctx, studies, name, view, formats, ask.out / "report")
    _say_end(outcome, made, jobs, as_json)
    return outcome.exit_code


def _say_end(outcome: Outcome, made: Report | None, jobs: list[Job], as_json: bool) -> None:
    from fedrela_bench.reporting.render import on_stdout, table_json

    command = jobs[0].request.resume_command if jobs[0].request is not None else ""
    files = [str(path) for path in made.files] if made is not None else []
    common.tell(*(f"note: {text}" for text in (made.failed if made is not None else ())), to_stderr=True)
    if as_json:
        status = "interrupted" if outcome.interrupted else "failed" if outcome.exit_code else "finished"
        ended = {"status": status, "exit_code": outcome.exit_code, "settings": outcome.settings}
        table = None if made is None else table_json(made.table)
        left_out = [] if made is None else list(made.notes)
        rest = {"table": table, "files": files, "left_out": left_out, "resume_command": command}
        print(json.dumps({**ended, **rest}))
        return
    if made is not None:
        print(on_stdout(made.table))
        common.tell(*(f"written: {path}" for path in files), *made.notes)
    if outcome.exit_code:
        common.tell(f"continue: {command}")
