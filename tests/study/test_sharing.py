"""Runs that differ only in their period share rounds until they differ, and nothing else about them changes."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrela_bench import Simulation, TrialConfig, load_dataset
from fedrela_bench.study.cell import run_cell
from fedrela_bench.study.engine import Runtime
from fedrela_bench.study.forecast import forecast
from fedrela_bench.study.lineage import curve_of
from fedrela_bench.study.simulator import SimulationEngine
from fedrela_bench.study.store import Store
from fedrela_bench.study.trunk import run_trunk
from fedrela_bench.study.worker import run_trial
from tests.study.fakes import FakeDataset, FakeRun, config, request, runtime
from tests.study.test_ledger import ledger_for, plan_for, work

DATA = FakeDataset("data-1")
PERIODS = (0, 1, 2, 3)


def cell(period: int, **changes: Any) -> TrialConfig:
    return config(relabel__tau=0.1, relabel__start=0.4, relabel__period=period, **changes)


def curve(environment: Runtime, asked: TrialConfig) -> list[float]:
    lines = curve_of(environment.lineage(asked, "data-1"))
    return [line["result"]["metrics"]["val/tail"] for line in lines]


def full(environment: Runtime, asked: TrialConfig) -> list[float]:
    return [result.metrics["val/tail"] for result in FakeRun(asked, environment.engine)]  # type: ignore[arg-type]


@pytest.mark.parametrize("order", [PERIODS, PERIODS[::-1], (2, 0, 3, 1)])
def test_every_period_is_its_own_full_run_and_shared_rounds_are_computed_once(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    environment = runtime(tmp_path, PERIODS)
    run_trunk(cell(0), DATA, environment, [4])
    environment.meter.rounds = 0
    for period in order:
        result = run_cell(cell(period), DATA, environment)
        assert curve(environment, cell(period)) == full(environment, cell(period))
        assert result["final"]["val/tail"] == pytest.approx(np.mean(full(environment, cell(period))[-5:]))
        assert (result["last_round"], result["branch_round"]) == (10, 4 + period)
    # The run without a period has rounds 5 to 10; period p branches off after 4 + p.
    assert environment.meter.rounds == 6 + 5 + 4 + 3


def test_without_room_for_branch_states_every_cell_forks_from_its_trunk(tmp_path: Path) -> None:
    environment = runtime(tmp_path, None)
    run_trunk(cell(0), DATA, environment, [4])
    environment.meter.rounds = 0
    for period in PERIODS:
        run_cell(cell(period), DATA, environment)
        assert curve(environment, cell(period)) == full(environment, cell(period))
    assert environment.meter.rounds == 6 * 4


def test_a_study_with_other_settings_reads_the_same_results(tmp_path: Path) -> None:
    shared = runtime(tmp_path, PERIODS)
    first = run_cell(cell(2), DATA, shared)
    alone = replace(shared, periods=None)
    alone.meter.rounds = 0
    assert run_cell(cell(2), DATA, alone) == first
    assert alone.meter.rounds == 0


def test_a_lost_branch_state_costs_only_the_shared_rounds(tmp_path: Path) -> None:
    environment = runtime(tmp_path, PERIODS)
    run_cell(cell(0), DATA, environment)
    for path in environment.entry(cell(0), "data-1").folder.glob("r*.pt*"):
        path.unlink()
    environment.meter.rounds = 0
    run_cell(cell(3), DATA, environment)
    assert environment.meter.rounds == 3 + 3
    assert curve(environment, cell(3)) == full(environment, cell(3))


def test_a_run_that_ends_before_the_others_relabel_again_is_theirs_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = runtime(tmp_path, PERIODS)
    rounds = FakeRun.__iter__

    def ending(self: FakeRun):  # type: ignore[no-untyped-def]
        for result in rounds(self):
            if result.round == 6:
                self.status = "stopped"
            yield result

    monkeypatch.setattr(FakeRun, "__iter__", ending)
    found = run_cell(cell(3), DATA, environment)
    assert (found["status"], found["last_round"], found["computed_rounds"]) == ("stopped", 6, 0)
    assert found["final"] == run_cell(cell(0), DATA, environment)["final"]


def test_what_was_relabelled_in_shared_rounds_is_in_the_cells_record(tmp_path: Path) -> None:
    environment = runtime(tmp_path, PERIODS)
    run_cell(cell(3), DATA, environment)
    folder = environment.entry(cell(3), "data-1").folder
    assert sorted(path.name for path in folder.glob("relabel_*")) == ["relabel_r0005.npz", "relabel_r0008.npz"]
    with np.load(folder / "curves.npz") as arrays:
        assert arrays["per_class_rounds"].tolist() == [5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize("order", list(permutations((0.3, 0.5, 0.8))))
def test_a_search_without_the_trunks_stage_computes_every_round_before_a_fork_once(
    tmp_path: Path, order: tuple[float, ...]
) -> None:
    space = {"algorithm": "fedavg", "parameters": {"relabel.start": {"choice": [0.3, 0.5, 0.8]}}}
    asked = request(tmp_path, space, stages=("search",))
    bases = {"fedavg": config(relabel__tau=0.1)}
    plan = plan_for(replace(asked, bases=bases))
    points = [{"algorithm": "fedavg", "relabel.start": start} for start in order]
    answers = [run_trial(plan, {"point": point, "key": plan.key(point)}, 0.0) for point in points]
    assert sum(answer["rounds"] for answer in answers) == 8 + 7 + 5 + 2
    assert plan.trunks()[0].entry.snapshot_rounds() == [3, 5, 8]


def test_trunks_of_one_trial_each_keep_no_states_for_others(tmp_path: Path) -> None:
    parameters = {"relabel.start": {"choice": [0.3, 0.5, 0.8]}, "training.lr": {"loguniform": [0.01, 0.1]}}
    plan = plan_for(request(tmp_path, {"algorithm": "fedavg", "parameters": parameters}, stages=("search",)))
    assert plan.runtime.starts == ()


@pytest.mark.parametrize("late", ["first_participation", "never", "all_at_T"])
def test_on_real_images_a_branched_run_is_bit_for_bit_the_uninterrupted_one(tmp_path: Path, late: str) -> None:
    asked = TrialConfig().replace(
        {
            "data.imbalance_factor": 10,
            "federation.clients": 4,
            "federation.participation": 0.5,
            "federation.rounds": 6,
            "training.model": "digits",
            "evaluation.selection": "test_slice",
            "relabel.tau": 0.1,
            "relabel.start": 2,
            "relabel.period": 2,
            "relabel.late_clients": late,
        }
    )
    dataset = load_dataset(asked)
    environment = Runtime(Store(tmp_path), SimulationEngine(), periods=(0, 2))
    run_cell(asked.replace({"relabel.period": 0}), dataset, environment)
    environment.meter.rounds = 0
    run_cell(asked, dataset, environment)
    assert environment.meter.rounds == 2
    whole = list(Simulation(asked, dataset))
    branched = [line["result"]["metrics"] for line in curve_of(environment.lineage(asked, dataset.digest))]
    for ours, theirs in zip(branched, whole, strict=True):
        assert {**ours, "time/round_seconds": 0} == {**theirs.metrics, "time/round_seconds": 0}


def test_the_forecast_is_what_a_random_search_then_costs(tmp_path: Path) -> None:
    space = {"algorithm": "fedavg", "trials": 12}
    plan = plan_for(request(tmp_path, space, sampler="random"))
    expected = forecast(plan, 1)
    assert expected.full_runs <= expected.trunks_only < expected.unshared == 13
    ledger = ledger_for(plan)
    plan.runtime.meter.rounds = 0
    work(ledger)
    trunks = sum(len(trunk.entry.journal.rounds(1)) for trunk in plan.trunks())
    assert trunks <= 10
    cells = [path for path in (tmp_path / "store" / "cells").iterdir() if (path / "result.json").exists()]
    assert len(cells) == 12
