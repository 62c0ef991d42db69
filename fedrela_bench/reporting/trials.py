"""A study's relabelled configurations and what they set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedrela_bench.choice import RELABELER
from fedrela_bench.reporting.arms import OPTIONS, Arm, configurations, filtered, usable
from fedrela_bench.reporting.baselines import parsed

if TYPE_CHECKING:
    from fedrela_bench.reporting.source import StudyRuns
    from fedrela_bench.reporting.spec import ReportSpec

ALGORITHM = "algorithm"
START = "relabel.start"
PERIOD = "relabel.period"
FIRST = ("relabel.tau", START, PERIOD)
"""Order of the settings; others follow by name."""
_NOT_SET = {"seed", "federation.algorithm"}
SHORT = {"relabel.tau": "τ", START: "T / rounds", "training.lr": "learning rate"}


@dataclass(frozen=True)
class Trial:
    """One configuration.

    Attributes:
        arm: its runs; labelled by its key.
        settings: what varies over the study, by dotted name; `relabel.start` is T as a share of the rounds, None stands
            for what this algorithm does not have.
    """

    arm: Arm
    settings: Mapping[str, Any]

    @property
    def algorithm(self) -> str:
        """The base algorithm."""
        return self.arm.algorithm

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of its runs, in order."""
        return tuple(sorted(int(seed) for seed in self.arm.runs["seed"]))


def trials(runs: StudyRuns, spec: ReportSpec) -> list[Trial]:
    """The relabelled configurations that a spec's filters and seeds leave, algorithm by algorithm.

    Where a study relabels nothing, its configurations without relabelling.
    """
    good = filtered(usable(runs.frame, spec.seeds), spec.where)
    cells = good[(good["kind"] == "cell") & (good["arm"] != RELABELER)]
    cells = cells if len(cells) else good
    values = _values(cells)
    names = _varied(cells, values)
    found = []
    for algorithm in sorted(set(cells["algorithm"])):
        for group in configurations(cells[cells["algorithm"] == algorithm]).values():
            settings = {name: values[name][group.index[0]] for name in names}
            found.append(Trial(Arm(str(group["config_key"].iloc[0]), group, {}), settings))
    return found


def compared(found: Iterable[Trial]) -> list[Trial]:
    """Of each algorithm the configurations with the most seeds, whose means can be compared."""
    listed = list(found)
    most: dict[str, int] = {}
    for trial in listed:
        most[trial.algorithm] = max(len(trial.seeds), most.get(trial.algorithm, 0))
    return [trial for trial in listed if len(trial.seeds) == most[trial.algorithm]]


def short_setting(name: str) -> str:
    """A setting's name on an axis."""
    return SHORT.get(name, name.rpartition(".")[2].replace("_", " "))


def shown_value(name: str, value: object) -> str:
    """A setting's value for readers, such as ``80 %`` of the rounds."""
    if name in (START, "relabel.tau") and isinstance(value, int | float):
        return f"{100 * value:.3g} %"
    return f"{value:g}" if isinstance(value, float) else "–" if value is None else str(value)


def _values(cells: pd.DataFrame) -> dict[str, dict[int, Any]]:
    """Setting to its value in each row of the frame."""
    columns = [str(name) for name in cells.columns if str(name).startswith("param:")]
    several = {name.removeprefix("param:") for name in columns if cells[name].nunique(dropna=False) > 1}
    read = {name: _read(cells, name) for name in sorted(several - _NOT_SET)}
    rounds = _read(cells, "federation.rounds")
    for place, text in zip(cells.index, cells["fork_round"], strict=True):
        if not text or not rounds[place]:
            continue
        fork = int(parsed(text))
        if START in read:
            read[START][place] = fork / rounds[place]
        if PERIOD in read and fork + (read[PERIOD][place] or 0) >= rounds[place]:
            # A period that never comes round relabels once.
            read[PERIOD][place] = 0
    return {name: read[name] for name in sorted(read, key=lambda name: (_rank(name), name))}


def _rank(name: str) -> int:
    return FIRST.index(name) if name in FIRST else len(FIRST)


def _read(cells: pd.DataFrame, name: str) -> dict[int, Any]:
    column = f"param:{name}"
    if column not in cells:
        return dict.fromkeys(cells.index)
    given = [parsed(text) if isinstance(text, str) else OPTIONS.get(name) for text in cells[column]]
    return dict(zip(cells.index, given, strict=True))


def _varied(cells: pd.DataFrame, values: Mapping[str, Mapping[int, Any]]) -> list[str]:
    """What takes several values within some algorithm."""
    parts = [list(group.index) for _, group in cells.groupby(ALGORITHM)]
    return [name for name, own in values.items() if any(len({str(own[place]) for place in part}) > 1 for part in parts)]
