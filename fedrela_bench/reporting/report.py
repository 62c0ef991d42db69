"""Render a report of a study: tables in the formats asked for, then its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrela_bench.errors import ConfigError
from fedrela_bench.reporting.arms import usable
from fedrela_bench.reporting.build import build_table
from fedrela_bench.reporting.defaults import OptionReader, with_defaults
from fedrela_bench.reporting.evidence import DataReader
from fedrela_bench.reporting.gather import no_runs, read_studies, study_folders
from fedrela_bench.reporting.grid import build_grid, setting_runs, setting_spec
from fedrela_bench.reporting.pictures import Drawn, draw_figures
from fedrela_bench.reporting.published import Published
from fedrela_bench.reporting.render import FORMATS, write_table
from fedrela_bench.reporting.select import DAGGER
from fedrela_bench.reporting.source import StudyRuns, continue_command
from fedrela_bench.reporting.spec import ReportSpec, find_spec, load_spec
from fedrela_bench.reporting.table import Table
from fedrela_bench.reporting.view import View, slug

STUDY_SPEC = "study"


@dataclass(frozen=True)
class Report:
    """What was rendered."""

    table: Table
    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()
    """Figures that are left out, and why."""
    failed: tuple[str, ...] = ()
    """Those of them that could not be drawn."""


def render_report(
    studies: Path | Sequence[Path],
    spec: str | Path = STUDY_SPEC,
    out: Path | None = None,
    formats: Sequence[str] = FORMATS,
    uri: str | None = None,
    view: View | None = None,
    read: DataReader | None = None,
    options: OptionReader | None = None,
) -> Report:
    """Read one or several studies and write one report; the same studies give the same bytes.

    Args:
        studies: folders that `tune` wrote, or folders of such; none: the published numbers alone.
        spec: path of a report spec, or the name of a shipped one.
        out: folder to write to; by default ``report`` inside the first folder.
        formats: of `render.RENDERERS`.
        uri: the MLflow store, where it is not the recorded one.
        view: which settings are shown, and how.
        read: reads the training data of a recorded configuration, for figures that show images.
        options: tells the defaults of an algorithm's options, which runs do not record.

    Raises:
        ConfigError: faults of the spec, a study of another dataset, or one without a finished run.
        StoreError: the studies' MLflow store cannot be read.
    """
    folders = [studies] if isinstance(studies, Path) else list(studies)
    loaded, published = load_spec(spec)
    wanted = (view or View()).of(loaded)
    runs = with_defaults(read_studies(folders, uri), options) if folders else no_runs()
    table = _table(runs, wanted, published, folders)
    folder, stem = out or (folders[0] if folders else Path()) / "report", find_spec(spec).stem
    try:
        # First without figures: whatever happens while those are drawn, the numbers are there.
        write_table(table, folder, stem, formats)
        drawn = _figures(runs, wanted, folder, stem, published, read)
        mark = f" {DAGGER}" if any(note.startswith(DAGGER) for note in table.notes) else ""
        pictures = [(path.name, f"{caption}{mark}") for path, caption in drawn.files.items()]
        files = [*write_table(table, folder, stem, formats, pictures, drawn.left_out), *drawn.files]
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written ({error.strerror}); choose another --out") from None
    return Report(table, tuple(files), drawn.left_out, drawn.failed)


def _table(runs: StudyRuns, spec: ReportSpec, published: Published | None, folders: Sequence[Path]) -> Table:
    if folders and len(study_folders(folders[0])) == len(folders) == 1:
        _require_finished(runs, folders[0])
    if spec.settings:
        return build_grid(runs, spec, published)
    if len(folders) != 1 or len(study_folders(folders[0])) != 1:
        raise ConfigError("this report is about one study; give one --study DIR, or a spec with `settings`")
    return build_table(runs, spec, published)


def _figures(
    runs: StudyRuns,
    spec: ReportSpec,
    folder: Path,
    stem: str,
    published: Published | None,
    read: DataReader | None,
) -> Drawn:
    """The figures of a spec, or of each of its settings that has runs."""
    if not spec.settings:
        return draw_figures(runs, spec, folder, stem, published, read)
    files: dict[Path, str] = {}
    left_out: list[str] = []
    failed: list[str] = []
    several = len(spec.settings) > 1
    for setting in spec.settings:
        own, name = setting_runs(runs, setting), f"{stem}_{slug(setting.title)}" if several else stem
        before = f"{setting.title}: " if several else ""
        if not usable(own.frame, None).empty:
            made = draw_figures(own, setting_spec(spec, setting), folder, name, published, read)
            files |= {path: f"{before}{caption}" for path, caption in made.files.items()}
            left_out += [f"{before}{text}" for text in made.left_out]
            failed += [f"{before}{text}" for text in made.failed]
    return Drawn(files, tuple(left_out), tuple(failed))


def _require_finished(runs: StudyRuns, study: Path) -> None:
    if usable(runs.frame, None).empty:
        states = runs.frame["status"].where(runs.frame["status"] != "", runs.frame["run_status"].str.lower())
        shown = ", ".join(f"{count} {state}" for state, count in sorted(states.value_counts().items()))
        raise ConfigError(f"{study} has no finished run yet ({shown}); continue with: {continue_command(study)}")
