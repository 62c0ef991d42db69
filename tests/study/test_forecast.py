"""What a study will write is known before it starts, and refused where there is no room for it."""

from __future__ import annotations

import shutil
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from torch import Tensor

from fedrela_bench import Simulation, TrialConfig, load_dataset
from fedrela_bench.algorithms import ALGORITHMS, register
from fedrela_bench.algorithms.base import Algorithm, ClientUpdate, LocalContext, ModelSize, State
from fedrela_bench.cli.tune import plan_of
from fedrela_bench.errors import ConfigError
from fedrela_bench.simulation import save_snapshot
from fedrela_bench.study.compute import POSTERIORS
from fedrela_bench.study.forecast import disk_bytes, forecast
from fedrela_bench.study.preflight import preflight
from fedrela_bench.study.simulator import SimulationEngine
from tests.study.fakes import FakeEngine, config, request
from tests.study.test_ledger import plan_for

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def hoarder() -> Iterator[str]:
    """An algorithm whose clients keep a copy of the model, as those with control variates do."""

    class Hoarder(Algorithm):
        name, citation, purpose = "hoarder", "none", "test"

        def initial_client_state(self, context: LocalContext) -> State:
            return {"kept": context.server.params.clone()}

        def client_state_floats(self, size: ModelSize) -> int:
            return size.shared

        def finish(self, update: ClientUpdate) -> None:
            kept: Tensor = update.context.state["kept"]
            kept.copy_(update.params)

    register(Hoarder)
    yield "hoarder"
    del ALGORITHMS["hoarder"]


@pytest.mark.parametrize(("algorithm", "model"), [("hoarder", "digits"), ("hoarder", "auto"), ("fedmix", "digits")])
def test_a_snapshot_is_as_large_as_forecast_with_what_clients_keep_or_share_once(
    tmp_path: Path, hoarder: str, algorithm: str, model: str
) -> None:
    name = hoarder if algorithm == "hoarder" else algorithm
    config = TrialConfig().replace(
        {"federation.algorithm": name, "federation.clients": 12, "federation.rounds": 1, "training.model": model}
    )
    dataset = load_dataset(config)
    simulation = Simulation(config, dataset)
    list(simulation)
    save_snapshot(tmp_path / "state.pt", simulation.snapshot())
    real = (tmp_path / "state.pt").stat().st_size
    expected, _ = SimulationEngine().state_bytes(config, dataset)
    assert expected == pytest.approx(real, rel=0.1)


def test_too_little_space_is_said_in_preflight_with_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(2**40, 0, 300 * 2**20))
    preflight(request(tmp_path / "fits"))
    large = FakeEngine(bytes=100 * 2**20)
    with pytest.raises(ConfigError, match=r"has 300 MiB free and the study needs about \d\d\d\d MiB") as caught:
        preflight(request(tmp_path / "study", engine=large))
    assert caught.value.exit_code == 2
    assert not (tmp_path / "study").exists()


def test_snapshots_that_are_there_are_not_counted_again(tmp_path: Path) -> None:
    plan = plan_for(request(tmp_path, {"algorithm": "fedavg"}, engine=FakeEngine(bytes=2**20)))
    before = disk_bytes(plan, 1)
    trunk = plan.trunks()[0]
    trunk.entry.folder.mkdir(parents=True)
    for fork in trunk.fork_rounds[:3]:
        trunk.entry.snapshot(fork).touch()
    assert before - disk_bytes(plan, 1) == 3 * 2**20


def test_branch_states_are_kept_only_where_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine(bytes=2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(2**40, 0, 500 * 2**20))
    assert preflight(request(tmp_path / "a", engine=engine)).plan.runtime.periods == (0, 1, 2)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(2**40, 0, 80 * 2**20))
    assert preflight(request(tmp_path / "a", engine=engine)).plan.runtime.periods is None


@pytest.mark.parametrize("place", ["s3://bucket/x", "gs://bucket/x", "hdfs://host/x"])
def test_object_stores_are_refused_with_what_to_use(place: str) -> None:
    with pytest.raises(ConfigError, match=r"an object store cannot hold a study.*give a folder that all nodes share"):
        preflight(request(Path(place)))
    with pytest.raises(ConfigError, match=r"--store .*object store"):
        preflight(request(Path("nowhere"), store=Path(place)))


def test_what_forks_share_is_counted_once_for_each_round_they_fork_at(tmp_path: Path) -> None:
    space = {"algorithm": "fedavg", "trials": 100}
    bare = disk_bytes(plan_for(request(tmp_path, space)), 1)
    plan = plan_for(request(tmp_path, space, engine=FakeEngine(pass_bytes=2**20)))
    trunk = plan.trunks()[0]
    assert disk_bytes(plan, 1) - bare == len(trunk.fork_rounds) * 2**20
    (trunk.entry.folder / POSTERIORS).mkdir(parents=True)
    (trunk.entry.folder / POSTERIORS / "pass.npz").touch()
    assert disk_bytes(plan, 1) - bare == (len(trunk.fork_rounds) - 1) * 2**20


def test_what_forks_share_is_as_large_as_forecast(tmp_path: Path) -> None:
    config = TrialConfig().replace({"federation.rounds": 2, "relabel.start": 0.5, "relabel.tau": 0.1})
    dataset = load_dataset(config)
    list(SimulationEngine().simulation(config, dataset, "cpu", tmp_path / "kept"))
    (kept,) = (tmp_path / "kept").glob("*.npz")
    assert SimulationEngine().posterior_bytes(config, dataset) == pytest.approx(kept.stat().st_size, rel=0.1)


def test_a_search_alone_is_charged_with_the_rounds_up_to_its_last_fork(tmp_path: Path) -> None:
    space = {"algorithm": "fedavg", "parameters": {"relabel.start": {"choice": [0.3, 0.5, 0.8]}}, "trials": 3}
    asked = request(tmp_path, space, stages=("search",))
    asked = replace(asked, bases={"fedavg": config(relabel__tau=0.1)})
    costs = forecast(plan_for(asked), 1)
    assert costs.full_runs == costs.trunks_only == pytest.approx((8 + 7 + 5 + 2) / 10)
    assert plan_of(asked, costs)["baselines"] == 0


def test_the_confirm_stage_is_counted_apart(tmp_path: Path) -> None:
    asked = request(tmp_path, {"algorithm": "fedavg"}, stages=("confirm",), confirm_seeds=(1, 2), lr_drop=0.1)
    costs = forecast(plan_for(asked), 1)
    # Without a search four fixed arms are left, one of which is the baseline; the others fork at 0.8.
    assert (costs.confirmed, costs.confirm_runs) == (4, pytest.approx(2 * (1 + 3 * 0.2)))
    whole = replace(asked, stages=("trunks", "search", "confirm"), confirm_top=2)
    more = forecast(plan_for(whole), 1)
    without = forecast(plan_for(replace(whole, stages=("trunks", "search"))), 1)
    assert 5 <= more.confirmed <= 6
    assert more.full_runs == pytest.approx(without.full_runs + more.confirm_runs)
    plan = plan_of(whole, more)
    assert (plan["confirmed"], plan["confirm_seeds"]) == (more.confirmed, [1, 2])


def test_a_race_searches_on_one_seed_and_is_counted_so(tmp_path: Path) -> None:
    asked = request(tmp_path, {"algorithm": "fedavg"}, trials=6, race=True, seeds=(1, 2, 3))
    costs = forecast(plan_for(asked), 1)
    assert (plan_of(asked, costs)["cells"], plan_of(asked, costs)["baselines"]) == (6, 1)
    whole = replace(asked, stages=("trunks", "search", "confirm"))
    assert (plan_of(whole, costs)["cells"], plan_of(whole, costs)["baselines"]) == (6, 3)
