"""Simulations on own data: with FedReLa, with every algorithm, and what the results say about the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrela_bench.config import TrialConfig, parse
from fedrela_bench.data import FederatedDataset, load_dataset
from fedrela_bench.defaults import resolve
from fedrela_bench.errors import ConfigError
from fedrela_bench.simulation import Simulation
from fedrela_bench.simulation.setup import build_network
from tests.data.makers import visits, write_npz, write_text
from tests.kits import ROWS, names

REFUSED = {"fedyoyo": "views turn, crop and recolour images"}


def short(source: str, algorithm: str = "fedavg", options: dict[str, Any] | None = None, **data: Any) -> TrialConfig:
    return parse(
        {
            "data": {"source": source, "profile": "natural", **data},
            "federation": {"algorithm": algorithm, "options": options or {}, "rounds": 2, "clients": "auto"},
            "training": {"local_epochs": 1, "batch_size": 16},
            "relabel": {"tau": 0.2, "start": 1},
        }
    )


def run(config: TrialConfig, dataset: FederatedDataset) -> Simulation:
    simulation = Simulation(config, dataset)
    results = list(simulation)
    assert [result.status for result in results] == ["ok"] * 2
    assert all(np.isfinite(value) for result in results for value in result.metrics.values())
    assert results[-1].metrics["relabel/changed"] >= 0
    return simulation


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"table:{write_text(tmp_path_factory.mktemp('table') / 't.csv', visits(72))}"


def test_fedrela_on_an_archive(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "x.npz")
    config = resolve(
        f"npz:{path}_lt",
        overrides={
            "data.imbalance_factor": 4,
            "federation.clients": 2,
            "federation.rounds": 2,
            "relabel.tau": 0.3,
            "relabel.start": 1,
        },
    ).config
    assert (config.training.model, config.data.image_size) == ("lenet", 28)
    run(config, load_dataset(config))


def test_fedrela_on_a_natural_table_learns_it(table: str) -> None:
    config = short(table, partition="natural").replace({"federation.rounds": 12, "training.local_epochs": 3})
    simulation = Simulation(config, load_dataset(config))
    last = list(simulation)[-1]
    assert (simulation.config.federation.clients, len(last.participants)) == (4, 4)
    assert "relabel/changed" in last.metrics
    assert last.metrics["test/overall"] > 0.8


def test_a_run_resumes_with_the_clients_of_the_data(table: str) -> None:
    config = short(table, partition="natural")
    dataset = load_dataset(config)
    whole = Simulation(config, dataset)
    list(whole)
    first = Simulation(config, dataset)
    first.run_round()
    second = Simulation(config, dataset)
    second.restore(first.snapshot())
    list(second)
    assert (second.state.server.params == whole.state.server.params).all()


def test_a_balanced_test_set_is_scored_as_the_mean_over_classes(tmp_path: Path) -> None:
    columns = visits(90)
    columns["split"] = ["test" if i >= 60 and (i % 3 == 0 or i > 84) else "train" for i in range(90)]
    source = f"table:{write_text(tmp_path / 't.csv', columns)}"
    plain, balanced = (short(source, partition="natural", balanced_test=on) for on in (False, True))
    simulations = [run(config, load_dataset(config)) for config in (plain, balanced)]
    confusions = [simulation.evaluate()["test"] for simulation in simulations]
    rates = [np.diag(confusion) / confusion.sum(axis=1) for confusion in confusions]
    assert len(set(confusions[0].sum(axis=1))) > 1
    assert len(set(confusions[1].sum(axis=1))) == 1
    np.testing.assert_allclose(rates[0], rates[1], atol=0.5)
    assert np.diag(confusions[1]).sum() / confusions[1].sum() == pytest.approx(rates[1].mean())


@pytest.mark.parametrize("name", names())
def test_every_algorithm_runs_on_a_table_or_refuses_before_anything_runs(table: str, name: str) -> None:
    row = next(row for row in ROWS if row.name == name)
    config = short(table, name, dict(row.options), partition="natural").replace(
        {f"training.{field}": value for field, value in row.training.items()}
    )
    dataset = load_dataset(config)
    if name in REFUSED:
        with pytest.raises(ConfigError, match=REFUSED[name]):
            build_network(config, dataset)
        return
    run(config, dataset)


def test_options_that_need_images_are_refused_with_the_option(table: str) -> None:
    config = short(table, "creff", {"augment": "crop_flip"}, partition="natural")
    with pytest.raises(ConfigError, match=r"cannot train on the rows .*set it to none"):
        Simulation(config, load_dataset(config))


def test_convolutions_on_a_table_name_the_model_to_use(table: str) -> None:
    config = short(table, partition="natural").replace({"training.model": "lenet"})
    with pytest.raises(ConfigError, match="use model mlp"):
        Simulation(config, load_dataset(config))


def test_workers_change_no_bit_on_a_table(table: str) -> None:
    config = short(table, partition="natural")
    dataset = load_dataset(config)
    alone = run(config, dataset)
    with Simulation(config, dataset, workers=2) as shared:
        list(shared)
    assert (shared.state.server.params == alone.state.server.params).all()
