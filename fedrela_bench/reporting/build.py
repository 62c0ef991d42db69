"""From a study's runs and a report spec to the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fedrela_bench.errors import ConfigError
from fedrela_bench.reporting.arms import Arm, build_arms
from fedrela_bench.reporting.comparison import Comparison, fewer
from fedrela_bench.reporting.published import Published
from fedrela_bench.reporting.source import StudyRuns
from fedrela_bench.reporting.spec import ReportSpec
from fedrela_bench.reporting.stats import paired_difference, summarize
from fedrela_bench.reporting.table import Cell, Column, Gain, Measure, Table
from fedrela_bench.reporting.told import facts_of, notes_of, summary_of

GROUPS = {"step": ("overall", "majority", "minority")}
DEFAULT_GROUPS = ("overall", "head", "medium", "tail")


def groups_of(runs: StudyRuns) -> tuple[str, ...]:
    """The metrics of the study's profile, the one over all classes first and the rarest classes last."""
    return GROUPS["step"] if set(runs.frame["profile"]) == {"step"} else DEFAULT_GROUPS


@dataclass(frozen=True)
class _Builder(Comparison):
    published: Published | None

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.spec.metrics or groups_of(self.runs)

    def columns(self) -> Iterator[Column]:
        yield Column("arm", "arm")
        for metric in self.metrics:
            yield Column(metric, metric, "measure", ranked=True)
            yield Column(f"{metric}_gain", f"Δ {metric}", "gain")
            if self.spec.reference is not None:
                yield Column(f"{metric}_published", f"{metric} ({self.spec.reference.label})", "published")
                yield Column(f"{metric}_gain_published", f"Δ {metric} ({self.spec.reference.label})", "published")
        yield Column("n", "n", "count")

    def row(self, place: int) -> Iterator[Cell]:
        arm, marks = self.arms[place], self.marks(place)
        yield f"{arm.label}{f' {marks}' if marks else ''}"
        for metric in self.metrics:
            yield self.measure(arm, metric)
            yield self.gain(arm, metric)
            if self.spec.reference is not None:
                yield from self.reference(arm, metric)
        yield len(arm.runs) or None

    def measure(self, arm: Arm, metric: str) -> Measure | None:
        summary = summarize(arm.values(self.runs, f"{self.spec.split}/{metric}", self.spec.round_rule))
        if summary is None:
            return None
        std = None if summary.std is None else 100 * summary.std
        return Measure(100 * summary.mean, std, summary.n, self.dagger(arm) + fewer(arm, summary.n))

    def gain(self, arm: Arm, metric: str) -> Gain | None:
        if arm.is_baseline:
            return None
        name, rule = f"{self.spec.split}/{metric}", self.spec.round_rule
        found = paired_difference(arm.values(self.runs, name, rule), arm.baseline_values(self.runs, name, rule))
        if found is None:
            return None
        bounds = (found.low, found.high, found.boot_low, found.boot_high)
        low, high, boot_low, boot_high = (None if bound is None else 100 * bound for bound in bounds)
        marks = self.dagger(arm) + fewer(arm, found.n)
        return Gain(100 * found.mean, low, high, found.n, marks, boot_low, boot_high)

    def reference(self, arm: Arm, metric: str) -> Iterator[Measure | Gain | None]:
        value = self.reference_value(arm, metric, {})
        yield None if value is None else Measure(value)
        base = self.reference_value(arm, metric, {"variant": "base"})
        relabelled = arm.reference.get("variant", "base") != "base"
        yield Gain(value - base) if relabelled and value is not None and base is not None else None

    def reference_value(self, arm: Arm, metric: str, changes: dict[str, str]) -> float | None:
        reference = self.spec.reference
        if reference is None or self.published is None or not arm.reference:
            return None
        table = (
            {"table": table} if (table := next((n for m, n in reference.tables.items() if m == metric), None)) else {}
        )
        return self.published.value({"metric": metric, **table, **reference.where, **arm.reference, **changes})


def build_table(runs: StudyRuns, spec: ReportSpec, published: Published | None = None) -> Table:
    """The table that a spec describes.

    Raises:
        ConfigError: the study is of another dataset, a row fits several configurations, or a seed has two different
            computations of one.
    """
    if spec.dataset is not None and spec.dataset != runs.dataset:
        raise ConfigError(
            f"this report is about {spec.dataset}, the study about {runs.dataset}; give a study of {spec.dataset}"
        )
    builder = _Builder(runs, spec, build_arms(runs, spec), published)
    columns = tuple(builder.columns())
    rows = tuple(tuple(builder.row(place)) for place in range(len(builder.arms)))
    facts, notes = tuple(facts_of(builder)), tuple(notes_of(builder, columns, rows))
    return Table(spec.title, columns, rows, facts, notes, summary_of(builder))


def table_arms(runs: StudyRuns, spec: ReportSpec) -> list[Arm]:
    """The arms of a spec that have runs, for its figures."""
    arms = build_arms(runs, spec)
    return [arm for arm in arms if len(arm.runs)]
