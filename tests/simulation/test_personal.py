"""The clients' own models, measured on their own classes."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch

from fedrela_bench.algorithms.fedloge import FedLoGe
from fedrela_bench.algorithms.fedrod import FedRoD, RoDHeads
from fedrela_bench.simulation import Simulation
from fedrela_bench.simulation.metrics import accuracies, confusion_matrix
from fedrela_bench.simulation.personal import weighted_accuracy
from tests.simulation import toy


def _trial(name: str, options: dict[str, Any] | None = None, **more: Any) -> Any:
    return toy.config(federation={"algorithm": name, "options": options or {}, "rounds": 2}, **more)


@pytest.mark.parametrize("name", [FedLoGe.name, FedRoD.name])
def test_the_personal_metric_is_an_option_that_changes_nothing_else(name: str) -> None:
    data = toy.skewed()
    options = {"ssec_steps": 20} if name == FedLoGe.name else {}
    off, before = toy.run(_trial(name, options), data)
    on, after = toy.run(_trial(name, {**options, "personal_metric": True}), data)
    assert toy.same_model(off, on)
    for first, second in zip(toy.figures(before), toy.figures(after), strict=True):
        personal = second[1].pop("test/personal")
        assert first == second
        assert 0 < personal <= 1


def test_the_personal_accuracy_of_fedrod_by_hand() -> None:
    data = toy.skewed()
    simulation = Simulation(_trial(FedRoD.name, {"personal_metric": True}), data)
    measured = [simulation.run_round(), simulation.run_round()][-1].metrics["test/personal"]
    total, samples = 0.0, 0
    for client, rows in enumerate(data.clients):
        simulation._trainer.load_client(client)
        net, heads = simulation.model.net.eval(), cast(RoDHeads, simulation.model.net.head)
        with torch.no_grad():
            outputs = net(simulation.data.pipeline.plain(simulation.data.test_images))
            logits = outputs.logits + heads.personal(outputs.features)
        confusion = confusion_matrix(data.test_labels, logits.argmax(1).numpy(), 4)
        per_class = [accuracies(confusion, {"one": [c]})["one"] for c in range(4)]
        total += float((data.client_counts[client] * per_class).sum())
        samples += len(rows)
    assert measured == pytest.approx(total / samples, abs=1e-12)


def test_classes_without_test_images_drop_out() -> None:
    hits = np.array([[True, True, False], [False, False, True]])
    labels, weights = np.array([0, 0, 2]), np.array([[3, 9, 1], [1, 5, 0]])
    assert weighted_accuracy(hits, labels, weights) == pytest.approx(3 / 5)
