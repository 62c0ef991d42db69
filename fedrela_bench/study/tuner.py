"""The search as Ray Tune runs it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fedrela_bench.study.batch import Crew
from fedrela_bench.study.cluster import avoiding
from fedrela_bench.study.ledger import Ledger, Proposal
from fedrela_bench.study.plan import Outcome
from fedrela_bench.study.worker import trainable

TUNE_FOLDER = ".tune"
RESTARTS = 4
"""Processes that may die under one run before it counts as failed."""
SPARE_SAMPLES = 1000
"""Points that are tried again count as further samples; the ledger decides when the search ends."""


def search(
    crew: Crew,
    ledger: Ledger,
    first: Proposal | None,
    started: Callable[[Proposal], None],
    settled: Callable[[Proposal, Outcome, int], None],
    ended: Callable[[], bool],
) -> None:
    """Let Tune run trials until the target is reached, the space is exhausted, or `ended` says so.

    Args:
        crew: where.
        ledger: what to run.
        first: a point that was asked before.
        started: called for every trial.
        settled: called for every trial that finished or failed.
        ended: whether to propose nothing more.
    """
    out = crew.plan.request.out
    with _tune_folder(out) as folder, _log_to(out / "tune.log"):
        while first is not None and not ended():
            avoided = set(crew.nodes.quarantined)

            def enough(avoided: set[str] = avoided) -> bool:
                # Where trials may run is fixed when Tune starts.
                return ended() or crew.nodes.quarantined != avoided

            _tuner(crew, ledger, first, started, settled, enough, folder).fit()
            first = ledger.next_point() if crew.nodes.quarantined != avoided and not ended() else None


def _tuner(
    crew: Crew,
    ledger: Ledger,
    first: Proposal,
    started: Callable[[Proposal], None],
    settled: Callable[[Proposal, Outcome, int], None],
    enough: Callable[[], bool],
    folder: Path,
) -> Any:
    from ray import tune

    from fedrela_bench.study.search import SafeOptunaSearch, StopAll

    return tune.Tuner(
        tune.with_resources(trainable(crew.plan, crew.gpus), _resources(crew)),
        tune_config=tune.TuneConfig(
            search_alg=SafeOptunaSearch(ledger, enough, first, started, settled, crew.nodes.note),
            num_samples=ledger.remaining + len(ledger.in_flight) + SPARE_SAMPLES,
            max_concurrent_trials=crew.limit,
            reuse_actors=True,
            trial_name_creator=lambda trial: trial.trial_id,
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(
            name="search",
            storage_path=str(folder.resolve()),
            verbose=0,
            # What a run raises is no failure here. A lost node costs one, and one for each idle process of it that
            # Tune hands out before it knows.
            failure_config=tune.FailureConfig(max_failures=RESTARTS),
            stop=StopAll(lambda: crew.interrupts.overdue(crew.grace)),
        ),
    )


def _resources(crew: Crew) -> Any:
    from ray import tune

    needed = {"CPU": float(crew.plan.request.cpus_per_trial), "GPU": crew.gpus}
    selector = avoiding(crew.nodes.quarantined)
    if selector:
        return tune.PlacementGroupFactory([needed], bundle_label_selector=[selector])
    return {name.lower(): amount for name, amount in needed.items()}


def drop_tune_folder(out: Path) -> None:
    """Remove Tune's own records of a study."""
    shutil.rmtree(out / TUNE_FOLDER, ignore_errors=True)


@contextlib.contextmanager
def _tune_folder(out: Path) -> Iterator[Path]:
    """Where Tune keeps its own records, which nothing reads again."""
    drop_tune_folder(out)
    try:
        yield out / TUNE_FOLDER
    finally:
        drop_tune_folder(out)


@contextlib.contextmanager
def _log_to(path: Path) -> Iterator[None]:
    """Ray prints tables and hints even when it is told to be quiet; they belong into a file."""
    with path.open("a", encoding="utf-8") as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        yield
