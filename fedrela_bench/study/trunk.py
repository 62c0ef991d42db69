"""Trunks: base runs without relabelling. They are the baselines, and every relabelled run forks from one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedrela_bench import __version__
from fedrela_bench.config import TrialConfig
from fedrela_bench.nested import Json
from fedrela_bench.rounds import ROUND_RULE
from fedrela_bench.study.compute import missing, reach
from fedrela_bench.study.curve import class_arrays, final_metrics
from fedrela_bench.study.engine import Run, Runtime, Stopped
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
    if found is not None and not missing(entry, fork_rounds, found["last_round"]):
        return found
    with entry.lease(until=runtime.stopping) as held:
        if not held:
            raise Stopped
        found = runtime.store.result("trunk", entry.key)
        if found is not None:
            absent = missing(entry, fork_rounds, found["last_round"])
            reach(base, dataset, runtime, max(absent, default=0), absent)
            return found
        reached = reach(base, dataset, runtime, base.federation.rounds, fork_rounds)
        assert reached is not None, "a trunk branches off nothing"
        runtime.keep_model(base, entry, reached[0])
        return _commit(base, dataset, runtime, entry, *reached)


def _commit(base: TrialConfig, dataset: Any, runtime: Runtime, entry: Entry, run: Run, last: Any) -> Json:
    curve = entry.journal.rounds(1)
    entry.write_arrays("curves.npz", class_arrays(curve, last.confusion if last is not None else {}))
    entry.write_arrays("partition.npz", runtime.engine.partition(base, dataset))
    facts: Json = {"fork_round": 0, "trunk_key": entry.key, "computed_rounds": len(curve)}
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
    memory, last = dict(runtime.engine.peak_memory()), curve[-1]["round"] if curve else 0
    fingerprint = runtime.fingerprint(config, dataset.digest)
    code = sorted({*fingerprint.plugins, *fingerprint.relabel_plugins})
    return {
        "kind": entry.kind,
        "key": entry.key,
        "status": status,
        "rounds": config.federation.rounds,
        "last_round": last,
        "round_rule": ROUND_RULE,
        "final": final_metrics(curve),
        "seconds": sum(line["result"]["seconds"] for line in own),
        "config": config.model_dump(mode="json"),
        "data_digest": dataset.digest,
        "numerics": dict(fingerprint.numerics),
        "simulation_version": runtime.engine.version,
        "version": __version__,
        "owner": owner(),
        **runtime.engine.costs(config, dataset, last),
        **({"gpu_memory": memory} if memory else {}),
        **({"plugins": code} if code else {}),
    }
