"""How a trunk or cell gets to a round: from its own state, from the run it branches off, or from the start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedrela_bench.config import TrialConfig
from fedrela_bench.errors import StoreError
from fedrela_bench.study.advance import advance, resume
from fedrela_bench.study.engine import Run, Runtime
from fedrela_bench.study.lineage import Segment
from fedrela_bench.study.store import Entry

POSTERIORS = "posteriors"
"""Folder of a trunk: posteriors of the pass at T, which its forks share."""


def reach(
    config: TrialConfig,
    dataset: Any,
    runtime: Runtime,
    until: int,
    keep: Sequence[int] = (),
    watch: Callable[[int], None] = lambda round_: None,
) -> tuple[Run, Any] | None:
    """Compute a run up to a round; the lease of its entry is held.

    Args:
        config: of the run.
        dataset: of that configuration.
        runtime: where and how.
        until: last round.
        keep: rounds after which there must be a snapshot in the end. States for others to branch off are kept on the
            way, where the run passes those rounds anyway.
        watch: see `advance`.

    Returns:
        The run and its last result (None when nothing was left to compute), or None when the run that this one
        branches off ended before their common rounds did.

    Raises:
        Stopped: the study is to stop; what was computed stays.
    """
    lineage = runtime.lineage(config, dataset.digest)
    own = lineage[-1]
    own.entry.begin(config.model_dump(mode="json"))
    shared = lineage[0].entry.folder / POSTERIORS if lineage[1:] else None
    run = runtime.engine.simulation(config, dataset, runtime.device, shared)
    computed = own.first - 1 + len(own.entry.journal.rounds(own.first))
    newest = min([computed, until, *missing(own.entry, keep, until + 1)])
    kept = [own.entry.snapshot(round_) for round_ in reversed(own.entry.snapshot_rounds()) if round_ <= newest]
    known = resume(run, [own.entry.rolling, *kept], runtime, newest)
    if not known and len(lineage) > 1 and not _branch(run, config, lineage[-2], dataset, runtime):
        return None
    return run, advance(run, own.entry, runtime, own.first, until, {*keep, *runtime.branch_rounds(config)}, watch)


def missing(entry: Entry, rounds: Sequence[int], last: int) -> list[int]:
    """Rounds before `last` whose snapshot is not there."""
    return [round_ for round_ in rounds if round_ < last and not entry.snapshot(round_).exists()]


def _branch(run: Run, config: TrialConfig, parent: Segment, dataset: Any, runtime: Runtime) -> bool:
    """Restore the state after the last common round; False when the other run ended before it."""
    for _ in range(2):
        path = _branch_snapshot(parent, dataset, runtime)
        if path is None:
            return False
        if resume(run, [path], runtime, parent.last, config):
            return True
    raise StoreError(f"snapshots of round {parent.last} do not last: {runtime.store.damaged[-1]}")


def _branch_snapshot(parent: Segment, dataset: Any, runtime: Runtime) -> Path | None:
    path = parent.entry.snapshot(parent.last)
    if path.exists():
        return path
    # Whoever computes the other run passes this round long before it ends.
    with parent.entry.lease(until=lambda: path.exists() or runtime.stopping()) as held:
        if held:
            reach(parent.config, dataset, runtime, parent.last, [parent.last])
    if path.exists():
        return path
    runtime.require_going_on()
    return None
