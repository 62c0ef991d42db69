"""`fedrela-bench report`, `ui` and `sync`: look at a study."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from fedrela_bench.cli.command import BenchCommand
from fedrela_bench.cli.common import tell
from fedrela_bench.errors import ConfigError, RunError


def _folder(text: str) -> Path:
    if not text.strip():
        raise typer.BadParameter("the folder's name is empty; give the folder that `tune --out` wrote")
    return Path(text)


StudyFolder = Annotated[Path, typer.Argument(metavar="STUDY", help="The folder that tune wrote.", parser=_folder)]
TrackingUri = Annotated[
    str | None, typer.Option("--tracking-uri", metavar="URI", help="MLflow store [the one the study recorded].")
]


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command("report", cls=BenchCommand)(report)
    app.command("ui", cls=BenchCommand)(ui)
    app.command("sync", cls=BenchCommand)(sync)


def report(
    what: Annotated[str, typer.Argument(metavar="STUDY_OR_SPEC", help="A study's folder, or a report spec.")],
    spec: Annotated[str | None, typer.Option("--spec", metavar="SPEC", help="Report spec beside a study.")] = None,
    study: Annotated[Path | None, typer.Option("--study", metavar="DIR", help="Study beside a spec.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where to write [STUDY/report].")] = None,
    formats: Annotated[str, typer.Option("--format", metavar="md,csv,tex", help="Formats to write.")] = "md,csv,tex",
    tracking_uri: TrackingUri = None,
) -> int:
    """Mean ± std over seeds with paired differences, as Markdown, CSV and LaTeX.

    For example: report STUDY, or report reports/paper_table14.yaml --study STUDY.
    """
    from fedrela_bench.reporting.render import check_formats, markdown
    from fedrela_bench.reporting.report import STUDY_SPEC, render_report

    wanted = check_formats(formats)
    folder, name = _study_and_spec(what, spec, study)
    made = render_report(folder, name or STUDY_SPEC, out, wanted, tracking_uri)
    print(markdown(made.table))
    tell(*(f"written: {path}" for path in made.files))
    return 0


def _study_and_spec(what: str, spec: str | None, study: Path | None) -> tuple[Path, str | None]:
    if not what.strip():
        raise ConfigError("report was given an empty name; give the folder that `tune --out` wrote, or a spec")
    if Path(what).is_dir():
        if study is not None:
            raise ConfigError(f"{what} is a study already; leave out --study, or give a spec first")
        return Path(what), spec
    if spec is not None:
        raise ConfigError(f"{what}: no such study folder; give the folder that `tune --out` wrote before --spec")
    if study is None and not what.endswith((".yaml", ".yml")) and "/" in what:
        raise ConfigError(f"{what}: no such study folder; give the folder that `tune --out` wrote")
    from fedrela_bench.reporting.spec import find_spec

    found = find_spec(what)
    if study is None:
        raise ConfigError(f"{what} is a report spec; add --study DIR with the study whose numbers it shall show")
    return study, str(found)


def ui(
    study: StudyFolder,
    port: Annotated[int, typer.Option("--port", metavar="N", help="Port of the server.", min=1, max=65535)] = 5000,
    tracking_uri: TrackingUri = None,
) -> int:
    """Open MLflow's UI on a study; Ctrl-C ends it."""
    from fedrela_bench.tracking import ui_command

    arguments, environment = ui_command(study, tracking_uri, port)
    tell(f"MLflow is starting on http://127.0.0.1:{port} (Ctrl-C ends it)")
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
