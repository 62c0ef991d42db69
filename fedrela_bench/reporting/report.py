"""Render a report of a study: tables in the formats asked for, then its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrela_bench.errors import ConfigError
from fedrela_bench.reporting.arms import usable
from fedrela_bench.reporting.build import build_table, groups_of, table_arms
from fedrela_bench.reporting.curves import curves, curves_title, draw_curves
from fedrela_bench.reporting.plane import draw_pareto, pareto_points, plane_texts
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
        drawn = draw_figures(runs, wanted, folder, stem)
        pictures = [(path.name, caption) for path, caption in drawn.items()]
        files = [*write_table(table, folder, stem, formats, pictures), *drawn]
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written ({error.strerror}); choose another --out") from None
    return Report(table, tuple(files))


def _require_finished(runs: StudyRuns, study: Path) -> None:
    if usable(runs.frame, None).empty:
        states = runs.frame["status"].where(runs.frame["status"] != "", runs.frame["run_status"].str.lower())
        shown = ", ".join(f"{count} {state}" for state, count in sorted(states.value_counts().items()))
        raise ConfigError(f"{study} has no finished run yet ({shown}); continue with: {continue_command(study)}")


def draw_figures(runs: StudyRuns, spec: ReportSpec, folder: Path, stem: str) -> dict[Path, str]:
    """Draw the figures of a spec as ``<folder>/<stem>_<what>.png``; path to caption.

    Without metrics in the spec: overall, and tail or minority; what was not measured is not drawn.
    """
    drawn: dict[Path, str] = {}
    arms = table_arms(runs, spec) if "curves" in spec.figures else []
    for metric in spec.metrics or _first_and_rarest(runs):
        name = f"{spec.split}/{metric}"
        found = curves(runs, arms, name)
        if found:
            path = folder / f"{stem}_{metric}.png"
            draw_curves(found, name, curves_title(runs, arms, found, name), path)
            drawn[path] = f"{metric} accuracy per round"
    points = pareto_points(runs, spec.round_rule) if "pareto" in spec.figures and len(runs.objectives) > 1 else []
    if points:
        path = folder / f"{stem}_pareto.png"
        draw_pareto(points, plane_texts(runs, points), path)
        drawn[path] = "the search: Pareto front per algorithm"
    return drawn


def _first_and_rarest(runs: StudyRuns) -> tuple[str, str]:
    groups = groups_of(runs)
    return groups[0], groups[-1]
