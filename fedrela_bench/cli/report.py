"""`fedrela-bench report`, `ui` and `sync`: look at a study."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from fedrela_bench.cli import common, plugged, stages, tune
from fedrela_bench.cli.command import BenchCommand, OverrideCommand, overrides_of
from fedrela_bench.cli.common import tell
from fedrela_bench.errors import ConfigError, RunError


def _folder(text: str) -> Path:
    if not text.strip():
        raise typer.BadParameter("the folder's name is empty; give the folder that `tune --out` wrote")
    return Path(text)


Opt = typer.Option
StudyFolder = Annotated[Path, typer.Argument(metavar="STUDY", help="The folder that tune wrote.", parser=_folder)]
TrackingUri = Annotated[str | None, Opt("--tracking-uri", metavar="URI", help="MLflow store [the one recorded].")]
What = Annotated[str | None, typer.Argument(metavar="STUDY_OR_SPEC", help="A study's folder, or a report spec.")]
Spec = Annotated[str | None, Opt("--spec", metavar="SPEC", help="Report spec beside a study.")]
Studies = Annotated[
    list[Path] | None,
    Opt("--study", metavar="DIR", help="Study, or folder of studies, beside a spec; may be repeated."),
]
Out = Annotated[
    Path | None, Opt("--out", metavar="DIR", help="Where to write [STUDY/report]; of --plan and --run: studies/SPEC.")
]
Formats = Annotated[str, Opt("--format", metavar="LIST", help="Of md,csv,tex,html [all].")]
Listing = Annotated[bool, Opt("--list", help="Name the specs that come with the package.")]
PlanOnly = Annotated[bool, Opt("--plan", help="Say which of the spec's runs are there and what the others take.")]
RunIt = Annotated[bool, Opt("--run", help="Compute the spec's runs that are missing, then report.")]
Published = Annotated[bool, Opt("--published", help="The published numbers alone; needs no study.")]
Settings = Annotated[
    list[str] | None, Opt("--setting", metavar="NAME", help="Only this setting, block or group; may be repeated.")
]
Parts = Annotated[str | None, Opt("--show", metavar="LIST", help="Of value, gain, published, gain_published.")]
Stacked = Annotated[bool, Opt("--stacked", help="Settings below each other instead of side by side.")]
OF_RUNS = (
    *("profile", "dataset", "seeds", "store", "snapshot_rounds", "max_concurrent", "cpus_per_trial"),
    *("gpus_per_trial", "ray_address"),
)
"""Options that say how runs are computed."""


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command("report", cls=OverrideCommand)(report)
    app.command("ui", cls=BenchCommand)(ui)
    app.command("sync", cls=BenchCommand)(sync)


def report(
    ctx: typer.Context,
    what: What = None,
    spec: Spec = None,
    study: Studies = None,
    out: Out = None,
    formats: Formats = "md,csv,tex,html",
    tracking_uri: TrackingUri = None,
    listing: Listing = False,
    plan: PlanOnly = False,
    run: RunIt = False,
    published: Published = False,
    setting: Settings = None,
    show: Parts = None,
    stacked: Stacked = False,
    json_output: common.JsonOutput = False,
    profile: common.Profile = None,
    dataset: common.Dataset = None,
    data_dir: common.DataDir = None,
    seeds: tune.Seeds = None,
    store: tune.Store = None,
    device: common.Device = "auto",
    plugin: plugged.Plugin = None,
    snapshot_rounds: stages.SnapshotRounds = None,
    max_concurrent: tune.Concurrent = None,
    cpus_per_trial: tune.Cpus = 1,
    gpus_per_trial: tune.Gpus = None,
    ray_address: tune.Ray = None,
) -> int:
    """Mean ± std over seeds, paired differences, published numbers; --run computes what a spec lacks.

    Options from --profile on, and dotted overrides, say how --plan and --run compute.
    """
    if listing or (what == "list" and not Path(what).exists()):
        return _list(json_output)
    from fedrela_bench.reporting.render import check_formats
    from fedrela_bench.reporting.view import View, parse_show

    faults, nothing = [*common.scanned(ctx), *_mixed(ctx)], list[str]()
    wanted = common.attempt(faults, nothing, lambda: check_formats(formats))
    parts = common.attempt(faults, None, lambda: None if show is None else parse_show(show))
    if faults:
        raise ConfigError(list(dict.fromkeys(faults)))
    view = View(tuple(setting or ()), parts, stacked, dataset)
    if plan or run:
        from fedrela_bench.cli.reportruns import plan_or_run

        return plan_or_run(ctx, _spec(what), view, wanted)
    folders, name = ([], _spec(what)) if published else _sources(what, spec, study)
    return _render(folders, name, view, wanted, ctx)


def _render(folders: list[Path], name: str, view: Any, formats: list[str], ctx: typer.Context) -> int:
    from fedrela_bench.cli.training_data import report_of
    from fedrela_bench.reporting.render import on_stdout, table_json

    out: Path | None = ctx.params["out"]
    if out is None and not folders:
        out = Path("studies") / Path(name).stem / "report"
    as_json, made = bool(ctx.params["json_output"]), report_of(ctx, folders, name, view, formats, out)
    files = [str(path) for path in made.files]
    values = {"table": table_json(made.table), "files": files, "left_out": list(made.notes)}
    print(json.dumps(values) if as_json else on_stdout(made.table))
    tell(*(f"written: {path}" for path in files), *made.notes, to_stderr=as_json)
    tell(*(f"note: {text}" for text in made.failed if not as_json), to_stderr=True)
    return 0


def _list(as_json: bool) -> int:
    from fedrela_bench.reporting.spec import list_specs

    specs = list_specs()
    width = max(len(name) for name in specs)
    print(json.dumps(specs) if as_json else "\n".join(f"{name:<{width}}  {title}" for name, title in specs.items()))
    return 0


def _mixed(ctx: typer.Context) -> Iterator[str]:
    """Options that have no meaning together."""
    given, runs = ctx.params, ctx.params["plan"] or ctx.params["run"]
    if given["plan"] and given["run"]:
        yield "--plan says what --run would compute; give one of them"
    if given["published"] and (runs or given["study"]):
        yield "--published shows no runs; leave out --study, --plan and --run"
    if runs and (given["study"] or given["spec"]):
        yield "--plan and --run take a spec as first argument and studies from --out; leave out --study and --spec"
    if runs:
        return
    for name in OF_RUNS:
        if given[name] != (1 if name == "cpus_per_trial" else None):
            yield f"--{name.replace('_', '-')} is about runs to compute; add --plan or --run"
    for name in overrides_of(ctx):
        yield f"--{name} is about runs to compute; add --plan or --run"


def _spec(what: str | None) -> str:
    if what is None or not what.strip():
        raise ConfigError("report was given no spec; give the name of one (--list has them) or a file")
    from fedrela_bench.reporting.spec import find_spec

    return str(find_spec(what))


def _sources(what: str | None, spec: str | None, studies: list[Path] | None) -> tuple[list[Path], str]:
    """Folders of studies, and the spec."""
    from fedrela_bench.reporting.report import STUDY_SPEC
    from fedrela_bench.reporting.spec import find_spec

    if what is None or not what.strip():
        raise ConfigError(
            "report was given an empty name; give the folder that `tune --out` wrote, or a spec (--list has them)"
        )
    if Path(what).is_dir():
        if studies:
            raise ConfigError(f"{what} is a study already; leave out --study, or give a spec first")
        return [Path(what)], spec or STUDY_SPEC
    if spec is not None:
        raise ConfigError(f"{what}: no such study folder; give the folder that `tune --out` wrote before --spec")
    if not studies and not what.endswith((".yaml", ".yml")) and "/" in what:
        raise ConfigError(f"{what}: no such study folder; give the folder that `tune --out` wrote")
    found = find_spec(what)
    made = Path("studies") / found.stem
    if not studies and not list(made.glob("*/study.json")):
        raise ConfigError(
            f"{what} is a report spec; add --study DIR with the study whose numbers it shall show, or --plan to see "
            "which runs it needs"
        )
    return studies or [made], str(found)


def ui(
    study: StudyFolder,
    port: Annotated[int, typer.Option("--port", metavar="N", help="Port of the server.", min=1, max=65535)] = 5000,
    tracking_uri: TrackingUri = None,
) -> int:
    """Open MLflow's UI on a study; Ctrl-C ends it."""
    from fedrela_bench.tracking import ui_address, ui_command

    arguments, environment = ui_command(study, tracking_uri, port)
    tell(f"MLflow is starting on {ui_address(study, tracking_uri, port)} (Ctrl-C ends it)")
    server = subprocess.Popen(arguments, env={**os.environ, **environment})
    try:
        code = server.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        server.terminate()
        server.wait()
    if code:
        raise RunError(f"the MLflow server ended with code {code}; if port {port} is in use, give another --port")
    return 0


def sync(
    study: StudyFolder,
    tracking_uri: TrackingUri = None,
) -> int:
    """Write to MLflow what a study has computed and MLflow lacks, as after an outage; nothing is logged twice."""
    from fedrela_bench.tracking.mlflow_sink import sync as complete

    counts = complete(study, tracking_uri)
    tell(f"{counts['runs']} runs in MLflow, {counts['points']} points added")
    return 0
