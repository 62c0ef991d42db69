"""Arms of a comparison: the runs of one configuration over its seeds, and the choice among configurations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fedrela_bench.choice import RELABELER, SEARCHED
from fedrela_bench.config import RelabelConfig, TrialConfig
from fedrela_bench.errors import ConfigError
from fedrela_bench.neutral import neutral_values
from fedrela_bench.reporting.baselines import parsed
from fedrela_bench.reporting.evenness import one_per_seed, trunks_of
from fedrela_bench.reporting.select import RoundRule, run_value, selection_metric, values_by_seed
from fedrela_bench.reporting.source import TAGS, StudyRuns
from fedrela_bench.reporting.spec import ReportSpec, RowSpec
from fedrela_bench.reporting.stats import summarize

_OF_THE_RUN = {"seed", "relabel.tau", "relabel.start", "relabel.period", "federation.algorithm", "federation.rounds"}
_RELABELER = ("relabel.method", "relabel.options.")
_OPTION = "federation.options."
DEFAULT = "default"
"""Stands for an option that a run does not record, where the algorithm's default is not known."""
CONTROLS = (RELABELER, SEARCHED)
"""What the tag `arm` says of runs whose relabeler is there to be compared with FedReLa."""
OPTIONS = {f"relabel.{name}": value for name, value in RelabelConfig().model_dump(mode="json").items()}
OPTIONS |= dict(neutral_values(TrialConfig))
"""What a run does where it records nothing; of relabelling only a relabelled one."""


@dataclass(frozen=True)
class Arm:
    """One configuration over its seeds.

    Attributes:
        label: what readers see.
        runs: its rows of `StudyRuns.frame`, one per seed.
        reference: filters on the published numbers beside it.
    """

    label: str
    runs: pd.DataFrame
    reference: Mapping[str, Any]

    @property
    def is_baseline(self) -> bool:
        """Whether these are trunks: runs without relabelling."""
        return bool((self.runs["kind"] == "trunk").all())

    @property
    def algorithm(self) -> str:
        """The base algorithm, such as ``fedavg``; of several the first."""
        return str(self.runs["algorithm"].iloc[0])

    @property
    def fork_round(self) -> int | None:
        """T, completed rounds before the first relabelling; None for a baseline."""
        rounds = [parsed(text) for text in self.runs["fork_round"] if text]
        return None if self.is_baseline or not rounds else int(rounds[0])

    def values(self, runs: StudyRuns, metric: str, rule: RoundRule) -> dict[int, float]:
        """Seed to number, as fractions."""
        return values_by_seed(runs, self.runs, metric, rule)

    def baseline_values(self, runs: StudyRuns, metric: str, rule: RoundRule) -> dict[int, float]:
        """Seed to the number of the trunk that the seed's run forked from, where the two may be compared."""
        trunks = {seed: trunk for seed, (trunk, _) in trunks_of(runs, self.runs).items() if trunk is not None}
        return {seed: run_value(runs, trunk, metric, rule) for seed, trunk in trunks.items()}


def usable(frame: pd.DataFrame, seeds: Iterable[int] | None) -> pd.DataFrame:
    """Runs that finished with a number, of the seeds asked for."""
    good = frame[(frame["run_status"] == "FINISHED") & frame["status"].isin(["completed", "stopped", ""])]
    return good if seeds is None else good[good["seed"].isin(list(seeds))]


def filtered(frame: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """Rows whose tags and configuration fields equal all the given values.

    Options that a run does not record, and of relabelling a relabelled one, are at the values that are never recorded.
    """
    fits = np.ones(len(frame), dtype=bool)
    kinds = frame["kind"].tolist()
    for name, wanted in where.items():
        column = name if name in TAGS else f"param:{name}"
        values = frame[column].tolist() if column in frame else [None] * len(frame)
        if name in OPTIONS:
            values = [
                OPTIONS[name] if pd.isna(value) and (kind != "trunk" or not name.startswith("relabel.")) else value
                for kind, value in zip(kinds, values, strict=True)
            ]
        fits &= np.fromiter((_equal(value, wanted) for value in values), dtype=bool, count=len(values))
    return frame[fits]


def build_arms(runs: StudyRuns, spec: ReportSpec) -> list[Arm]:
    """The arms of all rows of a spec, in its order; a row that no run fits gives an arm without runs.

    Raises:
        ConfigError: a row that should name one configuration fits several.
    """
    good = filtered(usable(runs.frame, spec.seeds), spec.where)
    parts = [part for _, part in good.groupby("algorithm")] if spec.per_algorithm else []
    arms: list[Arm] = []
    for part in parts or [good]:
        for row in spec.rows:
            _add(arms, runs, part, row, spec)
    return arms


def front(runs: StudyRuns, groups: Mapping[str, pd.DataFrame], rule: RoundRule) -> list[str]:
    """Keys of the Pareto front on the images that choose, the largest overall accuracy there first."""
    points = {key: objective_means(runs, group, runs.objectives, rule) for key, group in groups.items()}
    overall = {key: objective_means(runs, groups[key], ["overall"], rule)[0] for key in pareto(points)}
    return sorted(overall, key=lambda key: (-overall[key], tuple(-value for value in points[key]), key))


def most_seeds(groups: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The configurations with the most seeds: the ones that can be compared by their means."""
    most = max((len(group) for group in groups.values()), default=0)
    return {key: group for key, group in groups.items() if len(group) == most}


def automatic_label(frame: pd.DataFrame, group: pd.DataFrame) -> str:
    """The algorithm and what sets this configuration apart, such as ``fedavg, τ=0.05, T=24 of 30``."""
    first = group.iloc[0]
    parts = [str(first["algorithm"])]
    if first["kind"] != "trunk":
        tau, period = _param(first, "relabel.tau"), _param(first, "relabel.period")
        parts[0] += f" + {first['relabeler']}" if first["relabeler"] else ""
        parts += [f"τ={tau}" if tau else "no relabelling"]
        parts += [f"T={first['fork_round']} of {_param(first, 'federation.rounds')}"]
        parts += [f"period {period}"] if period else []
    names = _varied(frame, str(first["kind"]), str(first["algorithm"]))
    names = [name for name in names if not (first["relabeler"] and name.startswith(_RELABELER))]
    names = [name for name in names if name != _RELABELER[0]]
    return ", ".join([*parts, *(f"{_short(name, names)}={_figures(_filled(first, name))}" for name in names)])


def _short(name: str, others: Iterable[str]) -> str:
    """The last part of a dotted name, where no other name ends so."""
    last = name.rpartition(".")[2]
    return last if [other.rpartition(".")[2] for other in others].count(last) == 1 else name


def _figures(value: Any) -> str:
    """A number drawn from a range, in few enough digits to read."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def pareto(points: Mapping[str, tuple[float, ...]]) -> list[str]:
    """Names of the points that no other point equals or exceeds in every coordinate with one larger."""
    finite = {name: point for name, point in points.items() if not any(math.isnan(value) for value in point)}
    return [
        name
        for name, point in finite.items()
        if not any(
            all(o >= p for o, p in zip(other, point, strict=True)) and other != point for other in finite.values()
        )
    ]


def objective_means(
    runs: StudyRuns, group: pd.DataFrame, objectives: Iterable[str], rule: RoundRule
) -> tuple[float, ...]:
    """Mean over seeds of each objective where it is measured for choosing."""
    means = []
    for objective in objectives:
        metric = selection_metric(objective, str(group["selection"].iloc[0]))
        summary = summarize(values_by_seed(runs, group, metric, rule))
        means.append(summary.mean if summary else math.nan)
    return tuple(means)


def configurations(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Configuration key to its runs, one per seed.

    Raises:
        ConfigError: a seed has two different computations of one configuration.
    """
    return {str(key): one_per_seed(group) for key, group in frame.groupby("config_key", sort=False)}


def _add(arms: list[Arm], runs: StudyRuns, part: pd.DataFrame, row: RowSpec, spec: ReportSpec) -> None:
    mark = f" ({row.mark})" if row.mark else ""
    groups = configurations(filtered(_with_controls(part, row), row.runs))
    chosen = _choose(runs, groups, row, spec.round_rule)
    if not chosen and not row.optional:
        whose = {"algorithm": part["algorithm"].iloc[0]} if spec.per_algorithm and len(part) else {}
        arms.append(Arm(row.name or _filters_text({**whose, **row.runs}), part.iloc[:0], row.reference))
    for group in chosen:
        key = group["config_key"].iloc[0]
        shown = [place for place, arm in enumerate(arms) if key in set(arm.runs["config_key"])]
        if not (row.optional and shown):
            arms.append(Arm((row.name or automatic_label(runs.frame, group)) + mark, group, row.reference))
        elif mark:
            arms[shown[0]] = replace(arms[shown[0]], label=arms[shown[0]].label + mark)


def _with_controls(part: pd.DataFrame, row: RowSpec) -> pd.DataFrame:
    """Controls of FedReLa stand only in rows that ask for them by `arm` or `relabel.method`."""
    return part if {"arm", "relabel.method"} & set(row.runs) else part[~part["arm"].isin(CONTROLS)]


def _choose(runs: StudyRuns, groups: dict[str, pd.DataFrame], row: RowSpec, rule: RoundRule) -> list[pd.DataFrame]:
    if row.choose == "each":
        return sorted(groups.values(), key=_relabelling)
    if row.choose == "only":
        if len(groups) > 1:
            shown = _filters_text(row.runs)
            raise ConfigError(
                f"{len(groups)} configurations fit the row {row.name or shown!r} ({shown}); "
                "add a filter to `runs` or set `choose`"
            )
        return list(groups.values())
    full = most_seeds(groups)
    if row.choose == "front":
        return [full[key] for key in front(runs, full, rule)]
    objective = row.choose.removeprefix("best:")
    scores = {key: objective_means(runs, group, [objective], rule)[0] for key, group in full.items()}
    measured = {key: score for key, score in scores.items() if not math.isnan(score)}
    return [full[max(measured, key=lambda key: measured[key])]] if measured else []


def _relabelling(group: pd.DataFrame) -> tuple[float, ...]:
    """τ, T and period of a configuration: what readers look for first."""
    first = group.iloc[0]
    values = (_param(first, "relabel.tau"), first["fork_round"] or 0, _param(first, "relabel.period"))
    return tuple(float(value) if value is not None and not pd.isna(value) else 0.0 for value in values)


def _equal(value: object, wanted: object) -> bool:
    given = parsed(value) if isinstance(value, str) else value
    if isinstance(wanted, int | float) and not isinstance(wanted, bool):
        return (
            isinstance(given, int | float) and not isinstance(given, bool) and math.isclose(given, wanted, rel_tol=1e-9)
        )
    return bool(given == wanted) or str(value) == str(wanted)


def _param(row: pd.Series[Any], name: str) -> Any:
    value = row.get(f"param:{name}")
    return parsed(value) if isinstance(value, str) else value


def _filled(row: pd.Series[Any], name: str) -> Any:
    """A field of a run, also where nothing is recorded since it is at what it is without being told."""
    value = _param(row, name)
    return OPTIONS.get(name, DEFAULT) if value is None or pd.isna(value) else value


def _varied(frame: pd.DataFrame, kind: str, algorithm: str) -> list[str]:
    """What sets runs of an algorithm apart: relabelling among those of a kind, everything else among all."""
    own = frame[frame["algorithm"] == algorithm]
    alike = own[own["kind"] == kind]
    names = sorted(str(name).removeprefix("param:") for name in frame.columns if str(name).startswith("param:"))
    parts = {name: alike if name.startswith("relabel.") else own for name in names if name not in _OF_THE_RUN}
    return [name for name, part in parts.items() if len(_recorded(part, name)) > 1]


def _recorded(part: pd.DataFrame, name: str) -> set[str]:
    """Different values of a field as text; a run that records none has the one that is never recorded."""
    unsaid = str(OPTIONS.get(name, DEFAULT))
    values = {unsaid if pd.isna(value) else str(value) for value in set(part[f"param:{name}"])}
    return values if name.startswith(_OPTION) else values - {DEFAULT}


def _filters_text(where: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in where.items())
