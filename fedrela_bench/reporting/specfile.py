"""Reading a report spec: every fault of the file in one message, each with its line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fedrela_bench.config import FREE_FIELDS, field_names
from fedrela_bench.errors import ConfigError
from fedrela_bench.faults import faults_of, unknown_name
from fedrela_bench.reporting.published import Published, load_published
from fedrela_bench.reporting.settings import RunsSpec, SettingSpec
from fedrela_bench.reporting.source import TAGS
from fedrela_bench.reporting.spec import METRICS, ReportSpec, RowSpec
from fedrela_bench.yaml_io import Document, load_mapping

M = TypeVar("M", bound=BaseModel)
CHOICES = re.compile(rf"only|each|front|best:({'|'.join(METRICS)})")
LISTS = ("rows", "settings", "runs")
"""Parts of a spec that are checked one by one, so that one message has the faults of all."""


@dataclass
class _Reader:
    document: Document
    shipped: Path
    faults: list[str] = field(default_factory=list)

    def fault(self, place: str, text: str) -> None:
        self.faults.append(f"{self.document.where(place)}: {text}")

    def validate(self, model: type[M], values: Mapping[str, Any], prefix: str = "", place: str = "") -> M | None:
        try:
            return model.model_validate(dict(values))
        except ValidationError as error:
            for text in faults_of(error, model, prefix):
                self.fault(place or _named(text), text)
        return None

    def names(self, given: object, prefix: str, place: str, kind: str, known: Iterable[str]) -> None:
        """Note the names of a mapping that do not exist."""
        listed = list(known)
        for name in given if isinstance(given, Mapping) else ():
            if name not in listed and not str(name).startswith(FREE_FIELDS):
                self.fault(place, unknown_name(kind, f"{prefix}: {name}", str(name), listed))

    def filters(self, given: object, prefix: str, place: str) -> None:
        self.names(given, prefix, place, "filter", [*TAGS, *field_names()])

    def fields(self, given: Mapping[str, Any], prefix: str, place: str) -> None:
        """Note what `config`, `cpu` and `paper` set that does not exist."""
        for part in ("config", "cpu", "paper"):
            self.names(given.get(part), f"{prefix}{part}", place, "field", field_names())
        algorithms = given.get("algorithms")
        for name, own in algorithms.items() if isinstance(algorithms, Mapping) else ():
            self.fields(own if isinstance(own, Mapping) else {}, f"{prefix}algorithms.{name}.", place)


def _named(text: str) -> str:
    found = re.search(r"[a-z_]+(\.[a-z_0-9]+)*(?= =|;)", text)
    return found[0] if found else ""


def read_spec(path: Path, shipped: Path) -> tuple[ReportSpec, Published | None]:
    """A validated spec and the published numbers it refers to.

    Args:
        path: the YAML file.
        shipped: folder of the published numbers that come with the package.

    Raises:
        ConfigError: every fault of the file in one message, each with its line.
    """
    reader = _Reader(load_mapping(path, "a report spec"), shipped)
    values = dict(reader.document.value)
    rows = _rows(reader, values.get("rows"))
    settings = _settings(reader, values.get("settings", []))
    runs = _runs(reader, values.get("runs"))
    spec = reader.validate(ReportSpec, {**values, "rows": rows, "settings": settings, "runs": runs})
    reader.filters(values.get("where"), "where", "where")
    published = None
    if spec is not None:
        for place, text in incoherent(spec):
            reader.fault(place, text)
        published = _published(reader, spec)
    if reader.faults or spec is None:
        raise ConfigError(reader.faults)
    return spec, published


def _rows(reader: _Reader, rows: object) -> list[RowSpec]:
    if not isinstance(rows, list) or not rows:
        reader.fault("rows", "rows must be a list of at least one row with `runs`")
        return []
    good = []
    for prefix, values in _mappings(reader, rows, "rows", "`runs`"):
        row = reader.validate(RowSpec, values, prefix, "rows")
        reader.filters(values.get("runs"), f"{prefix}runs", "rows")
        if row is not None:
            good.append(row)
            if not CHOICES.fullmatch(row.choose):
                names = f"only, each, front, best:METRIC with METRIC one of {', '.join(METRICS)}"
                reader.fault("rows", f"{prefix}choose = {row.choose!r} is not a choice; valid: {names}")
    return good


def _settings(reader: _Reader, settings: object) -> list[SettingSpec]:
    if not isinstance(settings, list):
        reader.fault("settings", "settings must be a list of settings with `dataset`")
        return []
    good = []
    for prefix, values in _mappings(reader, settings, "settings", "`dataset`"):
        setting = reader.validate(SettingSpec, values, prefix, "settings")
        reader.filters(values.get("where"), f"{prefix}where", "settings")
        reader.fields(values, prefix, "settings")
        good += [setting] if setting is not None else []
    return good


def _runs(reader: _Reader, values: object) -> RunsSpec | None:
    if values is None:
        return None
    if not isinstance(values, Mapping):
        reader.fault("runs", "runs must be a mapping with `algorithms`")
        return None
    reader.fields(values, "runs.", "runs")
    points = values.get("relabel")
    allowed = [name for name in field_names() if name.startswith("relabel.")]
    for number, point in enumerate(points if isinstance(points, list) else (), 1):
        for name in point if isinstance(point, Mapping) else ():
            if name not in allowed and not str(name).startswith(FREE_FIELDS[1:]):
                shown = f"runs.relabel[{number}]: {name}"
                reader.fault("runs.relabel", unknown_name("field", shown, str(name), allowed))
    return reader.validate(RunsSpec, values, "runs.", "runs")


def _mappings(reader: _Reader, items: list[Any], what: str, needs: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, values in enumerate(items, 1):
        if isinstance(values, Mapping):
            yield f"{what}[{number}].", values
        else:
            reader.fault(what, f"{what}[{number}] must be a mapping with {needs}")


def incoherent(spec: ReportSpec) -> Iterator[tuple[str, str]]:
    """Parts of a spec that do not go together: the part, and why with a remedy."""
    if not spec.settings:
        yield from _without_settings(spec)
        return
    if spec.metrics is None:
        yield "settings", "a report over settings needs metrics, such as [overall, tail]"
    if spec.dataset is not None:
        yield "dataset", "dataset is said by every setting; leave it out here"
    if spec.per_algorithm:
        yield "per_algorithm", "per_algorithm has no meaning with settings; write a row for each algorithm"
    for number, row in enumerate(spec.rows, 1):
        if row.name is None:
            yield "rows", f"rows[{number}] needs a name, since it stands in several settings"
        if row.choose in ("each", "front"):
            yield (
                "rows",
                f"rows[{number}].choose = {row.choose!r} gives rows that differ by setting; write only or best:METRIC",
            )
    places = Counter((setting.block, setting.group) for setting in spec.settings)
    for block, group in (place for place, count in places.items() if count > 1):
        shown = f"block {block!r} and group {group!r}"
        yield (
            "settings",
            f"several settings have {shown} and would stand in one place; give each another group or block",
        )


def _without_settings(spec: ReportSpec) -> Iterator[tuple[str, str]]:
    if spec.runs is not None:
        yield "runs", "runs need settings to say on what; add `settings` with at least one dataset"
    for name in ("show", "outer"):
        if name in spec.model_fields_set:
            yield name, f"{name} arranges settings, and there are none; leave it out or add `settings`"
    plain = [metric for metric in spec.metrics or () if metric not in METRICS]
    if plain:
        yield (
            "metrics",
            f"{', '.join(plain)} can be shown with `settings` only; add one, or choose {', '.join(METRICS)}",
        )
    for number, row in enumerate(spec.rows, 1):
        for name in ("round_rule", "head"):
            if getattr(row, name) is not None:
                yield "rows", f"rows[{number}].{name} works with `settings` only; add one, or leave it out"


def _published(reader: _Reader, spec: ReportSpec) -> Published | None:
    reference = spec.reference
    if reference is None:
        return None
    beside = reader.document.path.parent / "published" / reference.file
    try:
        published = load_published(beside if beside.is_file() else reader.shipped / reference.file)
    except ConfigError as error:
        for text in error.faults:
            reader.fault("reference.file", text)
        return None
    filters = [("reference.where", reference.where), *(("settings", setting.reference) for setting in spec.settings)]
    for place, where in [*filters, *(("rows", row.reference) for row in spec.rows)]:
        for name in where:
            if name not in published.columns:
                reader.fault(place, unknown_name("published column", str(name), str(name), published.columns))
    return published
