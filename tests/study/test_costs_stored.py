"""What a run sends and guarantees is stored with its result, for the rounds that it really had."""

from __future__ import annotations

from pathlib import Path

from fedrela_bench.config import TrialConfig
from fedrela_bench.neutral import without_neutral
from fedrela_bench.simulation import Simulation
from fedrela_bench.study.cell import run_cell
from fedrela_bench.study.engine import Runtime
from fedrela_bench.study.simulator import SimulationEngine
from fedrela_bench.study.store import Store
from fedrela_bench.study.trunk import run_trunk
from tests.simulation import toy


def _private() -> TrialConfig:
    privacy = {"clip": 0.5, "noise_multiplier": 1.0}
    federation = {"participation": 0.7, "rounds": 5}
    training = {"model": "identity_net", "local_epochs": 1}
    return toy.config(privacy=privacy, federation=federation, training=training, relabel={"tau": 0.3, "start": 3})


def test_trunk_and_cell_store_cost_and_guarantee(tmp_path: Path) -> None:
    trial, data = _private(), toy.skewed()
    runtime = Runtime(Store(tmp_path / "store"), SimulationEngine())
    trunk, cell = run_trunk(trial, data, runtime, [3]), run_cell(trial, data, runtime)
    simulation = Simulation(trial, data)
    trained = sum(len(result.participants) for result in simulation)
    for result in (trunk, cell):
        sent = result["communication"]
        assert (sent["down"], sent["up"]) == (simulation.communication["down"], simulation.communication["up"])
        assert (sent["total_up"], sent["participations"]) == (sent["up"] * trained, trained)
    assert trunk["privacy"]["epsilon"] > 0
    assert cell["privacy"]["epsilon"] is None
    assert cell["privacy"]["epsilon_labels_given"] == trunk["privacy"]["epsilon"]
    assert runtime.store.result("cell", cell["key"]) == cell


def test_plain_runs_store_no_guarantee_and_the_config_that_they_always_stored(tmp_path: Path) -> None:
    trial = _private().replace({"privacy.clip": None, "privacy.noise_multiplier": 0.0, "federation.rounds": 1})
    result = run_trunk(trial, toy.skewed(), Runtime(Store(tmp_path / "store"), SimulationEngine()))
    assert "privacy" not in result
    assert "privacy" not in without_neutral(TrialConfig, result["config"])
    assert result["communication"]["relabel_down"] == 0
