"""Which baseline a run forked from, and whether the two may be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pandas as pd

from fedrela_bench.yaml_io import parse_scalar

DATA = "data_digest"
PAIRED = {DATA: "data", "param:federation.rounds": "rounds"}
"""Columns in which a run must be like the baseline it is paired with, and how they are named."""
COMPARABLE = ("completed", "stopped", "")
"""Ways in which a finished run ended with a number."""
PARAM = "param:"
NOT_THE_BASE = ("param:seed", "param:relabel.")
"""Starts of columns in which a run and its baseline differ anyway."""
OTHERWISE = "it was computed otherwise: other code, arithmetic or data"
parsed = cache(parse_scalar)
"""A recorded text as a value; few different texts stand in very many runs."""
Settings = Mapping[str, Sequence[str]]


def baselines_of(frame: pd.DataFrame) -> dict[str, tuple[str | None, str]]:
    """Run id to (run id of its baseline, why not).

    The id is None where there is no baseline that finished with a number, or where the two must not be compared. Where
    the algorithm has a finished run without relabelling of that seed, but of another configuration, the reason says in
    what they differ.

    Args:
        frame: of `StudyRuns`.
    """
    if frame.empty:
        return {}
    names = [name for name in PAIRED if name in frame]
    shown = {name: [plain(value) for value in frame[name]] for name in names}
    seeds, runs = frame["seed"].tolist(), frame["run_id"].tolist()
    trunks = trunks_by_key(frame)
    others = _Others(frame, trunks)
    found: dict[str, tuple[str | None, str]] = {}
    for place, key in enumerate(zip(frame["trunk_key"], seeds, strict=True)):
        other = trunks.get(key)
        unlike = [name for name in names if other is not None and shown[name][place] != shown[name][other]]
        why = ", ".join(f"{PAIRED[name]} {shown[name][place]} against {shown[name][other or 0]}" for name in unlike)
        why = why if other is not None else others.why(place)
        found[runs[place]] = (None if other is None or why else runs[other], why)
    return found


class _Others:
    """Baselines that runs have in place of their own."""

    def __init__(self, frame: pd.DataFrame, trunks: Mapping[tuple[str, int], int]) -> None:
        self.frame, self.places = frame, list(trunks.values())
        self._settings: Settings | None = None

    def why(self, place: int) -> str:
        """In what the nearest baseline of the run's algorithm and seed differs; nothing where there is none."""
        kind, algorithm, seed = (self.frame[name].iloc[place] for name in ("kind", "algorithm", "seed"))
        names = zip(self.frame["algorithm"].iloc[self.places], self.frame["seed"].iloc[self.places], strict=True)
        near = [other for other, name in zip(self.places, names, strict=True) if name == (algorithm, seed)]
        if kind == "trunk" or not near:
            return ""
        if self._settings is None:
            self._settings = settings_of(self.frame)
        unlike = min((differing(self._settings, place, other) for other in near), key=len)
        return ", ".join(unlike) or OTHERWISE


def trunks_by_key(frame: pd.DataFrame) -> dict[tuple[str, int], int]:
    """(key, seed) of every baseline that finished with a number to its first place in the frame."""
    good = (frame["run_status"] == "FINISHED") & frame["status"].isin(COMPARABLE) & (frame["kind"] == "trunk")
    listed = [(place, key) for place, (key, usable) in enumerate(zip(frame["key"], good, strict=True)) if usable]
    seeds = frame["seed"].tolist()
    return {(key, seeds[place]): place for place, key in reversed(listed)}


def settings_of(frame: pd.DataFrame) -> Settings:
    """The recorded fields that a run shares with its baseline, by column, one text a run."""
    columns = [str(name) for name in frame.columns if str(name).startswith(PARAM)]
    return {name: [plain(v) for v in frame[name]] for name in columns if not name.startswith(NOT_THE_BASE)}


def differing(settings: Settings, place: int, other: int) -> list[str]:
    """Fields in which two runs differ, such as ``federation.options.mu 0.1 against 0.01``."""
    return [
        f"{name.removeprefix(PARAM)} {values[place]} against {values[other]}"
        for name, values in settings.items()
        if values[place] != values[other] and parsed(values[place]) != parsed(values[other])
    ]


def plain(value: Any) -> str:
    """A value of the frame as text: whole numbers without a point, ``unknown`` for none."""
    if value is None or value != value or value == "":
        return "unknown"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
