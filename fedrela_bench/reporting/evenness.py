"""What the runs of a table do not share: rounds, devices, versions, data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedrela_bench.errors import ConfigError
from fedrela_bench.reporting.baselines import DATA, plain

if TYPE_CHECKING:
    from fedrela_bench.reporting.arms import Arm
    from fedrela_bench.reporting.source import StudyRuns

MIXED = "§"
SHARED = {
    "version.fedrela_bench": "fedrela-bench",
    "version.torch": "torch",
    "simulation_version": "simulation",
    "device": "device",
    "selection": "selection",
    "param:federation.rounds": "rounds",
    "last_round": "last round",
}
"""Columns that all runs of a comparison should agree in, and how they are named."""


def uneven(arms: Sequence[Arm]) -> dict[int, list[str]]:
    """Place of an arm to how its runs differ from most runs of the table; arms that do not are left out.

    Each of `SHARED` is compared over all runs and the data digest among the runs of a seed, since a partition may
    follow the seed. Where no value is that of most runs, every arm is listed.
    """
    used = [arm.runs.assign(_arm=place) for place, arm in enumerate(arms) if len(arm.runs)]
    if not used:
        return {}
    frame = pd.concat(used, ignore_index=True)
    found: dict[int, list[str]] = {}
    for column, name in SHARED.items():
        if column in frame:
            _note(found, frame, column, name)
    for seed, part in frame.groupby("seed"):
        _note(found, part, DATA, f"data of seed {seed}")
    return found


def uneven_notes(arms: Sequence[Arm]) -> Iterator[str]:
    """The footnote of `MIXED`."""
    found = uneven(arms)
    if found:
        rows = "; ".join(f"{arms[place].label}: {', '.join(reasons)}" for place, reasons in sorted(found.items()))
        yield f"{MIXED} not like most runs of this table in what a comparison should share ({rows})."


def _note(found: dict[int, list[str]], frame: pd.DataFrame, column: str, name: str) -> None:
    values = frame[column].map(plain)
    counts = values.value_counts()
    if len(counts) < 2:
        return
    most = counts[counts == counts.max()].index
    usual = most[0] if len(most) == 1 else None
    for place, own in values.groupby(frame["_arm"]):
        others = own[own != usual]
        if len(others):
            shown = " and ".join(sorted(set(others), key=_order))
            part = "" if len(others) == len(own) else f" in {len(others)} of {len(own)} runs"
            found.setdefault(int(str(place)), []).append(f"{name} {shown}{part}")


def _order(text: str) -> tuple[float, str]:
    return (float(text), text) if text.replace(".", "", 1).isdigit() else (0.0, text)


def one_per_seed(group: pd.DataFrame) -> pd.DataFrame:
    """The runs of one configuration, each seed once.

    Args:
        group: ordered by seed.

    Raises:
        ConfigError: two runs of one seed are not the same computation, so that neither is the seed's number.
    """
    if group["seed"].is_unique:
        return group
    for seed, same in group.groupby("seed"):
        if same["key"].nunique() > 1:
            names = [column for column in (DATA, *SHARED) if column in same and same[column].nunique(dropna=False) > 1]
            told = ", ".join(f"{name.removeprefix('param:')} {_values(same[name])}" for name in names) or "nothing told"
            raise ConfigError(
                f"two runs of {same['algorithm'].iloc[0]} with the same configuration and seed {seed} are different "
                f"computations ({told}); keep one of them by a filter in the spec's `where`, such as "
                f"{(names or ['key'])[0].removeprefix('param:')}: VALUE"
            )
    return group.drop_duplicates("seed")


def _values(column: pd.Series[Any]) -> str:
    return " and ".join(sorted({plain(value) for value in column}, key=_order))


def trunks_of(runs: StudyRuns, group: pd.DataFrame) -> dict[int, tuple[str | None, str]]:
    """Seed to (run id, why not) of the baseline that the seed's run forked from.

    The id is None where there is no baseline that finished, or where the two must not be compared.

    Args:
        runs: the study.
        group: rows of its frame, one per seed.
    """
    return {int(seed): runs.baselines[run_id] for seed, run_id in zip(group["seed"], group["run_id"], strict=True)}
