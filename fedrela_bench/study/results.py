"""What a study found: baselines, trials, the Pareto front, and the configurations to use."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from fedrela_bench.choice import balanced
from fedrela_bench.intervals import bootstrap_interval, t_interval
from fedrela_bench.nested import Json
from fedrela_bench.study.controls import candidates
from fedrela_bench.study.ledger import Ledger
from fedrela_bench.study.pairing import Baselines, Differences, without_relabelling
from fedrela_bench.study.plan import Outcome, Plan
from fedrela_bench.study.space import ALGORITHM


@dataclass(frozen=True)
class PairedGain:
    """Mean over seeds of the difference to the baseline of the same seed.

    Attributes:
        value: the mean, as a fraction.
        n: number of seeds.
        low, high: Student's t interval from three seeds on.
        boot_low, boot_high: percentile bootstrap interval.
    """

    value: float
    n: int
    low: float | None = None
    high: float | None = None
    boot_low: float | None = None
    boot_high: float | None = None


@dataclass(frozen=True)
class Row:
    """A baseline or a trial."""

    label: str
    algorithm: str
    point: Mapping[str, Any]
    outcome: Outcome
    gains: tuple[float, ...] = ()
    """Objectives minus those of the baseline of the same configuration; () where none is finished."""
    number: int | None = None
    """Optuna trial; None for a baseline."""
    paired: Mapping[str, PairedGain] = field(default_factory=dict)
    """Gain in every metric that the baseline has, too."""
    role: str = ""
    """Of an arm of the confirm stage: control or drop with another learning rate from T on, or relabeler."""
    partner: str = ""
    """Of the control of another row: that row's label, ..."""
    relabeler: str = ""
    """... what relabels in it, ..."""
    against: Mapping[str, PairedGain] = field(default_factory=dict)
    """... and what the other row has over it, in every metric of both."""
    base: tuple[float, ...] = ()
    """Objectives of the baseline that `gains` are over."""
    unlike: Differences = field(default_factory=dict)
    """Where there are no gains since the baseline is another configuration: in what."""

    def to_json(self) -> Json:
        """Plain values."""
        outcome = self.outcome
        return {
            "label": self.label,
            "trial": self.number,
            "role": self.role or None,
            "control_of": self.partner or None,
            "against": {name: asdict(gain) for name, gain in self.against.items()},
            "algorithm": self.algorithm,
            "point": dict(self.point),
            "status": outcome.status,
            "values": list(outcome.values),
            "gains": list(self.gains),
            "paired": {name: asdict(gain) for name, gain in self.paired.items()},
            "unlike_baseline": {name: list(values) for name, values in self.unlike.items()},
            "metrics": dict(outcome.metrics),
            "std": dict(outcome.std),
            "keys": list(outcome.keys),
            "error": outcome.error or None,
        }


@dataclass
class StudyResult:
    """The end of a `tune` call."""

    status: str
    """finished or interrupted."""
    exit_code: int
    out: Path
    dataset: str
    objectives: tuple[str, ...]
    seeds: tuple[int, ...]
    baselines: list[Row]
    trials: list[Row]
    pareto: list[Row]
    best: dict[str, Path] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    """Words that say where the data and the user's own code are."""
    failed: list[Row] = field(default_factory=list)
    confirmed: list[Row] = field(default_factory=list)
    """What the confirm stage found over `confirm_seeds`."""
    confirm_seeds: tuple[int, ...] = ()
    counts: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
    ui_command: str = ""
    dashboard_command: str = ""
    report: list[str] = field(default_factory=list)
    """Files of the report stage."""
    report_command: str = ""
    resume_command: str = ""
    baseline_commands: dict[str, str] = field(default_factory=dict)
    """Compute the baselines that rows without gains lack, by what they are for."""

    def best_command(self, name: str) -> str:
        """What to type to repeat a recommended configuration on its first seed."""
        words = ["fedrela-bench", "run", "--config", str(self.out / "best" / f"{name}.yaml"), *self.sources]
        return shlex.join(words)

    def to_json(self) -> Json:
        """Plain values for ``--json``."""
        rows = {
            name: [row.to_json() for row in getattr(self, name)]
            for name in ("baselines", "trials", "pareto", "confirmed", "failed")
        }
        texts = {
            name: getattr(self, name) for name in ("status", "exit_code", "dataset", "counts", "seconds", "warnings")
        }
        commands = {
            name: getattr(self, name)
            for name in ("ui_command", "report_command", "resume_command", "dashboard_command", "baseline_commands")
        }
        best = {name: str(path) for name, path in self.best.items()}
        shown = {"out": str(self.out), "objectives": list(self.objectives), "seeds": list(self.seeds), "best": best}
        shown |= {"best_commands": {name: self.best_command(name) for name in self.best}}
        shown |= {"confirm_seeds": list(self.confirm_seeds), "report": self.report}
        return {**texts, **shown, **rows, **commands}


def collect(plan: Plan, ledgers: Sequence[Ledger]) -> tuple[list[Row], list[Row]]:
    """Baselines that are finished, and all trials in the order of their numbers.

    The baselines are those of the algorithms, followed by those that the store has of trials with other settings than
    relabelling.
    """
    known = {name: outcome for name in plan.bases if (outcome := plan.baseline(name)) is not None}
    rows = [Row(f"{name} (baseline)", name, {}, outcome) for name, outcome in known.items()]
    baselines, trials = Baselines(plan), list[Row]()
    for ledger in ledgers:
        for key, outcome in {**ledger.finished, **ledger.failed}.items():
            point, number = ledger.points[key], ledger.numbers[key]
            trials.append(over_baseline(Row(label(point), point[ALGORITHM], point, outcome, number=number), baselines))
    several, order = len(ledgers) > 1, list(plan.bases)
    trials.sort(key=lambda row: (order.index(row.algorithm) if several else 0, row.number or 0))
    return [*rows, *own_baselines(trials, baselines)], trials


def over_baseline(row: Row, baselines: Baselines) -> Row:
    """A row with its gains over the baseline of its configuration, or with why it has none."""
    base = baselines.of(row.point)
    if not row.outcome.valid or (base is not None and base.keys == row.outcome.keys):
        return row
    if base is None:
        return replace(row, unlike=baselines.unlike(row.point))
    gains, paired = gains_over(row.outcome, base), paired_gains(row.outcome, base)
    return replace(row, gains=gains, paired=paired, base=base.values)


def own_baselines(rows: Sequence[Row], baselines: Baselines) -> list[Row]:
    """The baselines behind the gains of rows that are not their algorithm's."""
    found: dict[tuple[str, ...], Row] = {}
    for row in rows:
        outcome = baselines.of(row.point) if row.gains and baselines.unlike(row.point) else None
        if outcome is not None:
            point = without_relabelling(row.point)
            found.setdefault(outcome.keys, Row(f"{label(point)} (baseline)", row.algorithm, point, outcome))
    return list(found.values())


def gains_over(outcome: Outcome, base: Outcome | None) -> tuple[float, ...]:
    """Objectives minus those of a baseline; () where one of the two has none."""
    if base is None or not outcome.valid:
        return ()
    return tuple(value - other for value, other in zip(outcome.values, base.values, strict=True))


def paired_gains(outcome: Outcome, base: Outcome | None) -> dict[str, PairedGain]:
    """Gains with their intervals in every metric of both; {} where they do not have the same seeds."""
    if base is None or not outcome.valid or len(outcome.keys) != len(base.keys):
        return {}
    names = [name for name in outcome.per_seed if name in base.per_seed]
    return {name: _paired(outcome.per_seed[name], base.per_seed[name]) for name in names}


def _paired(values: Sequence[float], others: Sequence[float]) -> PairedGain:
    gaps = [value - other for value, other in zip(values, others, strict=True)]
    bounds = (*(t_interval(gaps) or (None, None)), *(bootstrap_interval(gaps) or (None, None)))
    return PairedGain(fmean(gaps), len(gaps), *bounds)


def label(point: Mapping[str, Any]) -> str:
    """A point in a few words: ``fedavg tau=0.05 start=0.8 period=0``."""
    settings = [f"{name.rsplit('.', 1)[-1]}={_short(value)}" for name, value in point.items() if name != ALGORITHM]
    return " ".join([str(point[ALGORITHM]), *settings])


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def pareto_front(rows: Sequence[Row]) -> list[Row]:
    """Valid rows that no other row beats in one objective without losing in another, best first objective first."""
    valid = [row for row in rows if row.outcome.valid]
    front = [row for row in valid if not any(_dominates(other.outcome.values, row.outcome.values) for other in valid)]
    return sorted(front, key=lambda row: row.outcome.values, reverse=True)


def _dominates(left: Sequence[float], right: Sequence[float]) -> bool:
    pairs = list(zip(left, right, strict=True))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def choose(front: Sequence[Row], objectives: Sequence[str]) -> dict[str, Row]:
    """The best row per objective; with several also the balanced one, nearest to all bests after scaling to 0..1."""
    if not front:
        return {}
    ranked = [sorted(front, key=partial(_ranking, index=index), reverse=True) for index in range(len(objectives))]
    chosen = {name: rows[0] for name, rows in zip(objectives, ranked, strict=True)}
    if len(objectives) > 1:
        chosen["balanced"] = front[balanced([row.outcome.values for row in front])]
    return chosen


def best_rows(plan: Plan, trials: Sequence[Row], confirmed: Sequence[Row], seeds: Sequence[int]) -> dict[str, Row]:
    """The rows to recommend: of the confirmed ones where they rest on more seeds; per algorithm in the base stage.

    Args:
        plan: of the study.
        trials: all of them.
        confirmed: of the confirm stage, if it ran.
        seeds: those behind `confirmed`.
    """
    names = plan.request.objective_names
    if plan.request.base_only:
        fronts = {name: pareto_front([row for row in trials if row.algorithm == name]) for name in plan.bases}
        return {name: choose(front, names)[names[0]] for name, front in fronts.items() if front}
    founded = better_founded(plan, confirmed, seeds)
    return choose(pareto_front(candidates(founded or trials, plan.bases)), names)


def better_founded(plan: Plan, confirmed: Sequence[Row], seeds: Sequence[int]) -> list[Row]:
    """Trials that were confirmed on more seeds than the search has."""
    return [row for row in confirmed if len(seeds) > len(plan.seeds) and row.number is not None]


def _ranking(row: Row, index: int) -> tuple[float, ...]:
    values = row.outcome.values
    return (values[index], *values[:index], *values[index + 1 :])
