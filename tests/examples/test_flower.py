"""The Flower example: real apps, strategy and messages; labels of the simulator, accuracies of the plain loop."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch

pytest.importorskip("flwr", reason="flwr is not installed; make flower sets up an environment with it")

from fedrela_bench.config import TrialConfig
from fedrela_bench.relabel import Relabeler
from tests.examples.test_pytorch import simulated

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import flower_digits

    return flower_digits


def test_it_is_the_plain_loop_with_other_messengers(example: ModuleType) -> None:
    import pytorch_digits

    data, relabeler = example.Digits(1), Relabeler(tau=0.1, start=2)
    by_flower, changed = example.federated(data, relabeler, 4, 1)
    again, _ = example.federated(data, relabeler, 4, 1)
    plain, expected = pytorch_digits.federated(data, relabeler, 4, 1)
    assert by_flower == again
    assert changed == expected > 0
    assert by_flower == pytest.approx(plain, abs=0.02)
    assert example.federated(data, Relabeler(tau=0), 4, 1)[1] == 0


def test_a_client_app_keeps_the_simulators_labels(example: ModuleType) -> None:
    from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

    data, seed = example.Digits(3), 3
    grid = example.InProcess(example.client_app(data, Relabeler(tau=0.2, start=4, seed=seed), seed), example.CLIENTS)
    config = TrialConfig(relabel={"tau": 0.2, "start": 4}, seed=seed)
    first = example.network(11)
    # Flower counts from 1. A later round has another model, and relabels nobody again.
    for number, net in ((4, example.network(10)), (5, first), (6, example.network(12))):
        content = {"arrays": ArrayRecord(net.state_dict()), "config": ConfigRecord({"server-round": number})}
        replies = grid.send_and_receive([Message(RecordDict(content), node, "train") for node in grid.get_node_ids()])
        assert len(replies) == example.CLIENTS
        for client, context in enumerate(grid.contexts.values()):
            assert ("labels" in context.state) == (number >= 5)
            if number >= 5:
                labels = torch.from_numpy(context.state["labels"].to_numpy_ndarrays()[0])
                assert torch.equal(labels, simulated(config, first, data, client))
