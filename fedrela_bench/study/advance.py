"""The one loop in which trunks and cells compute: journal, kept snapshots, a rolling state, and a clean stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from fedrela_bench.config import TrialConfig
from fedrela_bench.errors import RunError, StoreError
from fedrela_bench.study.curve import journal_line, relabel_arrays
from fedrela_bench.study.engine import Run, Runtime, Stopped
from fedrela_bench.study.futility import Futile
from fedrela_bench.study.store import Entry, remove_snapshot


def advance(
    run: Run,
    entry: Entry,
    runtime: Runtime,
    first: int,
    until: int,
    keep: Collection[int] = (),
    watch: Callable[[int], None] = lambda round_: None,
) -> Any:
    """Compute rounds up to `until` and record each one.

    Rounds that the journal already has are computed again without a second line, so that no curve gets a point twice.

    Args:
        run: at any round.
        entry: where to record; its lease is held.
        runtime: the process's environment.
        first: the first round that this entry's journal holds.
        until: last round.
        keep: rounds after which a snapshot stays.
        watch: called between rounds with the number of completed ones; raises `Futile` to end the run.

    Returns:
        The last round's result, or None when nothing was left to compute.

    Raises:
        Stopped: the study is to stop; the state was saved.
        Futile: what `watch` decided; the state was saved.
    """
    journal, saved, last = entry.journal, _Saved(time.monotonic(), run.completed_rounds), None
    due = first + len(journal.rounds(first))
    _keep(run, entry, runtime, keep)
    rounds = iter(run)
    while run.completed_rounds < until and run.status == "running":
        try:
            watch(run.completed_rounds)
            runtime.require_going_on()
        except (Futile, Stopped):
            _save_rolling(run, entry, runtime, first)
            raise
        result = next(rounds, None)
        runtime.meter.rounds += result is not None
        entry.require_lease()
        if result is None:
            break
        flow = f"relabel_r{result.round:04d}.npz"
        # A finished run that is repeated for its model keeps the sealed file.
        if result.flow is not None and (result.round >= due or not (entry.folder / flow).exists()):
            entry.write_arrays(flow, relabel_arrays(result))
        if result.round >= due:
            journal.append(journal_line(result, time.time()))
        if not _keep(run, entry, runtime, keep) and _is_due(run, saved, runtime, until):
            _save_rolling(run, entry, runtime, first)
            saved = _Saved(time.monotonic(), run.completed_rounds)
        last = result
    return last


def _keep(run: Run, entry: Entry, runtime: Runtime, keep: Collection[int]) -> bool:
    if run.completed_rounds not in keep or run.status != "running":
        return False
    if not entry.snapshot(run.completed_rounds).exists():
        runtime.engine.save(entry.snapshot(run.completed_rounds), run.snapshot())
    return True


class _Saved(NamedTuple):
    """When the rolling state was written."""

    time: float
    round: int


def _is_due(run: Run, saved: _Saved, runtime: Runtime, until: int) -> bool:
    # Never after the last round: its confusion matrix would be lost with the process.
    if run.status != "running" or run.completed_rounds >= until:
        return False
    many = runtime.rolling_rounds is not None and run.completed_rounds - saved.round >= runtime.rolling_rounds
    return many or time.monotonic() - saved.time >= runtime.rolling_seconds


def _save_rolling(run: Run, entry: Entry, runtime: Runtime, first: int) -> None:
    if run.completed_rounds >= first:
        runtime.engine.save(entry.rolling, run.snapshot())


def resume(run: Run, paths: Iterable[Path], runtime: Runtime, newest: int, branch: TrialConfig | None = None) -> bool:
    """Restore the first usable snapshot.

    Args:
        run: before its first round.
        paths: candidates, best first.
        runtime: for reading and for reporting damage.
        newest: snapshots of later rounds are passed over.
        branch: configuration of a run that goes on from another one's state.

    Returns:
        Whether one was restored.
    """
    for path in paths:
        try:
            snapshot = runtime.engine.load(path)
            if snapshot.round > newest:
                continue
            run.restore(snapshot if branch is None else runtime.engine.branch(snapshot, branch))
            return True
        except (StoreError, RunError) as error:
            if path.exists():
                runtime.store.damaged.append(f"{error}; going on from an earlier round")
                remove_snapshot(path)
    return False
