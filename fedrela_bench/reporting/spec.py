"""Report specs: YAML that says what to compare, by which rule, and beside which published numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field

from fedrela_bench.config import Section
from fedrela_bench.errors import ConfigError
from fedrela_bench.faults import unknown_name
from fedrela_bench.reporting.published import Published
from fedrela_bench.reporting.select import COUNTS, RoundRule
from fedrela_bench.reporting.settings import RunsSpec, SettingSpec
from fedrela_bench.values import Whole
from fedrela_bench.yaml_io import load_mapping

METRICS: tuple[str, ...] = ("overall", "head", "medium", "tail", "majority", "minority")


def _metric(name: str) -> str:
    if name not in COUNTS and not all(part in METRICS for part in name.split("+")):
        raise ValueError(f"is not measured; choose {', '.join((*METRICS, *COUNTS))}, or a sum such as medium+tail")
    return name


Metric = Annotated[str, AfterValidator(_metric)]
"""An accuracy, the sum of several (``medium+tail``), or a count."""
Figure = Literal["curves", "pareto", "tau", "start", "classes", "flow", "gallery", "clients", "importance", "parallel"]
Show = Literal["value", "gain", "published", "gain_published"]
SHOWN: tuple[Show, ...] = get_args(Show)


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
    round_rule: RoundRule | None = None
    """With `settings`: another rule than the report's for this row and the baseline that it is compared with."""
    head: str | None = None
    """With `settings`: the head whose accuracies are shown where an algorithm measures several, such as `realign`."""


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
    """A table of one study, or of several settings: rows, metrics, split, round rule, reference values, figures."""

    title: str
    dataset: str | None = None
    """The study's dataset must be this one."""
    where: dict[str, Any] = Field(default_factory=dict)
    """Filters common to all rows."""
    settings: tuple[SettingSpec, ...] = ()
    """Datasets, imbalances, clients and skews: blocks of rows and groups of columns; none: a table of one study."""
    metrics: tuple[Metric, ...] | None = None
    """By default overall and the groups of the dataset's profile."""
    show: tuple[Show, ...] = SHOWN
    """With `settings`: what every metric shows."""
    outer: Literal["settings", "metrics"] = "settings"
    """With `settings`: what the headings over the columns are."""
    split: Literal["test", "val"] = "test"
    round_rule: RoundRule = "last5"
    seeds: tuple[Whole, ...] | None = None
    min_seeds: Annotated[Whole, Field(ge=1)] = 1
    """Rows with fewer seeds are marked."""
    rows: tuple[RowSpec, ...]
    per_algorithm: bool = False
    """All rows for one algorithm, then all for the next, instead of each row over all algorithms."""
    runs: RunsSpec | None = None
    """What is computed where it is missing (`report SPEC --plan` and `--run`)."""
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
    from fedrela_bench.reporting.specfile import read_spec

    return read_spec(find_spec(name), reports_folder() / "published")


def list_specs() -> dict[str, str]:
    """Name of every shipped spec to its title; table 2 stands before table 10."""
    paths = sorted(reports_folder().glob("*.yaml"), key=_in_order)
    specs = {path.stem: load_mapping(path, "a report spec").value for path in paths}
    return {name: str(values.get("title", "")) for name, values in specs.items()}


def _in_order(path: Path) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", path.stem)]
