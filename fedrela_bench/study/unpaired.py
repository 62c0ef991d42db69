"""What is said of configurations that have no gain, since no baseline was run that differs in relabelling alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fedrela_bench.study.files import write_atomic
from fedrela_bench.study.pairing import Differences

if TYPE_CHECKING:
    from fedrela_bench.study.plan import Plan
    from fedrela_bench.study.results import Row

MOST = 3
"""Commands that are shown; there may be as many baselines to compute as there are trials."""
KEPT = ("--device", "--cpus-per-trial", "--gpus-per-trial", "--max-concurrent", "--ray-address")
"""Options of a study's command that say where its runs are computed, and not what."""
FOLDER = "baselines"


def unlike_text(unlike: Differences) -> str:
    """Such as ``federation.options.mu 0.1 against 0.01``."""
    return ", ".join(f"{name} {_shown(own)} against {_shown(base)}" for name, (own, base) in unlike.items())


def unpaired_lines(rows: Iterable[Row]) -> Iterator[str]:
    """Why rows have no gain, each reason once."""
    reasons = dict.fromkeys((row.algorithm, unlike_text(row.unlike)) for row in rows if row.unlike)
    if reasons:
        told = "; ".join(f"{algorithm}: {text}" for algorithm, text in reasons)
        yield (
            f"no Δ where more than relabelling differs from the baseline ({told}): a gain is over a baseline of the "
            "same configuration and seed, and none is finished"
        )


def write_baselines(plan: Plan, rows: Sequence[Row], seeds: Sequence[int]) -> dict[str, str]:
    """Write the configurations of baselines that rows lack, and tell how to compute them into the study's store.

    Args:
        plan: of the study.
        rows: shown ones.
        seeds: that a baseline must have.

    Returns:
        What a command is for, and the command; {} where the study's own is no `tune`.
    """
    from fedrela_bench.yaml_io import dump_yaml

    request, found = plan.request, dict[str, str]()
    words = shlex.split(request.resume_command)
    lacking = {_named(row): row for row in reversed(rows) if row.unlike}
    for name, row in list(reversed(lacking.items()))[:MOST] if words[:2] == ["fedrela-bench", "tune"] else ():
        stem = re.sub(r"[^A-Za-z0-9.]+", "_", name)
        path, out = request.out / FOLDER / f"{stem}.yaml", f"{request.out}_baseline_{stem}"
        # The configuration names the data itself: what a table or folder is called may be no name that can be given.
        line = ["fedrela-bench", "tune", "--algorithm", row.algorithm]
        line += [
            "--config",
            str(path),
            "--stage",
            "trunks",
            "--seeds",
            ",".join(map(str, seeds)) + "," * (len(seeds) == 1),
        ]
        line += [*_kept(words), *request.sources, "--store", str(request.store_dir), "--out", out]
        config = plan.config(row.point, seeds[0]).base()
        write_atomic(path, f"# {shlex.join(line)}\n{dump_yaml(config.model_dump(mode='json'))}")
        found[f"for the Δ of {name}, then repeat the study's command"] = shlex.join(line)
    return found


def _named(row: Row) -> str:
    """Such as ``fedprox mu=0.1``."""
    return " ".join([row.algorithm, *(f"{n.rpartition('.')[2]}={_shown(own)}" for n, (own, _) in row.unlike.items())])


def _kept(words: Sequence[str]) -> Iterator[str]:
    """What a command says of the machine, with its values."""
    for word, after in pairwise([*words, ""]):
        if word in KEPT:
            yield from (word, after)
        elif word.partition("=")[0] in KEPT:
            yield word


def _shown(value: Any) -> str:
    """A value as the command line takes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
