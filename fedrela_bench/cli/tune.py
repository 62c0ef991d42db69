"""`fedrela-bench tune`: baselines, search and Pareto table of a study."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from fedrela_bench.cli import common, plugged, stages
from fedrela_bench.cli.bases import Layers, common_ground, overrides_with, request_faults, study_notes
from fedrela_bench.cli.command import OverrideCommand, overrides_of
from fedrela_bench.cli.forecast import forecast as hours_of
from fedrela_bench.errors import BenchError, ConfigError
from fedrela_bench.words import counted

if TYPE_CHECKING:
    from fedrela_bench.study.forecast import Forecast
    from fedrela_bench.study.request import TuneRequest
    from fedrela_bench.study.results import StudyResult

Opt = typer.Option
SpaceFile = Annotated[str | None, Opt("--space", metavar="FILE", help="Search space [the dataset's].")]
Algorithms = Annotated[
    list[str] | None, Opt("--algorithm", metavar="LIST", help="Base algorithms; again or a,b [the space's].")
]
Trials = Annotated[int | None, Opt("--trials", metavar="N", help="Configurations in all [the space's].", min=1)]
Seeds = Annotated[str | None, Opt("--seeds", metavar="N|LIST", help="3 is 1,2,3; or a list [the space's].")]
Sampler = Annotated[str, Opt("--sampler", metavar="NAME", help="tpe, nsga2, gp, random or grid.")]
Selection = Annotated[
    str | None, Opt("--selection", metavar="test_slice|oracle", help="Images that select [test_slice].")
]
SearchSeed = Annotated[int, Opt("--seed", metavar="N", help="Seed of the search.", min=0)]
Out = Annotated[
    Path | None,
    Opt("--out", metavar="DIR", help="Study folder [studies/DATASET; with --stage base studies/DATASET_base_SPACE]."),
]
Store = Annotated[Path | None, Opt("--store", metavar="DIR", help="Where computed runs are kept [OUT/store].")]
Concurrent = Annotated[int | None, Opt("--max-concurrent", metavar="N", help="Trials at a time.")]
Cpus = Annotated[int, Opt("--cpus-per-trial", metavar="N", help="Cores of a trial.")]
Gpus = Annotated[float | None, Opt("--gpus-per-trial", metavar="F", help="GPUs of a trial: 1/n or a whole number.")]
Ray = Annotated[str | None, Opt("--ray-address", metavar="ADDR", help="A Ray cluster [a local one].")]
Uri = Annotated[str | None, Opt("--tracking-uri", metavar="URI", help="MLflow store [sqlite in the study folder].")]
DryRun = Annotated[bool, Opt("--dry-run", help="Print what would be computed and stop.")]
MOST_SEEDS = 1000
AS_GIVEN = (
    *("trials", "sampler", "tracking_uri", "ray_address", "max_concurrent", "cpus_per_trial", "gpus_per_trial"),
)
"""Options that mean the same in a request."""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("tune", cls=OverrideCommand)(tune)


def tune(
    ctx: typer.Context,
    dataset: common.Dataset = None,
    space: SpaceFile = None,
    algorithm: Algorithms = None,
    trials: Trials = None,
    seeds: Seeds = None,
    sampler: Sampler = "tpe",
    selection: Selection = None,
    seed: SearchSeed = 0,
    config: common.ConfigFile = None,
    profile: common.Profile = None,
    data_dir: common.DataDir = None,
    out: Out = None,
    store: Store = None,
    device: common.Device = "auto",
    stage: stages.Stage = None,
    confirm_seeds: stages.ConfirmSeeds = None,
    confirm_top: stages.ConfirmTop = None,
    lr_drop: stages.LrDrop = None,
    control: stages.ControlArm = None,
    race: stages.Race = False,
    futility: stages.FutilityRule = None,
    max_failures: stages.MaxFailures = 0,
    optuna_storage: stages.OptunaStorage = None,
    snapshot_rounds: stages.SnapshotRounds = None,
    log_models: stages.LogModels = "best",
    plugin: plugged.Plugin = None,
    max_concurrent: Concurrent = None,
    cpus_per_trial: Cpus = 1,
    gpus_per_trial: Gpus = None,
    ray_address: Ray = None,
    tracking_uri: Uri = None,
    dry_run: DryRun = False,
    json_output: common.JsonOutput = False,
) -> int:
    """Search FedReLa's settings on one dataset.

    The same command continues a study; a larger --trials extends it.
    """
    faults = common.scanned(ctx)
    common.attempt(faults, "cpu", lambda: common.choose_device(device))
    size, why = common.attempt(faults, common.SMALL, lambda: common.choose_size(profile, device))
    wanted_seeds = common.attempt(faults, None, lambda: None if seeds is None else parse_seeds(seeds))
    budgets = stages.budgets(ctx.params, parse_seeds, faults)
    layers = Layers(dataset, size, config, overrides_with(overrides_of(ctx), selection, faults))
    base_only = budgets["stages"] == ("base",)
    chosen, bases, name = common_ground(layers, space, algorithm, faults, base_only)
    from fedrela_bench.algorithms import ALGORITHMS
    from fedrela_bench.study.request import TuneRequest

    faults += chosen.condition_faults(sorted(ALGORITHMS))

    request = TuneRequest(
        bases=bases,
        space=chosen,
        out=out or Path("studies") / (f"{name}_base_{chosen.name}" if base_only else name),
        dataset=name,
        data_dir=data_dir,
        store=store,
        seeds=wanted_seeds,
        search_seed=seed,
        device=cast(Literal["auto", "cpu", "cuda"], device if device in ("cpu", "cuda") else "auto"),
        progress="quiet" if json_output else "auto",
        command=plugged.command_line(),
        **{name: ctx.params[name] for name in AS_GIVEN},
        **budgets,
    )
    if faults:
        raise ConfigError(list(dict.fromkeys([*faults, *request_faults(request)])))
    notes = study_notes(layers, request)
    common.tell(why, *(f"note: {note}" for note in notes), to_stderr=json_output)
    return _plan(request, json_output) if dry_run else _search(request, json_output)


def _search(request: TuneRequest, as_json: bool) -> int:
    from fedrela_bench.study.output import render_text
    from fedrela_bench.study.runner import tune as run_study

    result = run_study(request)
    _report(request, result)
    print(json.dumps(result.to_json()) if as_json else render_text(result), flush=True)
    return int(result.exit_code)


def _report(request: TuneRequest, result: StudyResult) -> None:
    """The report stage: tables of the study beside what it was compared with."""
    if "report" not in request.stages or result.status != "finished" or not result.trials:
        return
    from fedrela_bench.cli.training_data import default_options, training_data_reader
    from fedrela_bench.reporting.report import render_report
    from fedrela_bench.tracking.mlflow_sink import attach_report

    try:
        read = training_data_reader(request.data_dir)
        made = render_report(request.out, uri=request.uri, read=read, options=default_options)
        result.report = [str(path) for path in made.files]
        common.tell(*(f"note: {text}" for text in made.failed), to_stderr=True)
        attach_report(request.out, made.files, request.uri)
    except BenchError as error:
        result.warnings.append(f"no report ({error}); `{result.report_command}` writes it")


def _plan(request: TuneRequest, as_json: bool) -> int:
    from fedrela_bench.study.forecast import forecast
    from fedrela_bench.study.preflight import CONCURRENT, preflight

    checked = preflight(request)
    costs = forecast(checked.plan, request.max_concurrent or CONCURRENT)
    timed = hours_of(request, costs)
    plan = plan_of(request, costs)
    plan |= {"hours": None, "slots": None, "relative_seconds": None}
    if timed is not None:
        relative = {name: round(factor, 3) for name, factor in timed.relative.items()}
        plan |= {"hours": round(timed.hours, 4), "slots": timed.slots, "relative_seconds": relative}
    if as_json:
        print(json.dumps(plan))
        return 0
    common.tell(
        f"study: {plan['out']}",
        *(f"data: {note}" for note in checked.plan.data_notes),
        *(f"  {line}" for line in request.space.describe()),
        *_stage_lines(plan, request.base_only),
        f"cost: {plan['full_runs']:.1f} full runs, {plan['full_runs_trunks_only']:.1f} if only baselines were shared, "
        f"{plan['full_runs_without_forks']:.0f} if nothing was",
        f"disk: at most {plan['disk_bytes'] / 2**20:.0f} MiB",
        timed.text() if timed else "time: unknown, no trial can be timed on this machine",
        "nothing was started (--dry-run)",
    )
    return 0


def _stage_lines(plan: dict[str, Any], base_only: bool) -> Iterator[str]:
    """What each stage that runs computes."""
    seeds = ", ".join(map(str, plan["baseline_seeds"]))
    if plan["baselines"]:
        whose = f"{', '.join(plan['algorithms'])} x {'seed' if ',' not in seeds else 'seeds'} {seeds}"
        yield f"baselines: {counted(plan['baselines'], 'full run')} ({whose})"
    if plan["trials"]:
        each = " of each algorithm" if base_only else ""
        runs = counted(plan["cells"], "full run") if base_only else counted(plan["cells"], "fork")
        over = counted(len(plan["seeds"]), "seed")
        yield f"trials: {counted(plan['trials'], 'configuration')}{each} x {over} = {runs}"
    if plan["confirmed"]:
        over = counted(len(plan["confirm_seeds"]), "seed")
        more = counted(round(plan["confirm_full_runs"], 1), "full run")
        yield f"confirmation: {counted(plan['confirmed'], 'configuration')} x {over}, about {more} more"


def plan_of(request: TuneRequest, costs: Forecast) -> dict[str, Any]:
    """What a study computes and writes at most."""
    seeds, trunk_seeds = list(request.search_seeds), list(request.trunk_seeds)
    searched = request.base_only or "search" in request.stages
    trials = min(request.target, request.space.size() or request.target) if searched else 0
    cells = trials * len(seeds) * (len(request.bases) if request.base_only else 1)
    return {
        "out": str(request.out),
        "dataset": request.dataset,
        "algorithms": list(request.bases),
        "seeds": seeds,
        "baseline_seeds": trunk_seeds,
        "trials": trials,
        "space_points": request.space.size(),
        "baselines": len(request.bases) * len(trunk_seeds),
        "cells": cells,
        "confirmed": costs.confirmed,
        "confirm_seeds": list(request.final_seeds) if costs.confirmed else [],
        "full_runs": round(costs.full_runs, 2),
        "confirm_full_runs": round(costs.confirm_runs, 2),
        "full_runs_trunks_only": round(costs.trunks_only, 2),
        "full_runs_without_forks": costs.unshared,
        "disk_bytes": costs.disk,
    }


def parse_seeds(text: str, option: str = "--seeds") -> tuple[int, ...]:
    """``3`` is the seeds 1, 2, 3; ``1,5,7`` are those; `option` is named in messages.

    Raises:
        ConfigError: anything else, or a seed twice.
    """
    try:
        values = [int(part) for part in text.split(",") if part.strip() or "," not in text]
    except ValueError:
        raise ConfigError(f"{option} {text}: give a number of seeds (3) or a list (1,2,3)") from None
    if "," not in text:
        values = list(range(1, min(values[0], MOST_SEEDS + 1) + 1))
    if len(values) > MOST_SEEDS:
        raise ConfigError(f"{option} {text}: at most {MOST_SEEDS} seeds; such as 3 or 1,2,3")
    if not values or min(values) < 0 or len(set(values)) < len(values):
        raise ConfigError(f"{option} {text}: needs at least one seed, none negative, none twice; such as 3 or 1,2,3")
    return tuple(values)
