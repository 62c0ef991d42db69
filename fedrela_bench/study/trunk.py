"""Trunks: base runs without relabelling. They are the baselines, and every relabelled run forks from one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedrela_bench import __version__
from fedrela_bench.config import Json, TrialConfig
from fedrela_bench.study.advance import advance, resume
from fedrela_bench.study.curve import ROUND_RULE, class_arrays, final_metrics
from fedrela_bench.study.engine import Run, Runtime
from fedrela_bench.study.store import Entry, owner


def run_trunk(config: TrialConfig, dataset: Any, runtime: Runtime, fork_rounds: Sequence[int] = ()) -> Json:
    """The finished base run of a configuration, from the store or computed, with snapshots at the fork rounds.

    Args:
        config: any configuration; its relabelling is ignored.
        dataset: of that configuration.
        runtime: where and how.
        fork_rounds: rounds T after which a snapshot stays.

    Returns:
        The content of the trunk's ``result.json``.

    Raises:
        Stopped: the study is to stop; what was computed stays.
    """
    base, entry = config.base(), runtime.trunk(config, dataset.digest)
    found = runtime.store.result("trunk", entry.key)
    if found is not None and not _missing(entry, fork_rounds, found["last_round"]):
        return found
    with entry.lease():
        found = runtime.store.result("trunk", entry.key)
        if found is not None:
            missing = _missing(entry, fork_rounds, found["last_round"])
            _train(base, dataset, runtime, entry, max(missing, default=0), missing)
            return found
        run, last = _train(base, dataset, runtime, entry, base.federation.rounds, fork_rounds)
        return _commit(base, dataset, runtime, entry, run, last)


def fork_snapshot(config: TrialConfig, dataset: Any, runtime: Runtime) -> Path | None:
    """The trunk's snapshot at the configuration's T; trains the trunk up to there when it is missing.

    Returns:
        Its path, or None when the base run ended before T.
    """
    entry, fork = runtime.trunk(config, dataset.digest), config.relabel_round
    if entry.snapshot(fork).exists():
        return entry.snapshot(fork)
    with entry.lease():
        _train(config.base(), dataset, runtime, entry, fork, [fork])
    return entry.snapshot(fork) if entry.snapshot(fork).exists() else None


def _missing(entry: Entry, rounds: Sequence[int], last: int) -> list[int]:
    return [round_ for round_ in rounds if round_ < last and not entry.snapshot(round_).exists()]


def _train(
    base: TrialConfig, dataset: Any, runtime: Runtime, entry: Entry, until: int, keep: Sequence[int]
) -> tuple[Run, Any]:
    entry.begin(base.model_dump(mode="json"))
    run = runtime.engine.simulation(base, dataset, runtime.device)
    newest = min([len(entry.journal.rounds(1)), until, *_missing(entry, keep, until + 1)])
    kept = [entry.snapshot(round_) for round_ in reversed(entry.snapshot_rounds()) if round_ <= newest]
    resume(run, [entry.rolling, *kept], runtime, newest)
    return run, advance(run, entry, runtime, first=1, until=until, keep=keep)


def _commit(base: TrialConfig, dataset: Any, runtime: Runtime, entry: Entry, run: Run, last: Any) -> Json:
    curve = entry.journal.rounds(1)
    entry.write_arrays("curves.npz", class_arrays(curve, last.confusion if last is not None else {}))
    facts: Json = {"fork_round": 0, "trunk_key": entry.key, "computed_rounds": len(curve)}
    facts["communication"] = dict(run.communication)
    return entry.commit({**facts, **summary(base, dataset, runtime, entry, run.status, curve, curve)})


def summary(
    config: TrialConfig, dataset: Any, runtime: Runtime, entry: Entry, status: str, curve: list[Json], own: list[Json]
) -> Json:
    """The part of ``result.json`` that trunks and cells share.

    Args:
        config: what was computed.
        dataset: with its digest.
        runtime: for the numerics.
        entry: whose result this is.
        status: how the run ended: completed, diverged or stopped.
        curve: lines of rounds 1 to the last.
        own: the lines among them that this entry computed.
    """
    return {
        "kind": entry.kind,
        "key": entry.key,
        "status": status,
        "rounds": config.federation.rounds,
        "last_round": curve[-1]["round"] if curve else 0,
        "round_rule": ROUND_RULE,
        "final": final_metrics(curve),
        "seconds": sum(line["result"]["seconds"] for line in own),
        "config": config.model_dump(mode="json"),
        "data_digest": dataset.digest,
        "numerics": dict(runtime.fingerprint(config, dataset.digest).numerics),
        "simulation_version": runtime.engine.version,
        "version": __version__,
        "owner": owner(),
    }
