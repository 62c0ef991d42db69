"""What a study says of itself: cells counted once, runs that were stopped, requests that would be misunderstood."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedrela_bench.errors import ConfigError
from fedrela_bench.study.futility import Futility
from fedrela_bench.study.identity import register
from fedrela_bench.study.plan import Plan
from fedrela_bench.study.preflight import preflight
from fedrela_bench.study.stages import Session
from fedrela_bench.study.trunk import run_trunk
from fedrela_bench.tracking.manifest import Manifest
from fedrela_bench.tracking.progress import Progress
from tests.study.fakes import FakeDataset, request
from tests.study.test_ledger import compute, ledger_for, plan_for, work

FOUR = {
    "algorithm": "fedavg",
    "parameters": {"relabel.tau": {"choice": [0.05, 0.1]}, "relabel.start": {"choice": [0.5, 0.7]}},
}
BASE = {"algorithm": "fedavg", "parameters": {"training.lr": {"choice": [0.01, 0.1]}}}


def session_for(plan: Plan, stream: io.StringIO | None = None) -> Session:
    """The bookkeeping of a `tune` call without Ray."""
    interrupts: Any = SimpleNamespace(stopping=False)
    progress = Progress("lines" if stream else "quiet", stream)
    session = Session(plan, Manifest(plan.request.out), progress, interrupts)
    session.ledgers = [ledger_for(plan)]
    return session


def test_cells_that_were_there_are_counted_once_however_often_they_are_proposed(tmp_path: Path) -> None:
    first = request(tmp_path / "first", FOUR, trials=4, seeds=(1, 2), sampler="random")
    work(ledger_for(plan_for(first)))
    again = replace(first, out=tmp_path / "second", store=first.store_dir)
    session = session_for(plan_for(again))
    ledger = session.ledgers[0]
    assert ledger.next_point() is None
    assert len(ledger.study.trials) > 4  # some points were proposed twice
    assert (session.reused, session.cells_reused) == (4, 8)


def test_a_trial_that_finds_one_of_its_cells_computes_the_others_only(tmp_path: Path) -> None:
    one_seed = request(tmp_path / "first", FOUR, trials=1)
    work(ledger_for(plan_for(one_seed)))
    both = replace(one_seed, out=tmp_path / "second", store=one_seed.store_dir, seeds=(1, 2))
    session = session_for(plan_for(both))
    ledger = session.ledgers[0]
    proposal = ledger.next_point()
    assert proposal is not None
    session.started(proposal)
    rounds = compute(session.plan, proposal)["rounds"]
    session.settled(proposal, ledger.finish(proposal.key), rounds)
    assert (len(session.computed), session.cells_reused) == (1, 1)


def test_a_stopped_trial_is_shown_with_its_gain_and_without_numbers_it_never_reached(tmp_path: Path) -> None:
    stream = io.StringIO()
    plan = plan_for(request(tmp_path, FOUR, trials=1, futility=Futility(1, 0.99)))
    plan = replace(plan, runtime=replace(plan.runtime, futility=Futility(1, 0.99, plan.request.objectives)))
    for trunk in plan.trunks():
        run_trunk(trunk.config, FakeDataset("data-1"), plan.runtime, trunk.fork_rounds)
    session = session_for(plan, stream)
    proposal = session.ledgers[0].next_point()
    assert proposal is not None
    session.started(proposal)
    answer = compute(plan, proposal)
    session.settled(proposal, session.ledgers[0].finish(proposal.key, answer["error"]), answer["rounds"])
    (line,) = stream.getvalue().splitlines()
    assert "stopped:  gain over the baseline in round " in line and "below 99.00 points: val/overall " in line
    assert "0.00 %" not in line and session.progress.totals.best == {}


@pytest.mark.parametrize("began", [True, False])
def test_a_race_that_goes_on_as_something_else_is_told_so(tmp_path: Path, began: bool) -> None:
    asked = request(tmp_path, FOUR, trials=2, seeds=(1, 2), race=began, command="fedrela-bench tune --seeds 2 ...")
    register(preflight(asked).plan)
    with pytest.raises(ConfigError) as caught:
        preflight(replace(asked, race=not began))
    text = str(caught.value)
    how, remedy = ("with --race", "add --race") if began else ("without --race", "leave --race out")
    assert f"was begun {how}, so that its search has seeds" in text
    assert f"{remedy}, as in its command `fedrela-bench tune --seeds 2 ...`, or choose another --out" in text
    preflight(asked)


def test_options_without_a_meaning_for_base_algorithms_are_refused_together(tmp_path: Path) -> None:
    given: dict[str, Any] = {"lr_drop": 0.1, "confirm_seeds": (1, 2), "confirm_top": 3, "race": True, "seeds": (1, 2)}
    asked = request(tmp_path, BASE, stages=("base",), futility=Futility(1, 0.1), **given)
    (fault,) = asked.faults()
    assert fault.endswith("leave out --race, --futility, --lr-drop, --confirm-seeds, --confirm-top")
    assert request(tmp_path, BASE, stages=("base",)).faults() == []
