"""Cells: relabelled runs that fork from a trunk at round T. The only thing a trial computes."""

from __future__ import annotations

from typing import Any

from fedrela_bench.config import Json, TrialConfig
from fedrela_bench.errors import StoreError
from fedrela_bench.study.advance import advance, resume
from fedrela_bench.study.curve import class_arrays
from fedrela_bench.study.engine import Run, Runtime
from fedrela_bench.study.store import Entry
from fedrela_bench.study.trunk import fork_snapshot, run_trunk, summary


def run_cell(config: TrialConfig, dataset: Any, runtime: Runtime) -> Json:
    """The finished run of a configuration, from the store or computed from its trunk's snapshot at T.

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
    """
    entry = runtime.entry(config, dataset.digest)
    if entry.kind == "trunk":
        return run_trunk(config, dataset, runtime)
    found = runtime.store.result("cell", entry.key)
    if found is not None:
        return found
    with entry.lease():
        return runtime.store.result("cell", entry.key) or _compute(config, dataset, runtime, entry)


def _compute(config: TrialConfig, dataset: Any, runtime: Runtime, entry: Entry) -> Json:
    entry.begin(config.model_dump(mode="json"))
    run = runtime.engine.simulation(config, dataset, runtime.device)
    first = config.relabel_round + 1
    newest = first - 1 + len(entry.journal.rounds(first))
    if not resume(run, [entry.rolling], runtime, newest) and not _fork(run, config, dataset, runtime):
        ended = run_trunk(config, dataset, runtime)["status"]
        return _commit(config, dataset, runtime, entry, ended, None)
    last = advance(run, entry, runtime, first, config.federation.rounds)
    return _commit(config, dataset, runtime, entry, run.status, last)


def _fork(run: Run, config: TrialConfig, dataset: Any, runtime: Runtime) -> bool:
    """Restore the trunk's state at T; False when the base run ended before T."""
    for _ in range(2):
        path = fork_snapshot(config, dataset, runtime)
        if path is None:
            return False
        if resume(run, [path], runtime, config.relabel_round):
            return True
    raise StoreError(f"snapshots of round {config.relabel_round} do not last: {runtime.store.damaged[-1]}")


def _commit(config: TrialConfig, dataset: Any, runtime: Runtime, entry: Entry, status: str, last: Any) -> Json:
    own = entry.journal.rounds(config.relabel_round + 1)
    trunk = runtime.trunk(config, dataset.digest)
    curve = trunk.journal.rounds(1)[: config.relabel_round] + own
    entry.write_arrays("curves.npz", class_arrays(own, last.confusion if last is not None else {}))
    facts = {"fork_round": config.relabel_round, "trunk_key": trunk.key, "computed_rounds": len(own)}
    return entry.commit({**facts, **summary(config, dataset, runtime, entry, status, curve, own)})
