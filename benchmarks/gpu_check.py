"""Checks and times the simulator on a GPU within a few minutes: python benchmarks/gpu_check.py --out DIR.

Writes gpu_check.json and gpu_check.txt after every step; docs/gpu.md says how to read them. Exit code 1 where the GPU
does not compute what the CPU does, 2 for wrong input.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fedrela_bench.errors import BenchError, ConfigError
from fedrela_bench.faults import unknown_name

if TYPE_CHECKING:
    from fedrela_bench.bench.gpu.steps import Step

MOST_MINUTES = 60.0
END_SECONDS = 3.0
"""Kept for leaving: the last files, and the device handed back."""


def main(words: Sequence[str]) -> int:
    """Run the check; gives the exit code. The time runs from here on, loading libraries included."""
    started = time.monotonic()
    given = _parser().parse_args(words)
    given.minutes = given.minutes if given.minutes is not None else 1.0 if given.tiny else 8.0
    try:
        return _check(given, _steps(given), started, words)
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _check(given: argparse.Namespace, steps: list[Step], started: float, words: Sequence[str]) -> int:
    from fedrela_bench.bench.gpu.budget import Budget
    from fedrela_bench.bench.gpu.runner import exit_code, run
    from fedrela_bench.bench.gpu.steps import Settings
    from fedrela_bench.bench.gpu.table import table

    command = shlex.join(["python", "benchmarks/gpu_check.py", *words])
    say = partial(print, file=sys.stderr, flush=True)
    budget = Budget(max(0.0, 60 * given.minutes - END_SECONDS - (time.monotonic() - started)))
    document = run(steps, Settings(given.device, given.tiny), budget, given.out, command, say)
    print(table(document))
    return exit_code(document)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpu_check.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where results are written")
    parser.add_argument("--device", default="cuda", metavar="cpu|cuda", help="what is compared with the CPU [cuda]")
    parser.add_argument("--minutes", type=float, metavar="M", help="when everything must be over [8; tiny 1]")
    parser.add_argument("--only", default="", metavar="LIST", help="steps by name, such as equality,'fm bf16' [all]")
    parser.add_argument("--tiny", action="store_true", help="smallest sizes: shows that the script runs, times nothing")
    return parser


def _steps(given: argparse.Namespace) -> list[Step]:
    """The steps that are wanted.

    Raises:
        ConfigError: everything that is wrong with the options.
    """
    from fedrela_bench.bench.gpu.runner import all_steps

    known = {step.name: step for step in all_steps(given.tiny)}
    wanted = [name.strip() for name in given.only.split(",") if name.strip()] or list(known)
    faults = [unknown_name("step", f"--only {name}", name, known) for name in wanted if name not in known]
    if not 0 < given.minutes <= MOST_MINUTES:
        faults.append(f"--minutes {given.minutes:g}: give minutes above 0 and up to {MOST_MINUTES:g}")
    there = next(place for place in (given.out, *given.out.absolute().parents) if place.exists())
    if not there.is_dir():
        faults.append(f"--out {given.out}: {'' if there == given.out else f'{there} '}is a file; name a folder")
    faults += _device_faults(given.device, given.tiny)
    if faults:
        raise ConfigError(faults)
    return [known[name] for name in dict.fromkeys(wanted)]


def _device_faults(device: str, tiny: bool) -> list[str]:
    from fedrela_bench.simulation.devices import usable_device

    if device not in ("cpu", "cuda"):
        return [f"--device {device}: unknown device; choose cpu or cuda"]
    if device == "cpu" and not tiny:
        return ["--device cpu: the published sizes take days on a CPU; add --tiny"]
    try:
        usable_device(device)
    except ConfigError as error:
        return error.faults
    return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
