"""Options that runs do not record, since they are at the algorithm's default, filled in so that runs compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from fedrela_bench.reporting.baselines import DATA, differing, settings_of, trunks_by_key
from fedrela_bench.reporting.source import StudyRuns

OptionReader = Callable[[str], Mapping[str, Any]]
"""Algorithm to the default of each of its options; {} for one that is not known."""
OPTION = "param:federation.options."
COMPUTED = (DATA, "device", "version.torch", "simulation_version")
"""Columns in which two runs of one computation are alike."""


def with_defaults(runs: StudyRuns, read: OptionReader | None) -> StudyRuns:
    """The runs with options at their defaults where other runs of the algorithm record a value.

    A run that records the default and one that records nothing are then one configuration: its baseline is whichever
    of the two the study has.

    Args:
        runs: a study, or several.
        read: the defaults; None leaves the runs as they are.
    """
    missing = list(_missing(runs.frame)) if read is not None else []
    if read is None or not missing:
        return runs
    frame, filled = runs.frame.copy(), False
    known = {algorithm: read(algorithm) for algorithm in dict.fromkeys(name for name, _ in missing)}
    for algorithm, column in missing:
        option = column.removeprefix(OPTION)
        if option in known[algorithm] and known[algorithm][option] is not None:
            empty = (frame["algorithm"] == algorithm) & frame[column].isna()
            frame.loc[empty, column], filled = str(known[algorithm][option]), True
    if not filled:
        return runs
    frame["trunk_key"] = list(_trunk_keys(runs.frame, frame))
    return replace(runs, frame=frame)


def _missing(frame: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """(algorithm, column) of options that some of an algorithm's runs record."""
    columns = [str(name) for name in frame.columns if str(name).startswith(OPTION)]
    for algorithm, part in frame.groupby("algorithm"):
        yield from ((str(algorithm), name) for name in columns if part[name].isna().any() and part[name].notna().any())


def _trunk_keys(before: pd.DataFrame, after: pd.DataFrame) -> Iterator[str]:
    """The baseline of every run: where it is not in the frame, one that is alike but for what it records."""
    trunks = trunks_by_key(after)
    settings = settings_of(after)
    options = [name for name in before.columns if str(name).startswith(OPTION)]
    recorded = before[options].notna().to_numpy()
    computed = after[list(COMPUTED)].to_numpy()
    rows = zip(after["trunk_key"], after["seed"], after["algorithm"], strict=True)
    for place, (key, seed, algorithm) in enumerate(rows):
        alike = [
            other_key
            for (other_key, other_seed), other in ({} if (key, seed) in trunks else trunks).items()
            if other_seed == seed
            and after["algorithm"].iloc[other] == algorithm
            and (recorded[place] != recorded[other]).any()
            and (computed[place] == computed[other]).all()
            and not differing(settings, place, other)
        ]
        yield alike[0] if alike else key
