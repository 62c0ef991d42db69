"""The account of a search in Optuna's storage: what was proposed, what is known, what is still to do.

The storage is the truth about trials and the store is the truth about results; this class keeps the two in step, so
that a killed study goes on, a point proposed twice is computed once, and nothing stays RUNNING.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedrela_bench.errors import StoreError
from fedrela_bench.nested import Json, canonical_json
from fedrela_bench.rng import derived_seed, generator
from fedrela_bench.study.plan import Outcome, Plan, failed
from fedrela_bench.study.samplers import build_sampler, shown
from fedrela_bench.study.space import Space

PATIENCE = 10
"""Proposals in a row that bring nothing new before untried points are drawn directly."""
STARTS = 3
"""Tries of a point whose process fails before its first round."""
DRAWS = 500
"""Direct draws before a continuous space counts as exhausted."""


@dataclass
class Proposal:
    """A point that is being computed."""

    point: Json
    key: str
    trial: Any
    twins: list[Any] = field(default_factory=list)
    """Optuna trials that proposed the same point meanwhile."""

    @property
    def number(self) -> int:
        """The Optuna trial's number."""
        return int(self.trial.number)


class Ledger:
    """Points asked of Optuna and answered by the store.

    Args:
        study: an Optuna study that this process alone writes to.
        plan: keys and answers.
        space: what is searched, where that is only a part of the request's space.
    """

    def __init__(self, study: Any, plan: Plan, space: Space | None = None) -> None:
        self.study = study
        self.plan = plan
        self.space = space or plan.request.space
        self.finished: dict[str, Outcome] = {}
        self.failed: dict[str, Outcome] = {}
        self.in_flight: dict[str, Proposal] = {}
        self.numbers: dict[str, int] = {}
        """First Optuna number of every key."""
        self.points: dict[str, Json] = {}
        self.answered: set[str] = set()
        """Keys of points that the store answered when they were first proposed."""
        self.exhausted = False
        self._starts: Counter[str] = Counter()
        self._tried: set[str] = set()
        self._untried = self.space.points(generator(plan.request.search_seed, "search", len(study.trials)))

    @property
    def reused(self) -> int:
        """How many points the store answered, each counted once."""
        return len(self.answered)

    # start and end ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Bring the storage up to date: close trials of dead processes, queue what has no result, defaults first."""
        import optuna

        lost: dict[str, Json] = {}
        for trial in self.study.get_trials(deepcopy=False):
            if trial.state == optuna.trial.TrialState.WAITING:
                continue
            known = self._recall(trial)
            if trial.state == optuna.trial.TrialState.RUNNING:
                self._close(trial.number, known)
            if known is None and self.space.complete(self.space.point(trial.params)):
                lost[canonical_json(trial.params)] = dict(trial.params)
        for params in (*lost.values(), *(self.space.defaults(self.plan.bases) if not self.study.trials else ())):
            self._enqueue(params)

    def _recall(self, trial: Any) -> Outcome | None:
        point = self.space.point(trial.params)
        if not self.space.complete(point):
            return None
        key = self.plan.key(point)
        # The confirm stage may have completed what the search ended; the search stays what it was.
        ended = trial.user_attrs.get("status") == "futile"
        known = self.plan.futile(point) if ended else None
        outcome = self.finished.get(key) or known or self.plan.answer(point)
        if outcome is not None:
            self._note(key, point, trial.number, outcome)
        return outcome

    def _close(self, number: int, known: Outcome | None) -> None:
        import optuna

        if known is None:
            self.study.tell(number, state=optuna.trial.TrialState.FAIL)
        else:
            self.study.tell(number, list(known.values))

    def _enqueue(self, params: Json) -> None:
        import optuna

        waiting = self.study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.WAITING,))
        if all(trial.system_attrs.get("fixed_params") != params for trial in waiting):
            self.study.enqueue_trial(params)

    def release(self) -> None:
        """Give back what is in flight: failed in Optuna's books, queued to be asked first next time."""
        for proposal in list(self.in_flight.values()):
            for trial in (proposal.trial, *proposal.twins):
                self._close(trial.number, None)
            self._enqueue(dict(proposal.trial.params))
        self.in_flight.clear()

    # asking ----------------------------------------------------------------------------------------------------------

    @property
    def remaining(self) -> int:
        """Configurations still to propose."""
        return self.plan.request.target - len(self.finished) - len(self.failed) - len(self.in_flight)

    def next_point(self) -> Proposal | None:
        """The next point to compute, or None when the target is reached or the space has nothing new.

        Points that the store answers are told to Optuna on the way and count; repeated ones do not.
        """
        fruitless = 0
        while self.remaining > 0:
            trial = self._ask(direct=fruitless >= PATIENCE)
            if trial is None:
                return None
            point = self.space(trial)
            key = self.plan.key(point)
            self._tried.add(canonical_json(point))
            if key in self.in_flight:
                self.in_flight[key].twins.append(trial)
                fruitless += 1
                continue
            repeated = key in self.finished or key in self.failed
            fruitless += repeated
            known = self.finished.get(key) or self.failed.get(key) or self.plan.answer(point)
            if known is None:
                return self._begin(Proposal(point, key, trial))
            self._tell(trial, key, known)
            self._note(key, point, trial.number, known)
            self.answered |= set() if repeated else {key}
        return None

    def _ask(self, direct: bool) -> Any:
        import optuna

        waiting = self.study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.WAITING,))
        if (direct or self.plan.request.sampler == "grid") and not waiting:
            fresh = self._draw_untried()
            if fresh is None:
                self.exhausted = True
                return None
            self.study.enqueue_trial(self.space.trial_params(fresh))
        return self.study.ask()

    def _draw_untried(self) -> Json | None:
        taken = self.finished.keys() | self.failed.keys() | self.in_flight.keys()
        endless = self.space.size() is None
        for draws, point in enumerate(self._untried):
            if canonical_json(point) not in self._tried and self.plan.key(point) not in taken:
                return point
            if endless and draws >= DRAWS:
                break
        return None

    def _begin(self, proposal: Proposal) -> Proposal:
        proposal.trial.set_user_attr("key", proposal.key)
        self.in_flight[proposal.key] = proposal
        self.points[proposal.key] = proposal.point
        self.numbers.setdefault(proposal.key, proposal.number)
        return proposal

    def retry(self, key: str) -> bool:
        """Ask a point again whose process never came to its first round; False after `STARTS` times."""
        self._starts[key] += 1
        if self._starts[key] >= STARTS:
            return False
        proposal = self.in_flight.pop(key)
        for trial in (proposal.trial, *proposal.twins):
            self._close(trial.number, None)
        self._enqueue(dict(proposal.trial.params))
        return True

    # answering -------------------------------------------------------------------------------------------------------

    def finish(self, key: str, error: str | None = None) -> Outcome:
        """Settle a point: from the store, or as failed with the worst values and the error's text."""
        proposal = self.in_flight.pop(key)
        outcome = self.plan.answer(proposal.point)
        if outcome is None:
            outcome = failed(len(self.plan.request.objectives), error or "the trial ended without a result")
            self.failed[key] = outcome
        else:
            self.finished[key] = outcome
        for trial in (proposal.trial, *proposal.twins):
            self._tell(trial, key, outcome)
        return outcome

    def _tell(self, trial: Any, key: str, outcome: Outcome) -> None:
        trial.set_user_attr("key", key)
        trial.set_user_attr("status", outcome.status)
        if not outcome.valid:
            trial.set_user_attr("invalid", True)
        if outcome.status == "futile":
            trial.set_user_attr("stopped", True)
        if outcome.error:
            trial.set_user_attr("error", outcome.error[:2000])
        first = self.numbers.get(key, trial.number)
        if first != trial.number:
            trial.set_user_attr("reused_from", first)
        self.study.tell(trial, list(outcome.values))

    def _note(self, key: str, point: Json, number: int, outcome: Outcome) -> None:
        self.numbers.setdefault(key, number)
        self.points.setdefault(key, point)
        self._tried.add(canonical_json(point))
        if key not in self.failed:
            self.finished[key] = outcome


def open_study(where: Path | str, objectives: int, sampler: str, seed: int, name: str = "study") -> Any:
    """The Optuna study that optuna-dashboard can open; the caller holds the study's lock.

    Args:
        where: a journal file, or the URL of a database.
        objectives: how many.
        sampler: its name.
        seed: of the search.
        name: of the study within its storage.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        storage=_storage(where),
        study_name=name,
        directions=["maximize"] * objectives,
        load_if_exists=True,
    )
    # Otherwise a resumed sampler would repeat the draws it began with.
    study.sampler = build_sampler(sampler, derived_seed(seed, "sampler", len(study.trials)) % 2**32)
    return study


def _storage(where: Path | str) -> Any:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    if isinstance(where, str):
        return _database(where)
    # A killed driver leaves this behind, and nobody else may be writing.
    where.with_name(f"{where.name}.lock").unlink(missing_ok=True)
    return JournalStorage(JournalFileBackend(str(where)))


def _database(url: str) -> Any:
    from optuna.storages import RDBStorage
    from sqlalchemy.exc import SQLAlchemyError

    try:
        # A server that was started again meanwhile has closed the connections that are kept.
        return RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
    except SQLAlchemyError as error:
        reason = str(error).strip().splitlines()[0]
        raise StoreError(
            f"cannot keep trials in {shown(url)} ({reason}); let its user make tables there, or choose another "
            "--optuna-storage"
        ) from error
