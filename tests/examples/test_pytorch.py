"""The plain PyTorch example repeats by seed, and its labels are the simulator's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from fedrela_bench.config import TrialConfig
from fedrela_bench.relabel import Relabeler
from fedrela_bench.simulation.relabeling import relabel_client, relabeler_of

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import pytorch_digits

    return pytorch_digits


def simulated(config: TrialConfig, net: Any, data: Any, client: int, refresh: int = 0) -> torch.Tensor:
    """The labels that the simulator gives a client from a network's posterior."""
    with torch.no_grad():
        posterior = net(data.images[client]).double().softmax(dim=1)
    own = data.labels[client]
    return relabel_client(posterior, config, client, own, own, refresh, relabeler_of(config), config.relabel.tau)[0]


def test_one_seed_gives_one_result_and_relabelling_changes_it(example: ModuleType) -> None:
    data = example.Digits(1)
    with_it = [example.federated(data, Relabeler(tau=0.1, start=2), 4, 1) for _ in range(2)]
    without, none = example.federated(data, Relabeler(tau=0), 4, 1)
    assert with_it[0] == with_it[1]
    assert with_it[0][1] > none == 0
    assert set(without) == {"overall", "head", "medium", "tail"}
    assert without["overall"] > 0.3 and without["head"] > 0.6
    assert with_it[0][0] != without


def test_its_labels_are_the_simulators(example: ModuleType) -> None:
    data, net = example.Digits(2), example.network(5)
    config = TrialConfig(relabel={"tau": 0.2, "start": 3, "period": 4}, seed=2)
    relabeler = Relabeler(tau=0.2, start=3, period=4, seed=2)
    for client in range(example.CLIENTS):
        for index, refresh in ((3, 0), (8, 1)):
            with torch.no_grad():
                result = relabeler.relabel_logits(client, index, net(data.images[client]), data.labels[client])
            assert torch.equal(result.labels, simulated(config, net, data, client, refresh))
            assert result.refresh == refresh


def test_it_runs_as_a_script() -> None:
    command = [sys.executable, str(EXAMPLES / "pytorch_digits.py"), "--rounds", "2", "--start", "1"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["FedAvg", "FedAvg + FedReLa"]
    assert all("head" in line and "tail" in line for line in lines)
