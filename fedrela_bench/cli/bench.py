"""`fedrela-bench bench`: how fast this machine is, and how far from the arithmetic."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrela_bench.cli import common
from fedrela_bench.cli.command import BenchCommand
from fedrela_bench.errors import ConfigError, RunError
from fedrela_bench.faults import unknown_name

if TYPE_CHECKING:
    from fedrela_bench.bench.measure import Settings
    from fedrela_bench.nested import Json

Opt = typer.Option
Names = Annotated[
    list[str] | None, typer.Argument(metavar="[WORKLOAD]...", help="What to time; all: bench --list. [fm digits ...]")
]
List = Annotated[bool, Opt("--list", help="Name the workloads and stop.")]
Short = Annotated[bool, Opt("--short", help="Small forms of the workloads, a minute in all.")]
Rounds = Annotated[int, Opt("--rounds", metavar="N", help="Repetitions that medians are taken over.")]
Workers = Annotated[str, Opt("--workers", metavar="LIST", help="Worker processes, such as 1,2.")]
Amp = Annotated[str, Opt("--amp", metavar="LIST", help="Number formats: none, bf16 or none,bf16.")]
Check = Annotated[
    Path | None, Opt("--check", metavar="FILE", help="Compare with a baseline by ratio; exit 1 when worse.")
]
Tolerance = Annotated[float, Opt("--tolerance", metavar="F", help="What --check lets pass: 0.1 is 10 %.")]
Update = Annotated[Path | None, Opt("--update-baseline", metavar="FILE", help="Put the ratios into a baseline.")]
Out = Annotated[Path | None, Opt("--out", metavar="DIR", help="Write bench.json and bench.txt there.")]
BenchDevice = Annotated[str, Opt("--device", metavar="cpu|cuda", help="Where to compute.")]
MOST_ROUNDS, MOST_WORKERS = 1_000, 1_024


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("bench", cls=BenchCommand)(bench)


def bench(
    workload: Names = None,
    list_workloads: List = False,
    short: Short = False,
    rounds: Rounds = 3,
    workers: Workers = "1",
    amp: Amp = "none",
    device: BenchDevice = "cpu",
    check: Check = None,
    tolerance: Tolerance = 0.1,
    update_baseline: Update = None,
    out: Out = None,
    data_dir: common.DataDir = None,
    json_output: common.JsonOutput = False,
) -> int:
    """Time this machine.

    Rounds of this package beside a usual research loop, the bare steps, and the arithmetic alone.
    """
    from fedrela_bench.bench.workloads import DEFAULT, WORKLOADS

    if list_workloads:
        common.tell(*(f"{name:<12} {work.purpose}" for name, work in WORKLOADS.items()))
        return 0
    names = list(workload or DEFAULT)
    faults = [unknown_name("workload", name, name, WORKLOADS) for name in names if name not in WORKLOADS]
    faults += [f"workload {name} is named twice; name it once" for name in sorted(set(names)) if names.count(name) > 1]
    settings = common.attempt(faults, None, lambda: make_settings(rounds, workers, amp, device))
    faults += _tolerance_faults(tolerance) + _place_faults(out, update_baseline, data_dir)
    if check is not None and update_baseline is not None and check.resolve() == update_baseline.resolve():
        faults.append(
            f"--check and --update-baseline name the same {check}: what is compared with would be replaced, "
            "however bad; check first, then update"
        )
    keys = [f"{name} short" if short else name for name in names]
    baseline = None if check is None else common.attempt(faults, None, lambda: _baseline(check, keys))
    if faults or settings is None:
        raise ConfigError(list(dict.fromkeys(faults)))
    result, failed = _measured(names, short, settings, data_dir, baseline, tolerance)
    _publish(result, out, update_baseline, json_output)
    if failed:
        listed = "\n".join(f"  {line}" for line in failed)
        raise RunError(f"worse than {check} by more than {100 * tolerance:g} %:\n{listed}")
    return 0


def make_settings(rounds: int, workers: str, amp: str, device: str) -> Settings:
    """How to time, from the options.

    Raises:
        ConfigError: everything that is wrong with them.
    """
    from fedrela_bench.bench.measure import Settings

    faults: list[str] = []
    if not 1 <= rounds <= MOST_ROUNDS:
        faults.append(f"--rounds {rounds}: give a number of repetitions from 1 to {MOST_ROUNDS}")
    alone: tuple[int, ...] = (1,)
    counts = common.attempt(faults, alone, lambda: _worker_counts(workers))
    amps = tuple(part.strip() for part in amp.split(","))
    if not set(amps) <= {"none", "bf16"} or len(set(amps)) < len(amps):
        faults.append(f"--amp {amp}: give none, bf16, or none,bf16")
    if device == "auto":
        faults.append("--device auto: say what is timed, cpu or cuda")
    else:
        common.attempt(faults, "cpu", lambda: common.choose_device(device))
    if device == "cuda" and max(counts) > 1:
        faults.append(f"--workers {workers} with --device cuda: worker processes are for the CPU; drop one of the two")
    if faults:
        raise ConfigError(faults)
    return Settings(rounds, counts, amps, device)


def _worker_counts(text: str) -> tuple[int, ...]:
    try:
        counts = tuple(int(part) for part in text.split(","))
    except ValueError:
        counts = ()
    if not counts or len(set(counts)) < len(counts) or not all(1 <= count <= MOST_WORKERS for count in counts):
        raise ConfigError(f"--workers {text}: give numbers of processes from 1 to {MOST_WORKERS}, such as 1,2")
    return counts


def _tolerance_faults(tolerance: float) -> list[str]:
    if math.isfinite(tolerance) and 0 < tolerance < 1:
        return []
    hint = f"did you mean {tolerance / 100:g}?" if 1 <= tolerance <= 100 else "such as 0.1 for 10 %"
    return [f"--tolerance {tolerance:g}: is a fraction above 0 and below 1; {hint}"]


def _place_faults(out: Path | None, baseline: Path | None, data_dir: Path | None) -> list[str]:
    faults = []
    if out is not None:
        there = next(place for place in (out, *out.absolute().parents) if place.exists())
        if not there.is_dir():
            faults.append(f"--out {out}: {'' if there == out else f'{there} '}is a file; name a folder")
        elif not os.access(there, os.W_OK):
            faults.append(f"--out {out}: {there} cannot be written; name another folder")
    if baseline is not None and baseline.is_dir():
        faults.append(f"--update-baseline {baseline}: is a folder; name a file in it")
    elif baseline is not None and baseline.exists():
        from fedrela_bench.bench.check import read_baseline

        common.attempt(faults, None, lambda: read_baseline(baseline))
    if data_dir is not None and not data_dir.is_dir():
        faults.append(f"--data-dir {data_dir}: does not exist or is no folder; correct it or leave it out")
    return faults


def _baseline(path: Path, keys: Sequence[str]) -> Json:
    from fedrela_bench.bench.check import missing, read_baseline

    baseline = read_baseline(path)
    unknown = missing(baseline["cases"], keys)
    if unknown:
        known = ", ".join(sorted(baseline["cases"])) or "nothing"
        raise ConfigError(
            f"--check {path}: holds {known}, but not {', '.join(unknown)}; measure them with --update-baseline {path}"
        )
    return baseline


def _measured(
    names: Sequence[str],
    short: bool,
    settings: Settings,
    data_dir: Path | None,
    baseline: Json | None,
    tolerance: float,
) -> tuple[Json, list[str]]:
    """The result, and what is worse than the baseline."""
    from fedrela_bench.bench.check import confirmed, notes, uncompared
    from fedrela_bench.bench.runner import run

    command = shlex.join(["fedrela-bench", *sys.argv[1:]])
    say = partial(common.tell, to_stderr=True)
    measure = partial(run, short=short, settings=settings, command=command, say=say, data_dir=data_dir)
    result = measure(names)
    if baseline is None:
        return result, []

    def again(key: str) -> Json:
        say(f"{key} seems worse than the baseline; it is measured again")
        return dict(measure([key.partition(" ")[0]])["cases"][0])

    cases, worse = confirmed(baseline["cases"], result["cases"], tolerance, again)
    result["cases"] = cases
    say(*(f"note: {note}" for note in notes(baseline, result)))
    blind = [f"{key}: the baseline holds none of the ratios measured" for key in uncompared(baseline["cases"], cases)]
    return result, [*map(str, worse), *blind]


def _publish(result: Json, out: Path | None, baseline: Path | None, as_json: bool) -> None:
    from fedrela_bench.bench.check import update_baseline, write_text
    from fedrela_bench.bench.results import table

    text = table(result)
    print(json.dumps(result) if as_json else text, flush=True)
    if out is not None:
        write_text(out / "bench.json", json.dumps(result, indent=2) + "\n")
        write_text(out / "bench.txt", text + "\n")
    if baseline is not None:
        update_baseline(baseline, result)
