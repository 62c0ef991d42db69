"""Report specs: YAML that says what to compare, by which rule, and beside which published numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, Field, ValidationError

from fedrela_bench.config import Section, Whole, faults_of, field_names, unknown_name
from fedrela_bench.errors import ConfigError
from fedrela_bench.reporting.published import Published, load_published
from fedrela_bench.reporting.source import TAGS
from fedrela_bench.yaml_io import Document, load_mapping

Metric = Literal["overall", "head", "medium", "tail", "majority", "minority"]
Figure = Literal["curves", "pareto"]
METRICS: tuple[str, ...] = get_args(Metric)
_CHOICES = re.compile(rf"only|each|front|best:({'|'.join(METRICS)})")


class RowSpec(Section):
    """One or several rows: which runs, and which of their configurations."""

    name: str | None = None
    """Shown name; by default the algorithm and what the configuration sets."""
    runs: dict[str, Any]
    """Tags (`kind: trunk`, `algorithm: fedavg`) and configuration fields (`relabel.tau: 0.05`) that runs must have."""
    choose: str = "only"
    """only: the filters leave one configuration; each: a row for each; front: its Pareto front; best:METRIC."""
    optional: bool = False
    """Leave the row out where no run fits, or where an earlier row shows the configuration already."""
    mark: str | None = None
    """Shown in brackets behind the name; an earlier row that shows the configuration already is marked instead."""
    reference: dict[str, Any] = Field(default_factory=dict)
    """Filters on the published numbers that belong beside this row."""


class ReferenceSpec(Section):
    """Published numbers beside ours."""

    file: str
    """A CSV in `published/` beside the spec or among the shipped ones, such as ``fedrela.csv``."""
    label: str
    """How the source is named in column titles and notes."""
    where: dict[str, Any] = Field(default_factory=dict)
    """Filters common to all rows."""
    tables: dict[Metric, Whole] = Field(default_factory=dict)
    """Metric to the number of the table it is taken from."""


class ReportSpec(Section):
    """A table of a study: rows, metrics, split, round rule, reference values, figures."""

    title: str
    dataset: str | None = None
    """The study's dataset must be this one."""
    where: dict[str, Any] = Field(default_factory=dict)
    """Filters common to all rows."""
    metrics: tuple[Metric, ...] | None = None
    """By default overall and the groups of the dataset's profile."""
    split: Literal["test", "val"] = "test"
    round_rule: Literal["last", "last5", "best_selected", "best_oracle"] = "last5"
    seeds: tuple[Whole, ...] | None = None
    min_seeds: Annotated[Whole, Field(ge=1)] = 1
    """Rows with fewer seeds are marked."""
    rows: tuple[RowSpec, ...]
    per_algorithm: bool = False
    """All rows for one algorithm, then all for the next, instead of each row over all algorithms."""
    reference: ReferenceSpec | None = None
    notes: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()


def reports_folder() -> Path:
    """The shipped specs: beside the package in a checkout, inside it in an installed wheel."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_reports", package.parent / "reports"):
        if folder.is_dir():
            return folder
    raise ConfigError("the shipped report specs are not installed; give the path of a spec file")


def find_spec(name: str | Path) -> Path:
    """A spec by path, or by the name of a shipped one.

    Raises:
        ConfigError: neither; names the nearest shipped spec.
    """
    path = Path(name)
    if path.is_file():
        return path
    shipped = {spec.stem: spec for spec in sorted(reports_folder().glob("*.yaml"))}
    if path.stem in shipped and (path.suffix in ("", ".yaml")):
        return shipped[path.stem]
    raise ConfigError(unknown_name("report spec", str(name), path.stem, shipped))


def load_spec(name: str | Path) -> tuple[ReportSpec, Published | None]:
    """A validated spec and the published numbers it refers to.

    Raises:
        ConfigError: every fault of the file in one message, each with its line.
    """
    document = load_mapping(find_spec(name), "a report spec")
    values = dict(document.value)
    faults, rows = _check_rows(values.get("rows"), document)
    values["rows"] = rows
    spec = _validate(ReportSpec, values, "", document, faults)
    faults += _unknown_filters(values.get("where"), "where", document)
    published = None
    reference = spec.reference if isinstance(spec, ReportSpec) else None
    if isinstance(spec, ReportSpec) and reference is not None:
        published = _published(spec, reference, document, faults)
    if faults or not isinstance(spec, ReportSpec):
        raise ConfigError(faults)
    return spec, published


def _check_rows(rows: object, document: Document) -> tuple[list[str], list[RowSpec]]:
    if not isinstance(rows, list) or not rows:
        return [f"{document.where('rows')}: rows must be a list of at least one row with `runs`"], []
    faults: list[str] = []
    good: list[RowSpec] = []
    for number, values in enumerate(rows, 1):
        prefix = f"rows[{number}]."
        if not isinstance(values, Mapping):
            faults.append(f"{document.where('rows')}: {prefix[:-1]} must be a mapping with `runs`")
            continue
        row = _validate(RowSpec, values, prefix, document, faults)
        faults += _unknown_filters(values.get("runs"), f"{prefix}runs", document)
        if isinstance(row, RowSpec):
            good.append(row)
            if not _CHOICES.fullmatch(row.choose):
                names = f"only, each, front, best:METRIC with METRIC one of {', '.join(METRICS)}"
                faults.append(
                    f"{document.where('rows')}: {prefix}choose = {row.choose!r} is not a choice; valid: {names}"
                )
    return faults, good


def _validate(
    model: type[BaseModel], values: Mapping[str, Any], prefix: str, document: Document, faults: list[str]
) -> BaseModel | None:
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        for fault in faults_of(error, model, prefix):
            faults.append(f"{_place(fault, prefix, document)}: {fault}")
    return None


def _place(fault: str, prefix: str, document: Document) -> str:
    if prefix:
        return document.where("rows")
    named = re.search(r"[a-z_]+(\.[a-z_]+)*(?= =|;)", fault)
    return document.where(named[0]) if named else str(document.path)


def _unknown_filters(where: object, prefix: str, document: Document) -> Iterable[str]:
    if not isinstance(where, Mapping):
        return []
    known = [*TAGS, *field_names()]
    place = document.where("rows" if prefix.startswith("rows") else prefix)
    return [
        f"{place}: {unknown_name('filter', f'{prefix}: {name}', str(name), known)}"
        for name in where
        if name not in known and not str(name).startswith("federation.options.")
    ]


def _published(spec: ReportSpec, reference: ReferenceSpec, document: Document, faults: list[str]) -> Published | None:
    try:
        beside = document.path.parent / "published" / reference.file
        published = load_published(beside if beside.is_file() else reports_folder() / "published" / reference.file)
    except ConfigError as error:
        faults += [f"{document.where('reference.file')}: {fault}" for fault in error.faults]
        return None
    names = [("reference.where", reference.where), *(("rows", row.reference) for row in spec.rows)]
    for place, filters in names:
        faults += [
            f"{document.where(place)}: {unknown_name('published column', str(name), str(name), published.columns)}"
            for name in filters
            if name not in published.columns
        ]
    return published
