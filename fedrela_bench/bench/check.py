"""Comparison with a committed baseline by ratio, so that another machine's speed does not matter."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrela_bench.bench.figures import ratio_json
from fedrela_bench.bench.results import SCHEMA
from fedrela_bench.errors import ConfigError, StoreError
from fedrela_bench.files import write_atomically
from fedrela_bench.nested import Json

ATTEMPTS = 3
"""A ratio is called worse when it is so over all repetitions of that many measurements."""
TOLERANCE = 0.10
Ratios = Mapping[str, Mapping[str, float]]
"""Case to ratio to value; lower is better for all of them."""


@dataclass(frozen=True)
class Slower:
    """A ratio that got worse by more than the tolerance."""

    case: str
    ratio: str
    was: float
    now: float

    def __str__(self) -> str:
        change = f"{100 * (self.now / self.was - 1):+.0f} %"
        return f"{self.case}: {self.ratio} was {self.was:.3f} and is {self.now:.3f} ({change})"


def read_baseline(path: Path) -> Json:
    """A baseline file.

    Raises:
        ConfigError: missing, not a baseline, or of another version.
    """
    remedy = f"{'delete it and ' if path.exists() else ''}make one with --update-baseline {path}"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read baseline {path}: {error.strerror or error}; {remedy}") from error
    except ValueError as error:
        raise ConfigError(f"baseline {path} is not JSON ({error}); {remedy}") from error
    if not _is_baseline(values):
        raise ConfigError(f"{path} is no baseline of schema {SCHEMA}; {remedy}")
    return dict(values)


def _is_baseline(values: object) -> bool:
    if not isinstance(values, dict) or values.get("schema") != SCHEMA or not isinstance(values.get("cases"), dict):
        return False
    machine = values.get("machine", {})
    if not isinstance(machine, dict) or not isinstance(machine.get("flags", []), list):
        return False
    tables = values["cases"].values()
    return all(isinstance(table, dict) and all(_positive(ratio) for ratio in table.values()) for table in tables)


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")


def update_baseline(path: Path, result: Json) -> None:
    """Put a result's ratios into a baseline file; its other cases and ratios stay.

    Raises:
        ConfigError: the file is there and is no baseline.
        StoreError: it cannot be written.
    """
    old: Json = read_baseline(path) if path.exists() else {"cases": {}}
    cases = {name: dict(table) for name, table in old["cases"].items()}
    for case in result["cases"]:
        known = cases.setdefault(case["key"], {})
        known |= {name: round(ratio["median"], 4) for name, ratio in case["ratios"].items()}
    document = {"schema": SCHEMA, "machine": result["machine"], "cases": cases}
    write_text(path, json.dumps(document, indent=2, sort_keys=True) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all.

    Raises:
        StoreError: it cannot be written.
    """
    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror or error}; free space or choose another place"
        ) from error


def slower(baseline: Ratios, case: Json, tolerance: float) -> list[Slower]:
    """The ratios of a case that are worse than the baseline's by more than the tolerance."""
    known = baseline.get(case["key"], {})
    both = ((name, known[name], ratio["median"]) for name, ratio in case["ratios"].items() if name in known)
    return [Slower(case["key"], name, was, now) for name, was, now in both if now > was * (1 + tolerance)]


def confirmed(
    baseline: Ratios, cases: Sequence[Json], tolerance: float, again: Callable[[str], Json]
) -> tuple[list[Json], list[Slower]]:
    """Look at every case; one that seems worse is measured again before it is called so.

    Args:
        baseline: the ratios to hold.
        cases: entries of a result.
        tolerance: 0.1 allows 10 % more.
        again: measures the case of that key anew.

    Returns:
        The cases with the values of all their measurements, and what is worse over all of them.
    """
    seen, found = [], []
    for case in cases:
        for _ in range(ATTEMPTS - 1):
            if not slower(baseline, case, tolerance):
                break
            case = pooled(case, again(case["key"]))
        seen.append(case)
        found += slower(baseline, case, tolerance)
    return seen, found


def pooled(first: Json, second: Json) -> Json:
    """The first case with the ratios over both measurements."""
    ratios = {
        name: ratio_json([*ratio["values"], *second["ratios"][name]["values"]])
        for name, ratio in first["ratios"].items()
    }
    return {**first, "ratios": ratios}


def missing(baseline: Ratios, keys: Sequence[str]) -> list[str]:
    """Cases that the baseline does not know."""
    return [key for key in keys if not baseline.get(key)]


def notes(baseline: Json, result: Json) -> Iterator[str]:
    """What a reader of the comparison must know: another processor, ratios that nothing is known of."""
    was, now = (machine_name(document) for document in (baseline, result))
    if was != now:
        yield f"the baseline was measured on {was}, this is {now}; ratios can differ between processors"
    for case in result["cases"]:
        known = baseline["cases"].get(case["key"], {})
        new = [name for name in case["ratios"] if name not in known]
        if new:
            yield f"{case['key']}: not in the baseline and not compared: {', '.join(new)}"
        gone = [name for name in known if name not in case["ratios"]]
        if gone:
            yield f"{case['key']}: in the baseline but not measured here, and not compared: {', '.join(gone)}"


def uncompared(baseline: Ratios, cases: Sequence[Json]) -> list[str]:
    """Cases of which the baseline knows no ratio that was measured, so that a comparison says nothing of them."""
    return [case["key"] for case in cases if not baseline.get(case["key"], {}).keys() & case["ratios"].keys()]


def machine_name(document: Mapping[str, Any]) -> str:
    """Processor, flags and device of a document."""
    machine = document.get("machine", {})
    parts = [str(part) for part in (machine.get("cpu", "an unknown processor"), *machine.get("flags", []))]
    device = machine.get("device", "cpu")
    return " ".join(parts) if device == "cpu" else f"{device} with {parts[0]}"
