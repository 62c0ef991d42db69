"""Cells: relabelled runs that fork from a trunk at round T. The only thing a trial computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedrela_bench.config import TrialConfig
from fedrela_bench.nested import Json
from fedrela_bench.study.compute import reach
from fedrela_bench.study.curve import class_arrays
from fedrela_bench.study.engine import Runtime, Stopped
from fedrela_bench.study.files import write_atomic
from fedrela_bench.study.futility import Futile
from fedrela_bench.study.lineage import curve_of
from fedrela_bench.study.store import remove_snapshot
from fedrela_bench.study.trunk import run_trunk, summary


def run_cell(config: TrialConfig, dataset: Any, runtime: Runtime) -> Json:
    """The finished run of a configuration, from the store or computed from the state it branches off.

    Bit for bit the uninterrupted run of the same configuration. A configuration whose relabelling changes nothing is
    its trunk.

    Args:
        config: with relabelling.
        dataset: of that configuration.
        runtime: where and how.

    Returns:
        The content of ``result.json``.

    Raises:
        Stopped: the study is to stop; what was computed stays.
        Futile: the run gains too little, by the rule of `Runtime.futility`.
    """
    entry = runtime.entry(config, dataset.digest)
    if entry.kind == "trunk":
        return run_trunk(config, dataset, runtime)
    found = runtime.store.result("cell", entry.key)
    if found is not None:
        return found
    with entry.lease(until=runtime.stopping) as held:
        if not held:
            raise Stopped
        return runtime.store.result("cell", entry.key) or _compute(config, dataset, runtime)


def _compute(config: TrialConfig, dataset: Any, runtime: Runtime) -> Json:
    reached = reach(config, dataset, runtime, config.federation.rounds, watch=_watch(config, dataset, runtime))
    if reached is None:
        parent = runtime.lineage(config, dataset.digest)[-2]
        return _commit(config, dataset, runtime, run_cell(parent.config, dataset, runtime)["status"], None)
    run, last = reached
    runtime.keep_model(config, runtime.entry(config, dataset.digest), run)
    return _commit(config, dataset, runtime, run.status, last)


def run_model(config: TrialConfig, dataset: Any, runtime: Runtime) -> None:
    """Compute a finished run again from the last state that is there, for its scored model; its record stays.

    Raises:
        Stopped: the study is to stop.
    """
    entry = runtime.entry(config, dataset.digest)
    with entry.lease(until=runtime.stopping) as held:
        if not held:
            raise Stopped
        if entry.model.exists():
            return
        reached = reach(config, dataset, runtime, config.federation.rounds)
        if reached is None:
            parent = runtime.lineage(config, dataset.digest)[-2].config
            run_model(parent, dataset, runtime)
            write_atomic(entry.model, runtime.entry(parent, dataset.digest).model.read_bytes())
        else:
            runtime.engine.save_model(entry.model, reached[0])
        remove_snapshot(entry.rolling)


def _watch(config: TrialConfig, dataset: Any, runtime: Runtime) -> Callable[[int], None]:
    rule, lineage = runtime.futility, runtime.lineage(config, dataset.digest)

    def watch(completed: int) -> None:
        if rule is not None and completed >= lineage[0].last + rule.rounds:
            why = rule.verdict(lineage)
            if why is not None:
                raise Futile(why)

    return watch


def _commit(config: TrialConfig, dataset: Any, runtime: Runtime, status: str, last: Any) -> Json:
    lineage = runtime.lineage(config, dataset.digest)
    entry, curve = lineage[-1].entry, curve_of(lineage)
    for segment in lineage[1:-1]:
        _copy_relabelling(segment.entry.folder, entry.folder, segment.last)
    own = curve_of(lineage[-1:])
    after_fork = [line for line in curve if line["round"] > config.relabel_round]
    entry.write_arrays("curves.npz", class_arrays(after_fork, last.confusion if last is not None else {}))
    facts = {"fork_round": config.relabel_round, "trunk_key": lineage[0].entry.key, "computed_rounds": len(own)}
    facts["branch_round"] = lineage[-1].first - 1
    return entry.commit({**facts, **summary(config, dataset, runtime, entry, status, curve, own)})


def _copy_relabelling(source: Path, target: Path, last: int) -> None:
    """What was relabelled in the rounds that a cell shares belongs to its record, too."""
    for path in source.glob("relabel_r*.npz"):
        if int(path.stem[9:]) <= last and not (target / path.name).exists():
            write_atomic(target / path.name, path.read_bytes())
