"""What is said of configurations that have no gain, since no baseline was run that differs in relabelling alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fedrela_bench.study.pairing import Differences

if TYPE_CHECKING:
    from fedrela_bench.study.request import TuneRequest
    from fedrela_bench.study.results import Row

MOST = 3
"""Commands that are shown; there may be as many baselines to compute as there are trials."""
REPLACED = ("--algorithm", "--stage", "--out", "--store", "--seeds", "--trials", "--confirm-seeds", "--confirm-top")
FLAGS = ("--race", "--dry-run", "--json")


def unlike_text(unlike: Differences) -> str:
    """Such as ``federation.options.mu 0.1 against 0.01``."""
    return ", ".join(f"{name} {_shown(own)} against {_shown(base)}" for name, (own, base) in unlike.items())


def unpaired_lines(rows: Iterable[Row]) -> Iterator[str]:
    """Why rows have no gain, each reason once."""
    reasons: dict[tuple[str, str], int] = {}
    for row in rows:
        if row.unlike:
            reason = row.algorithm, unlike_text(row.unlike)
            reasons[reason] = reasons.get(reason, 0) + 1
    if reasons:
        told = "; ".join(f"{algorithm} with {text}" for algorithm, text in reasons)
        yield (
            f"no Δ where the baseline has other settings than relabelling alone ({told}): a gain is over a baseline of "
            "the same configuration and seed, and none has been run"
        )


def baseline_commands(request: TuneRequest, rows: Sequence[Row], seeds: Sequence[int]) -> dict[str, str]:
    """What to type for the baselines that rows lack, into the store in which this study looks for them.

    Args:
        request: of the study.
        rows: shown ones.
        seeds: that a baseline must have.

    Returns:
        What a command is for, and the command; {} where the study's own is none that could be changed.
    """
    words = shlex.split(request.resume_command)
    if words[:2] != ["fedrela-bench", "tune"]:
        return {}
    found: dict[str, str] = {}
    for row in rows:
        if row.unlike:
            settings = {name: own for name, (own, _) in row.unlike.items()}
            named = " ".join(f"{name.rpartition('.')[2]}={_shown(own)}" for name, own in settings.items())
            out = f"{request.out}_baseline_{re.sub(r'[^A-Za-z0-9.]+', '_', f'{row.algorithm} {named}')}"
            line = [*_without(words, [*REPLACED, *(f"--{name}" for name in settings)]), "--algorithm", row.algorithm]
            line += ["--stage", "trunks", "--seeds", ",".join(map(str, seeds)) + "," * (len(seeds) == 1)]
            line += ["--store", str(request.store_dir), "--out", out]
            line += [word for name, own in settings.items() for word in (f"--{name}", _shown(own))]
            found.setdefault(f"for the Δ of {row.algorithm} {named}, then repeat the study's command", shlex.join(line))
    return dict(list(found.items())[:MOST])


def _without(words: Sequence[str], names: Sequence[str]) -> list[str]:
    """A command without some options and their values, and without flags of more than its baselines."""
    kept, skip = list[str](), False
    for word in words:
        if not skip and word not in FLAGS and word.partition("=")[0] not in names:
            kept.append(word)
        skip = not skip and word in names
    return kept


def _shown(value: Any) -> str:
    """A value as the command line takes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
