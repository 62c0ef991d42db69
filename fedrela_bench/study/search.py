"""Ray Tune's view of the search: a thin layer that lets the ledger decide what is asked and told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray.tune import Stopper
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from fedrela_bench.study.ledger import Ledger, Proposal
from fedrela_bench.study.plan import Outcome

Started = Callable[[Proposal], None]
Settled = Callable[[Proposal, Outcome, int], None]


class SafeOptunaSearch(OptunaSearch):  # type: ignore[misc]
    """`OptunaSearch` that no result can derail.

    Non-finite, missing and failed objectives become declared worst values, points that are known or being computed
    start no trial, and a stop request leaves no trial RUNNING in Optuna's storage. Whether a result is there is decided
    by the store, not by what the trial reports.

    Args:
        ledger: started.
        stopping: whether to propose nothing more.
        first: a point asked before Ray was started.
        started: called for every point that becomes a trial.
        settled: called for every trial that finished or failed, with the rounds that its process computed.
        again: whether a trial with this answer should be tried once more, on another node.
    """

    def __init__(
        self,
        ledger: Ledger,
        stopping: Callable[[], bool],
        first: Proposal | None = None,
        started: Started | None = None,
        settled: Settled | None = None,
        again: Callable[[dict[str, Any]], bool] = lambda answer: False,
    ) -> None:
        objectives = list(ledger.plan.request.objectives)
        super().__init__(
            space=ledger.space,
            metric=objectives,
            mode=["max"] * len(objectives),
            sampler=ledger.study.sampler,
            study_name=ledger.study.study_name,
            storage=ledger.study._storage,
        )
        self._ot_study = ledger.study
        self._ledger = ledger
        self._stopping = stopping
        self._first = first
        self._started = started
        self._settled = settled
        self._again = again
        self._keys: dict[str, str] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """The next point, or FINISHED."""
        if self._stopping():
            return str(Searcher.FINISHED)
        proposal, self._first = self._first or self._ledger.next_point(), None
        if proposal is None:
            return str(Searcher.FINISHED)
        self._keys[trial_id] = proposal.key
        if self._started is not None:
            self._started(proposal)
        return {"point": proposal.point, "key": proposal.key, "number": proposal.number}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Intermediate reports are for the journal, not for the sampler."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Settle the trial's point; a trial that was stopped stays in flight and is given back at the end."""
        key = self._keys.pop(trial_id, None)
        if key is None or key not in self._ledger.in_flight:
            return
        status, message = (result or {}).get("status"), (result or {}).get("error")
        if status == "stopped" or (self._stopping() and status is None):
            return
        if result is not None and status is not None and self._again(result) and self._ledger.retry(key):
            return
        proposal = self._ledger.in_flight[key]
        outcome = self._ledger.finish(key, message or ("the trial's process died" if error else None))
        if self._settled is not None:
            self._settled(proposal, outcome, int((result or {}).get("rounds", 0)))

    def __getstate__(self) -> dict[str, Any]:
        """Nothing, see `save`; Tune pickles its searcher at the start."""
        return {}

    def __deepcopy__(self, memo: dict[int, Any]) -> SafeOptunaSearch:
        return self

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the storage and the store are the state, and Ray's own restore is not used."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing, see `save`."""


class StopAll(Stopper):  # type: ignore[misc]
    """Ends the whole search, running trials included, once `when` says so."""

    def __init__(self, when: Callable[[], bool]) -> None:
        self._when = when

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: a stopper that Tune restored would have nobody to ask."""
        return {}

    def __deepcopy__(self, memo: dict[int, Any]) -> StopAll:
        return self

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """No trial is stopped for its results."""
        return False

    def stop_all(self) -> bool:
        """Whether to end."""
        return self._when()
