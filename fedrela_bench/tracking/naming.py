"""Names of runs: in the order of the alphabet a study comes first, then each algorithm's baselines before its cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrela_bench.config import PUBLISHED
from fedrela_bench.tracking.manifest import Record

SHORT = {"relabel.start": "T"}
"""Names of settings that are not the last part of their field's name."""
DIGITS = 6
"""Decimals of a setting, trailing zeros cut off."""


def study_name(study_dir: Path) -> str:
    """The parent run's name."""
    return f"(study) {study_dir.resolve().name}"


def run_name(record: Record, study: Mapping[str, Any]) -> str:
    """A trunk's or cell's name, such as ``fedavg tau=0.05 T=0.80 period=0 seed 01``.

    Args:
        record: of the run.
        study: the contents of ``study.json``.
    """
    seed = f"seed {record.seed:0{_width(study)}d}"
    if record.kind == "trunk" and record.trial is None:
        return f"{record.algorithm} baseline {seed}"
    if record.trial is None:
        return f"{record.name.removesuffix(f' seed {record.seed}')} {seed}"
    relabeler = record.tags.get("relabeler", "")
    who = [f"+ {relabeler}"] if relabeler and "relabel.method" not in _searched(study) else []
    return " ".join([record.algorithm, *who, *settings_of(record, study), seed])


def settings_of(record: Record, study: Mapping[str, Any]) -> list[str]:
    """What the study searches, as this run has it: ``tau=0.05``, ``T=0.80``."""
    from fedrela_bench.tracking.payload import flatten

    searched = _searched(study)
    values = {**PUBLISHED, **dict(flatten(record.config))}
    return [f"{_short(name)}={_text(values[name], searched[name])}" for name in searched if name in values]


def _searched(study: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = study.get("identity", {}).get("space", {}).get("parameters", {})
    return found


def _short(name: str) -> str:
    return SHORT.get(name, name.rsplit(".", 1)[-1])


def _text(value: Any, described: Any) -> str:
    """A value so that texts of one setting sort as its values do."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:0{max(len(str(other)) for other in (*_integers(described), value))}d}"
    if 0 < abs(value) < 10**-DIGITS:
        return f"{value:g}"
    whole, _, decimals = f"{value:.{DIGITS}f}".partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(2, '0')}"


def _integers(described: Any) -> list[int]:
    """All whole numbers in a parameter's description."""
    if isinstance(described, Sequence) and not isinstance(described, str):
        return [number for part in described for number in _integers(part)]
    return [described] if isinstance(described, int) and not isinstance(described, bool) else []


def _width(study: Mapping[str, Any]) -> int:
    seeds = study.get("identity", {}).get("seeds", ())
    return max(2, *(len(str(seed)) for seed in seeds), 2)
