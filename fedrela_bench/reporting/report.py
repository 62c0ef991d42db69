"""Render a report of a study: tables in the formats asked for, then its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrela_bench.errors import ConfigError
from fedrela_bench.reporting.arms import usable
from fedrela_bench.reporting.build import build_table, table_arms
from fedrela_bench.reporting.figures import curves, draw_curves, draw_pareto, pareto_points
from fedrela_bench.reporting.render import write_table
from fedrela_bench.reporting.source import StudyRuns, continue_command, read_study
from fedrela_bench.reporting.spec import ReportSpec, find_spec, load_spec
from fedrela_bench.reporting.table import Table

STUDY_SPEC = "study"


@dataclass(frozen=True)
class Report:
    """What was rendered."""

    table: Table
    files: tuple[Path, ...]


def render_report(
    study: Path,
    spec: str | Path = STUDY_SPEC,
    out: Path | None = None,
    formats: Sequence[str] = ("md", "csv", "tex"),
    uri: str | None = None,
) -> Report:
    """Read a study and write one report; the same study gives the same bytes.

    Args:
        study: the folder that `tune` wrote.
        spec: path of a report spec, or the name of a shipped one.
        out: folder to write to; by default ``report`` inside the study.
        formats: of md, csv, tex.
        uri: the MLflow store, where it is not the recorded one.

    Raises:
        ConfigError: faults of the spec, a study of another dataset, or one without a finished run.
        StoreError: the study's MLflow store cannot be read.
    """
    wanted, published = load_spec(spec)
    runs = read_study(study, uri)
    _require_finished(runs, study)
    table = build_table(runs, wanted, published)
    folder, stem = out or study / "report", find_spec(spec).stem
    try:
        files = write_table(table, folder, stem, formats)
        files += _draw(runs, wanted, folder, stem)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written ({error.strerror}); choose another --out") from None
    return Report(table, tuple(files))


def _require_finished(runs: StudyRuns, study: Path) -> None:
    if usable(runs.frame, None).empty:
        states = runs.frame["status"].where(runs.frame["status"] != "", runs.frame["run_status"].str.lower())
        shown = ", ".join(f"{count} {state}" for state, count in sorted(states.value_counts().items()))
        raise ConfigError(f"{study} has no finished run yet ({shown}); continue with: {continue_command(study)}")


def _draw(runs: StudyRuns, spec: ReportSpec, folder: Path, stem: str) -> list[Path]:
    written = []
    if "curves" in spec.figures:
        arms = table_arms(runs, spec)
        for metric in spec.metrics or ("overall",):
            path = folder / f"{stem}_{metric}.png"
            draw_curves(curves(runs, arms, f"{spec.split}/{metric}"), f"{spec.split}/{metric}", path)
            written.append(path)
    if "pareto" in spec.figures and len(runs.objectives) > 1:
        path = folder / f"{stem}_pareto.png"
        draw_pareto(pareto_points(runs, spec.round_rule), runs.objectives, path)
        written.append(path)
    return written
