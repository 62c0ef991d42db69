"""The search's books: nothing derails it, nothing is computed twice, nothing stays RUNNING."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest

from fedrela_bench.study.futility import Futility
from fedrela_bench.study.ledger import Ledger, Proposal, open_study
from fedrela_bench.study.plan import Plan, combine
from fedrela_bench.study.request import TuneRequest
from fedrela_bench.study.runner import make_plan
from fedrela_bench.study.trunk import run_trunk
from fedrela_bench.study.worker import run_cell_task, run_trial
from tests.study.fakes import FakeDataset, FakeEngine, request

SMALL = {
    "algorithm": "fedavg",
    "parameters": {"relabel.tau": {"choice": [0.05, 0.1]}, "relabel.period": {"choice": [0, 1]}},
}


def plan_for(asked: TuneRequest) -> Plan:
    asked.out.mkdir(parents=True, exist_ok=True)
    return make_plan(asked, asked.settled(), "cpu")


def ledger_for(plan: Plan) -> Ledger:
    asked = plan.request
    study = open_study(asked.out / "optuna.journal", len(asked.objectives), asked.sampler, asked.search_seed)
    ledger = Ledger(study, plan)
    ledger.start()
    return ledger


def compute(plan: Plan, proposal: Proposal) -> dict[str, Any]:
    return run_trial(plan, {"point": proposal.point, "key": proposal.key}, 0.0)


def work(ledger: Ledger) -> list[Proposal]:
    done = []
    while (proposal := ledger.next_point()) is not None:
        answer = compute(ledger.plan, proposal)
        ledger.finish(proposal.key, answer["error"])
        done.append(proposal)
    return done


def states(plan: Plan) -> list[str]:
    study = optuna.load_study(
        study_name="study",
        storage=optuna.storages.JournalStorage(
            optuna.storages.journal.JournalFileBackend(str(plan.request.out / "optuna.journal"))
        ),
    )
    return [trial.state.name for trial in study.trials]


def test_the_papers_default_comes_first_for_each_algorithm(tmp_path: Path) -> None:
    done = work(ledger_for(plan_for(request(tmp_path, trials=3))))
    assert [proposal.point for proposal in done[:2]] == [
        {"algorithm": name, "relabel.tau": 0.05, "relabel.start": 0.8, "relabel.period": 0}
        for name in ("fedavg", "fedprox")
    ]


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "gp", "random", "grid"])
def test_a_small_space_is_computed_once_and_then_exhausted(tmp_path: Path, sampler: str) -> None:
    plan = plan_for(request(tmp_path, SMALL, sampler=sampler, trials=50))
    ledger = ledger_for(plan)
    done = work(ledger)
    keys = [proposal.key for proposal in done]
    assert len(keys) == len(set(keys)) == 4
    assert ledger.exhausted
    assert set(states(plan)) == {"COMPLETE"}


def test_every_finished_point_is_answered_in_the_next_session(tmp_path: Path) -> None:
    asked = request(tmp_path, trials=5)
    first = ledger_for(plan_for(asked))
    done = work(first)
    second = ledger_for(plan_for(asked))
    assert second.next_point() is None
    assert second.finished.keys() == {proposal.key for proposal in done}
    extended = ledger_for(plan_for(replace(asked, trials=7)))
    assert len(work(extended)) == 2


def test_another_study_with_the_same_store_computes_nothing(tmp_path: Path) -> None:
    store = tmp_path / "store"
    work(ledger_for(plan_for(request(tmp_path / "a", SMALL, store=store, trials=4))))
    ledger = ledger_for(plan_for(request(tmp_path / "b", SMALL, store=store, trials=4)))
    assert work(ledger) == []
    assert len(ledger.finished) == 4


def test_a_point_in_flight_is_not_started_twice(tmp_path: Path) -> None:
    ledger = ledger_for(plan_for(request(tmp_path, SMALL, trials=4)))
    proposals = [ledger.next_point() for _ in range(5)]
    assert proposals[4] is None
    started = [proposal for proposal in proposals if proposal is not None]
    assert len({proposal.key for proposal in started}) == 4
    for proposal in started:
        compute(ledger.plan, proposal)
        ledger.finish(proposal.key)
    assert set(states(ledger.plan)) == {"COMPLETE"}


def test_trials_of_a_dead_driver_are_closed_and_asked_first(tmp_path: Path) -> None:
    asked = request(tmp_path, trials=5)
    dead = ledger_for(plan_for(asked))
    lost, computed = dead.next_point(), dead.next_point()
    assert lost is not None and computed is not None
    compute(dead.plan, computed)
    assert states(dead.plan).count("RUNNING") == 2
    alive = ledger_for(plan_for(asked))
    assert "RUNNING" not in states(alive.plan)
    assert computed.key in alive.finished
    again = alive.next_point()
    assert again is not None and again.point == lost.point


def test_a_clean_stop_leaves_nothing_running(tmp_path: Path) -> None:
    asked = request(tmp_path, trials=5)
    ledger = ledger_for(plan_for(asked))
    given = ledger.next_point()
    ledger.release()
    assert "RUNNING" not in states(ledger.plan)
    again = ledger_for(plan_for(asked))
    asked_next = [again.next_point() for _ in range(2)]
    assert given is not None and given.point in [proposal.point for proposal in asked_next if proposal is not None]


def worst_case(tmp_path: Path, engine: FakeEngine) -> tuple[Ledger, Any]:
    asked = request(tmp_path, SMALL, engine=engine, trials=4)
    ledger = ledger_for(plan_for(asked))
    work(ledger)
    bad = [trial for trial in ledger.study.trials if trial.user_attrs.get("invalid")]
    assert {trial.state.name for trial in ledger.study.trials} == {"COMPLETE"}
    assert all(trial.values == [0.0, 0.0] for trial in bad)
    return ledger, bad


def test_a_diverged_run_counts_as_worst_and_is_flagged(tmp_path: Path) -> None:
    ledger, bad = worst_case(tmp_path, FakeEngine(diverges_at=0.1))
    assert {trial.user_attrs["status"] for trial in bad} == {"diverged"}
    assert len(ledger.finished) == 4


def test_a_missing_objective_counts_as_worst(tmp_path: Path) -> None:
    _, bad = worst_case(tmp_path, FakeEngine(measures_tail=False))
    assert {trial.user_attrs["status"] for trial in bad} == {"invalid"}


def test_an_objective_that_is_not_a_number_counts_as_worst() -> None:
    result = {"status": "completed", "final": {"val/overall": math.nan}, "key": "k", "computed_rounds": 1}
    outcome = combine([result], ["val/overall"])
    assert (outcome.status, outcome.values, outcome.valid) == ("invalid", (0.0,), False)


def test_a_failed_trial_has_its_message_and_is_tried_again_next_time(tmp_path: Path) -> None:
    engine = FakeEngine(crashes_at=0.1)
    ledger, bad = worst_case(tmp_path, engine)
    assert {trial.user_attrs["status"] for trial in bad} == {"failed"}
    assert "ZeroDivisionError: no luck (details in errors/" in bad[0].user_attrs["error"]
    assert len(ledger.failed) == 2
    healed = ledger_for(plan_for(request(tmp_path, SMALL, engine=FakeEngine(), trials=4)))
    assert len(work(healed)) == 2
    assert len(healed.finished) == 4


def test_a_lost_result_is_computed_again(tmp_path: Path) -> None:
    asked = request(tmp_path, SMALL, trials=4)
    plan = plan_for(asked)
    done = work(ledger_for(plan))
    (plan.entry(done[1].point, 1).folder / "result.json").write_text("{")
    again = work(ledger_for(plan_for(asked)))
    assert [proposal.key for proposal in again] == [done[1].key]


def test_a_resumed_sampler_does_not_repeat_its_first_draws(tmp_path: Path) -> None:
    continuous = {"algorithm": "fedavg", "parameters": {"training.lr": {"loguniform": [1e-3, 1e-1]}}}
    asked = request(tmp_path, continuous, sampler="random", trials=4)
    work(ledger_for(plan_for(asked)))
    more = ledger_for(plan_for(replace(asked, trials=8)))
    work(more)
    assert more.reused == 0


class TestSafeOptunaSearch:
    @pytest.fixture
    def make(self, tmp_path: Path) -> Callable[..., Any]:
        from fedrela_bench.study.search import SafeOptunaSearch

        def build(stopping: Callable[[], bool] = lambda: False, **asked: Any) -> Any:
            ledger = ledger_for(plan_for(request(tmp_path, **asked)))
            return SafeOptunaSearch(ledger, stopping), ledger

        return build

    def test_finishes_when_the_target_is_reached(self, make: Callable[..., Any]) -> None:
        search, ledger = make(trials=1)
        suggestion = search.suggest("t1")
        run_trial(ledger.plan, suggestion, 0.0)
        search.on_trial_complete("t1", {"status": "finished"})
        assert search.suggest("t2") == "FINISHED"
        assert [trial.state.name for trial in ledger.study.trials if trial.number == 0] == ["COMPLETE"]

    def test_a_dead_process_is_a_failure_with_worst_values(self, make: Callable[..., Any]) -> None:
        search, ledger = make(trials=2)
        search.suggest("t1")
        search.on_trial_complete("t1", None, error=True)
        assert [outcome.error for outcome in ledger.failed.values()] == ["the trial's process died"]
        assert ledger.study.trials[0].values == [0.0, 0.0]

    def test_a_stopped_trial_is_neither_good_nor_bad(self, make: Callable[..., Any]) -> None:
        search, ledger = make(trials=2)
        search.suggest("t1")
        search.on_trial_complete("t1", {"status": "stopped"})
        assert len(ledger.in_flight) == 1 and not ledger.failed
        ledger.release()
        assert ledger.study.trials[0].state.name == "FAIL"

    def test_nothing_is_proposed_after_a_stop(self, make: Callable[..., Any]) -> None:
        search, _ = make(stopping=lambda: True, trials=2)
        assert search.suggest("t1") == "FINISHED"

    def test_intermediate_reports_are_ignored(self, make: Callable[..., Any]) -> None:
        search, ledger = make(trials=2)
        search.suggest("t1")
        search.on_trial_result("t1", {})
        assert ledger.study.trials[0].intermediate_values == {}


def test_what_the_search_ended_stays_ended_when_the_confirm_stage_completes_it(tmp_path: Path) -> None:
    rule = Futility(1, 0.99)
    plan = plan_for(request(tmp_path, SMALL, trials=4, futility=rule))
    for trunk in plan.trunks():
        run_trunk(trunk.config, FakeDataset("data-1"), plan.runtime)
    ledger = ledger_for(plan)
    work(ledger)
    futile = {key for key, outcome in ledger.finished.items() if outcome.status == "futile"}
    assert futile
    for key in futile:
        run_cell_task(plan, ledger.points[key], 1, 0.0)
    resumed = ledger_for(plan)
    assert resumed.finished == ledger.finished and resumed.next_point() is None
    free = ledger_for(plan_for(request(tmp_path, SMALL, trials=4)))
    assert {outcome.status for outcome in free.finished.values()} == {"completed"}
