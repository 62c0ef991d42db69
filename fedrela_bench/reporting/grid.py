"""A table over several settings: blocks of rows, groups of columns, each setting's part made as a table of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from fedrela_bench.errors import ConfigError
from fedrela_bench.reporting.arms import Arm, build_arms, filtered
from fedrela_bench.reporting.build import build_table
from fedrela_bench.reporting.gridnotes import facts_of, notes_of
from fedrela_bench.reporting.otherheads import OTHER_HEAD
from fedrela_bench.reporting.published import Published
from fedrela_bench.reporting.select import COUNTS, RoundRule
from fedrela_bench.reporting.settings import SettingSpec
from fedrela_bench.reporting.source import StudyRuns
from fedrela_bench.reporting.spec import ReportSpec, RowSpec, Show
from fedrela_bench.reporting.standing import with_average_ranks
from fedrela_bench.reporting.stats import summarize
from fedrela_bench.reporting.table import BLOCK, Cell, Column, Kind, Measure, Table
from fedrela_bench.reporting.view import slug

SUFFIX: dict[Show, str] = {
    "value": "",
    "gain": "_gain",
    "published": "_published",
    "gain_published": "_gain_published",
}
KIND: dict[Show, Kind] = {"value": "measure", "gain": "gain", "published": "published", "gain_published": "published"}
NAMES = {"relabeled_per_client": "relabelled per client"}


@dataclass(frozen=True)
class Line:
    """One row of the spec in one setting.

    Attributes:
        label: what readers see.
        marks: of the label, such as that for few seeds.
        n: seeds; None without runs.
        cells: by column key of a table of this setting alone.
    """

    label: str
    marks: str
    n: int | None
    cells: dict[str, Cell]


@dataclass(frozen=True)
class Part:
    """A setting's rows that share round rule and head, as a table of its own."""

    setting: SettingSpec
    rule: RoundRule
    head: str | None
    rows: tuple[int, ...]
    """Their places among the rows of the spec."""
    table: Table
    lines: tuple[Line, ...]

    @property
    def empty(self) -> bool:
        """Whether no run fits any of them."""
        return all(line.n is None for line in self.lines)


def build_grid(runs: StudyRuns, spec: ReportSpec, published: Published | None = None) -> Table:
    """The table that a spec with settings describes; what was not measured is a dash.

    Args:
        runs: of all studies together.
        spec: with settings, as `specfile.incoherent` wants it.
        published: the numbers that `spec.reference` names.

    Raises:
        ConfigError: a row fits several configurations in one setting.
    """
    parts = [part for setting in spec.settings for part in _parts(runs, spec, setting, published)]
    known = {(part.setting.title, row): line for part in parts for row, line in zip(part.rows, part.lines, strict=True)}
    blocks = list(dict.fromkeys(setting.block for setting in spec.settings))
    columns, ranks = list(_columns(spec)), _ranks(spec, known)
    rows = tuple(row for block in blocks for row in _block(spec, block, columns, known, ranks))
    heading = (*([Column(BLOCK, "setting")] if len(blocks) > 1 else []), Column("arm", "arm"))
    filled = [part.table for part in parts if not part.empty]
    return Table(
        title=spec.title,
        columns=(*heading, *(column for _, _, column in columns), *ranks.columns, Column("n", "n", "count")),
        rows=rows if len(blocks) > 1 else tuple(row[1:] for row in rows),
        facts=tuple(facts_of(parts, spec)) if filled else (),
        notes=(*notes_of(parts, spec), *ranks.notes),
        summary=filled[0].summary if filled else "Published numbers, in %.",
    )


@dataclass(frozen=True)
class _Ranks:
    """Average ranks of the spec's rows over all settings: columns, and cells by row."""

    columns: tuple[Column, ...]
    cells: dict[int, tuple[Cell, ...]]
    notes: tuple[str, ...]


def _ranks(spec: ReportSpec, known: dict[tuple[str, int], Line]) -> _Ranks:
    titles = [setting.title for setting in spec.settings]
    metrics = [metric for metric in spec.metrics or () if metric not in COUNTS and "value" in spec.show]
    measured = [place for place in range(len(spec.rows)) if any(known[title, place].n for title in titles)]
    columns = [Column(f"{title}_{metric}", title, "measure") for metric in metrics for title in titles]
    rows = [
        (known[titles[0], place].label, *(known[title, place].cells[m] for m in metrics for title in titles))
        for place in measured
    ]
    plain = Table("", (Column("arm", "arm"), *columns), tuple(rows), ())
    places = {m: {t: 1 + at * len(titles) + n for n, t in enumerate(titles)} for at, m in enumerate(metrics)}
    ranked = with_average_ranks(plain, places)
    width = len(plain.columns)
    cells = {place: row[width:] for place, row in zip(measured, ranked.rows, strict=True)}
    return _Ranks(ranked.columns[width:], cells, ranked.notes)


def setting_runs(runs: StudyRuns, setting: SettingSpec) -> StudyRuns:
    """The runs that belong to a setting."""
    return replace(runs, dataset=setting.dataset or runs.dataset, frame=filtered(runs.frame, setting.filters()))


def setting_spec(spec: ReportSpec, setting: SettingSpec, rows: Sequence[RowSpec] | None = None) -> ReportSpec:
    """What a report over settings says about one of them, as a report of a single study."""
    reference = spec.reference
    if reference is not None:
        reference = reference.model_copy(update={"where": {**reference.where, **setting.reference}})
    title = f"{spec.title}: {setting.title}" if len(spec.settings) > 1 else spec.title
    kept = spec.rows if rows is None else tuple(rows)
    changes = {"title": title, "settings": (), "runs": None, "reference": reference, "rows": kept}
    return spec.model_copy(update=changes)


def _parts(runs: StudyRuns, spec: ReportSpec, setting: SettingSpec, published: Published | None) -> Iterator[Part]:
    own = setting_runs(runs, setting)

    def kind(place: int) -> tuple[str, str]:
        return spec.rows[place].round_rule or spec.round_rule, spec.rows[place].head or ""

    for (rule, head), places in groupby(sorted(range(len(spec.rows)), key=kind), key=kind):
        numbers = tuple(places)
        # A row must stand in every setting of its block; whole rows without runs are left out later.
        rows = [spec.rows[place].model_copy(update={"optional": False}) for place in numbers]
        alone = setting_spec(spec, setting, rows)
        metrics = tuple(_of_head(metric, head) for metric in spec.metrics or () if metric not in COUNTS)
        alone = alone.model_copy(update={"metrics": metrics, "round_rule": rule, "notes": ()})
        yield _part(own, spec, alone, setting, numbers, published, head or None)


def _of_head(metric: str, head: str) -> str:
    return f"{metric}{OTHER_HEAD}{head}" if head else metric


def _part(
    runs: StudyRuns,
    spec: ReportSpec,
    alone: ReportSpec,
    setting: SettingSpec,
    numbers: tuple[int, ...],
    published: Published | None,
    head: str | None,
) -> Part:
    try:
        table = build_table(runs, alone, published)
    except ConfigError as error:
        raise ConfigError([f"{setting.title}: {fault}" for fault in error.faults]) from None
    keys = [column.key.replace(f"{OTHER_HEAD}{head}", "") for column in table.columns]
    counts = [metric for metric in spec.metrics or () if metric in COUNTS]
    arms = build_arms(runs, alone) if counts else []
    lines = []
    for place, (row, values) in enumerate(zip(alone.rows, table.rows, strict=True)):
        cells = dict(zip(keys, values, strict=True))
        for metric in counts:
            cells |= _count(runs, alone, arms[place], metric, published)
        label = f"{row.name}{f' ({row.mark})' if row.mark else ''}"
        lines.append(Line(label, str(cells["arm"]).removeprefix(label).strip(), _number(cells["n"]), cells))
    return Part(setting, alone.round_rule, head, numbers, table, tuple(lines))


def _number(cell: Cell) -> int | None:
    return cell if isinstance(cell, int) else None


def _count(runs: StudyRuns, spec: ReportSpec, arm: Arm, metric: str, published: Published | None) -> dict[str, Cell]:
    """A number of samples, ours and the published one; it has no gain."""
    found = summarize(arm.values(runs, f"{spec.split}/{metric}", spec.round_rule))
    cells: dict[str, Cell] = {metric: None if found is None else Measure(found.mean, found.std, found.n)}
    if spec.reference is not None and published is not None and arm.reference:
        value = published.value({"metric": metric, **spec.reference.where, **arm.reference})
        cells[f"{metric}_published"] = None if value is None else Measure(value)
    return cells


def _columns(spec: ReportSpec) -> Iterator[tuple[str, str, Column]]:
    """(group, key in the setting's own table, column) from left to right."""
    groups = list(dict.fromkeys(setting.group for setting in spec.settings))
    metrics = list(spec.metrics or ())
    pairs = [(group, metric) for group in groups for metric in metrics]
    if spec.outer == "metrics":
        pairs = [(group, metric) for metric in metrics for group in groups]
    for group, metric in pairs:
        for show in _shown(spec, metric):
            ranked = show == "value" and metric not in COUNTS
            title, heading = _titles(spec, group, metric, show)
            prefix = f"{slug(group)}_" if len(groups) > 1 else ""
            column = Column(f"{prefix}{metric}{SUFFIX[show]}", title, KIND[show], heading, ranked)
            yield group, f"{metric}{SUFFIX[show]}", column


def _shown(spec: ReportSpec, metric: str) -> Iterator[Show]:
    for show in spec.show:
        if (spec.reference is not None or "published" not in show) and (metric not in COUNTS or "gain" not in show):
            yield show


def _titles(spec: ReportSpec, group: str, metric: str, show: Show) -> tuple[str, str]:
    name = NAMES.get(metric, metric)
    inner, outer = (group or name, name) if spec.outer == "metrics" else (name, group)
    change = "Δ " if "gain" in show else ""
    source = f" ({spec.reference.label})" if spec.reference is not None and "published" in show else ""
    return f"{change}{inner}{source}", outer


def _block(
    spec: ReportSpec,
    block: str,
    columns: Sequence[tuple[str, str, Column]],
    known: dict[tuple[str, int], Line],
    ranks: _Ranks,
) -> Iterator[tuple[Cell, ...]]:
    titles = {setting.group: setting.title for setting in spec.settings if setting.block == block}
    for place, row in enumerate(spec.rows):
        lines = {group: known[title, place] for group, title in titles.items()}
        counts = [line.n for line in lines.values() if line.n is not None]
        if row.optional and not counts:
            continue
        marks = "".join(dict.fromkeys(mark for line in lines.values() for mark in line.marks))
        label = next(iter(lines.values())).label
        cells = [lines[group].cells.get(key) if group in lines else None for group, key, _ in columns]
        nothing = (None,) * len(ranks.columns)
        yield block, f"{label}{f' {marks}' if marks else ''}", *cells, *ranks.cells.get(place, nothing), _seeds(counts)


def _seeds(counts: Sequence[int]) -> Cell:
    if not counts:
        return None
    low, high = min(counts), max(counts)
    return low if low == high else f"{low} to {high}"
