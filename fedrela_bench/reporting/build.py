"""From a study's runs and a report spec to the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from fedrela_bench.errors import ConfigError
from fedrela_bench.reporting.arms import Arm, build_arms
from fedrela_bench.reporting.published import Published
from fedrela_bench.reporting.select import DAGGER, ROUND_RULES, split_text
from fedrela_bench.reporting.source import StudyRuns
from fedrela_bench.reporting.spec import ReportSpec
from fedrela_bench.reporting.stats import CONFIDENCE, INTERVAL_FROM, paired_difference, summarize
from fedrela_bench.reporting.table import DASH, Cell, Column, Gain, Measure, Table

FEW_SEEDS = "‡"
MIXED = "§"
SLOWED = "¶"
SCALE = "param:relabel.post_relabel_lr_scale"
GROUPS = {"step": ("overall", "majority", "minority")}
SETTING = (
    "data.alpha",
    "data.imbalance_factor",
    "federation.clients",
    "federation.participation",
    "federation.rounds",
    "training.model",
    "training.local_epochs",
    "training.batch_size",
    "training.lr",
)
"""Configuration fields that a reader needs to judge a comparison."""
DEFAULT_GROUPS = ("overall", "head", "medium", "tail")


def groups_of(runs: StudyRuns) -> tuple[str, ...]:
    """The metrics of the study's profile, the one over all classes first and the rarest classes last."""
    return GROUPS["step"] if set(runs.frame["profile"]) == {"step"} else DEFAULT_GROUPS


@dataclass(frozen=True)
class _Builder:
    runs: StudyRuns
    spec: ReportSpec
    published: Published | None
    arms: list[Arm]

    @property
    def used(self) -> pd.DataFrame:
        return pd.concat([arm.runs for arm in self.arms])

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.spec.metrics or groups_of(self.runs)

    @property
    def seeds(self) -> list[int]:
        return sorted({int(seed) for seed in self.used["seed"]})

    @property
    def oracle(self) -> bool:
        return self.spec.round_rule == "best_oracle" or "oracle" in set(self.used["selection"])

    def columns(self) -> Iterator[Column]:
        yield Column("arm", "arm")
        for metric in self.metrics:
            yield Column(metric, metric, "measure")
            yield Column(f"{metric}_gain", f"Δ {metric}", "gain")
            if self.spec.reference is not None:
                yield Column(f"{metric}_published", f"{metric} ({self.spec.reference.label})", "published")
                yield Column(f"{metric}_gain_published", f"Δ {metric} ({self.spec.reference.label})", "published")
        yield Column("n", "n", "count")

    def row(self, arm: Arm) -> Iterator[Cell]:
        marks = self.marks(arm)
        yield f"{arm.label}{f' {marks}' if marks else ''}"
        for metric in self.metrics:
            yield self.measure(arm, metric)
            yield self.gain(arm, metric)
            if self.spec.reference is not None:
                yield from self.reference(arm, metric)
        yield len(arm.runs) or None

    def marks(self, arm: Arm) -> str:
        few = 0 < len(arm.runs) < max(self.spec.min_seeds, len(self.seeds))
        slowed = SLOWED if self.scales(arm) else ""
        return (FEW_SEEDS if few else "") + (MIXED if self.mixed(arm.runs) else "") + slowed

    @staticmethod
    def scales(arm: Arm) -> list[float]:
        """Learning-rate factors from T on, other than 1, of an arm that also relabels."""
        if not {SCALE, "param:relabel.tau"} <= set(arm.runs.columns):
            return []
        rows = arm.runs[(arm.runs["kind"] != "trunk") & (arm.runs["param:relabel.tau"].astype(float) > 0)]
        return sorted(set(rows[SCALE].dropna().astype(float)) - {1.0})

    @staticmethod
    def mixed(runs: pd.DataFrame) -> bool:
        names = ("version.fedrela_bench", "version.torch", "simulation_version", "device")
        return any(runs[name].nunique() > 1 for name in names)

    def measure(self, arm: Arm, metric: str) -> Measure | None:
        summary = summarize(arm.values(self.runs, f"{self.spec.split}/{metric}", self.spec.round_rule))
        if summary is None:
            return None
        std = None if summary.std is None else 100 * summary.std
        return Measure(100 * summary.mean, std, summary.n, DAGGER if self.oracle else "")

    def gain(self, arm: Arm, metric: str) -> Gain | None:
        if arm.is_baseline:
            return None
        name, rule = f"{self.spec.split}/{metric}", self.spec.round_rule
        found = paired_difference(arm.values(self.runs, name, rule), arm.baseline_values(self.runs, name, rule))
        if found is None:
            return None
        low, high = (None if bound is None else 100 * bound for bound in (found.low, found.high))
        return Gain(100 * found.mean, low, high, found.n, DAGGER if self.oracle else "")

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

    def facts(self) -> Iterator[tuple[str, str]]:
        selections = "+".join(sorted(set(self.used["selection"]))) or DASH
        yield "split", self.split
        yield "round rule", f"{self.spec.round_rule} ({ROUND_RULES[self.spec.round_rule]})"
        yield "seeds", ", ".join(str(seed) for seed in self.seeds) or DASH
        yield "selection", f"{selections}{f' {DAGGER}' if self.oracle else ''}"
        yield (
            "statistic",
            (
                "accuracy in percent, mean ± standard deviation (ddof 1) over seeds; "
                f"Δ: paired with the unrelabelled run of the same seed, mean "
                f"[{CONFIDENCE:.0%} t interval], the interval from {INTERVAL_FROM} seeds on"
            ),
        )
        yield "dataset", self.runs.dataset
        yield "setting", ", ".join(self.setting()) or DASH
        yield "dataset digest", "; ".join(self.digests()) or DASH
        yield "versions", self.versions()
        yield "device", ", ".join(sorted(set(self.used["device"]))) or DASH

    def setting(self) -> Iterator[str]:
        for name in SETTING:
            column = f"param:{name}"
            values = sorted(set(self.used[column].dropna().astype(str))) if column in self.used else []
            if values:
                yield f"{name.rpartition('.')[2].replace('_', ' ')} {' or '.join(values)}"

    @property
    def split(self) -> str:
        return split_text(self.spec.split, self.used["selection"])

    def summary(self) -> str:
        seeds = ", ".join(str(seed) for seed in self.seeds) or DASH
        return (
            f"Accuracy in %, mean ± standard deviation over seeds {seeds}; split: {self.split}; "
            f"{ROUND_RULES[self.spec.round_rule]}; Δ: paired with the unrelabelled run of the same seed "
            f"[{CONFIDENCE:.0%} t interval from {INTERVAL_FROM} seeds on]."
        )

    def digests(self) -> Iterator[str]:
        for seed, group in self.used.groupby("seed"):
            yield f"seed {seed}: {' and '.join(sorted(set(group['data_digest'])))}"

    def versions(self) -> str:
        names = {"fedrela-bench": "version.fedrela_bench", "torch": "version.torch", "simulation": "simulation_version"}
        shown = [f"{name} {' and '.join(sorted(set(self.used[column])))}" for name, column in names.items()]
        return ", ".join(shown)

    def notes(self) -> Iterator[str]:
        if self.oracle:
            yield f"{DAGGER} oracle: the reported test images also chose the configuration or the round."
        few = [arm for arm in self.arms if FEW_SEEDS in self.marks(arm)]
        if few:
            need = max(self.spec.min_seeds, len(self.seeds))
            counts = "; ".join(f"{arm.label}: {len(arm.runs)}" for arm in few)
            yield f"{FEW_SEEDS} fewer than {need} seeds ({counts})."
        if any(MIXED in self.marks(arm) for arm in self.arms):
            yield f"{MIXED} the seeds of this row were run with different versions or devices."
        factors = sorted({factor for arm in self.arms for factor in self.scales(arm)})
        if factors:
            shown = " or ".join(f"{factor:g}" for factor in factors)
            yield (
                f"{SLOWED} the learning rate is multiplied by {shown} from T on: the gain includes that drop. Compare "
                "with the control arm, relabel.tau = 0 with the same relabel.post_relabel_lr_scale."
            )
        digests = self.used.groupby("seed")["data_digest"].nunique()
        if (digests > 1).any():
            seeds = ", ".join(str(seed) for seed in digests[digests > 1].index)
            yield f"The rows do not share one data split for seed {seeds}: the digests above differ."
        missing = [arm.label for arm in self.arms if not len(arm.runs)]
        if missing:
            yield f"No finished run fits: {'; '.join(missing)}."
        yield from self.left_out()
        yield from self.spec.notes

    def left_out(self) -> Iterator[str]:
        frame = self.runs.frame
        for status in sorted(set(frame["status"]) - {"completed", "stopped", ""}):
            yield f"Left out: {int((frame['status'] == status).sum())} runs that {status}."
        unfinished = frame[frame["run_status"] != "FINISHED"]["status"]
        futile, going_on = int((unfinished == "stopped").sum()), int(unfinished.isin(["", "completed"]).sum())
        if futile:
            yield f"Left out: {futile} runs that were stopped for gaining too little."
        if going_on:
            yield f"Left out: {going_on} runs that are not finished."


def build_table(runs: StudyRuns, spec: ReportSpec, published: Published | None = None) -> Table:
    """The table that a spec describes.

    Raises:
        ConfigError: the study is of another dataset, or a row fits several configurations.
    """
    if spec.dataset is not None and spec.dataset != runs.dataset:
        raise ConfigError(
            f"this report is about {spec.dataset}, the study about {runs.dataset}; give a study of {spec.dataset}"
        )
    arms = build_arms(runs, spec)
    builder = _Builder(runs, spec, published, arms)
    rows = tuple(tuple(builder.row(arm)) for arm in arms)
    facts, notes = tuple(builder.facts()), tuple(builder.notes())
    return Table(spec.title, tuple(builder.columns()), rows, facts, notes, builder.summary())


def table_arms(runs: StudyRuns, spec: ReportSpec) -> list[Arm]:
    """The arms of a spec that have runs, for its figures."""
    arms = build_arms(runs, spec)
    return [arm for arm in arms if len(arm.runs)]
