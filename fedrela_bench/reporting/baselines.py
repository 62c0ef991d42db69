"""Which baseline a run forked from, and whether the two may be compared."""

from __future__ import annotations

from typing import Any

import pandas as pd

DATA = "data_digest"
PAIRED = {DATA: "data", "param:federation.rounds": "rounds"}
"""Columns in which a run must be like the baseline it is paired with, and how they are named."""
COMPARABLE = ("completed", "stopped", "")
"""Ways in which a finished run ended with a number."""


def baselines_of(frame: pd.DataFrame) -> dict[str, tuple[str | None, str]]:
    """Run id to (run id of its baseline, why not).

    The id is None where there is no baseline that finished with a number, or where the two must not be compared.

    Args:
        frame: of `StudyRuns`.
    """
    if frame.empty:
        return {}
    names = [name for name in PAIRED if name in frame]
    shown = {name: [plain(value) for value in frame[name]] for name in names}
    seeds, runs = frame["seed"].tolist(), frame["run_id"].tolist()
    trunks = _trunks(frame, seeds)
    found: dict[str, tuple[str | None, str]] = {}
    for place, key in enumerate(zip(frame["trunk_key"], seeds, strict=True)):
        other = trunks.get(key)
        differing = [name for name in names if other is not None and shown[name][place] != shown[name][other]]
        why = ", ".join(f"{PAIRED[name]} {shown[name][place]} against {shown[name][other or 0]}" for name in differing)
        found[runs[place]] = (None if other is None or why else runs[other], why)
    return found


def _trunks(frame: pd.DataFrame, seeds: list[int]) -> dict[tuple[str, int], int]:
    """(key, seed) to the first place of that baseline in the frame."""
    good = (frame["run_status"] == "FINISHED") & frame["status"].isin(COMPARABLE) & (frame["kind"] == "trunk")
    listed = [(place, key) for place, (key, usable) in enumerate(zip(frame["key"], good, strict=True)) if usable]
    return {(key, seeds[place]): place for place, key in reversed(listed)}


def plain(value: Any) -> str:
    """A value of the frame as text: whole numbers without a point, ``unknown`` for none."""
    if value is None or value != value or value == "":
        return "unknown"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
