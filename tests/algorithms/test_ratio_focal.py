"""Ratio Loss and Fed-Focal: worked examples, the server's own images, and where they are FedAvg."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import fedrela_bench.algorithms.fedfocal
import fedrela_bench.algorithms.ratio_loss  # noqa: F401
from fedrela_bench.algorithms import Algorithm, ClientUpdate, Server, check_algorithm, register
from fedrela_bench.algorithms.fedfocal import focal_loss
from fedrela_bench.algorithms.ratio_loss import outlier_ratio, outlier_sums, row_mean_ratio, weighted_loss
from fedrela_bench.config import parse
from fedrela_bench.data import load_dataset
from fedrela_bench.data.federated import FederatedDataset
from fedrela_bench.simulation import Simulation
from tests.simulation import toy

Golden = Callable[[str], Path]


@register
class UniformMean(Algorithm):
    name: ClassVar[str] = "ratio_test_uniform"
    citation: ClassVar[str] = "test"
    purpose: ClassVar[str] = "FedAvg with equal weights"

    def accumulate(self, sums: dict[str, Tensor], update: ClientUpdate) -> None:
        sums["params"].add_(update.params)

    def server_step(self, sums: dict[str, Tensor], server: Server, participants: Sequence[int]) -> Tensor:
        return sums["params"] / len(participants)


def _example(golden: Golden, name: str) -> tuple[dict[str, Any], dict[str, Any], float]:
    example = json.loads(golden("algorithm_examples.json").read_text())["examples"][name]
    return example["inputs"], example["expected"], example["tolerance"]


def _trial(algorithm: str, **options: Any) -> Any:
    return toy.config(federation={"algorithm": algorithm, "options": options, "participation": 0.7})


# ratio loss ----------------------------------------------------------------------------------------------------------


def test_ratios_weights_and_losses_are_those_of_the_worked_example(golden: Golden) -> None:
    inputs, expected, tolerance = _example(golden, "ratio_loss")
    gradients = torch.tensor(inputs["grad_per_aux_class"], dtype=torch.float64)
    ratios = torch.stack([row_mean_ratio(gradients[:, row], row) for row in range(3)])
    np.testing.assert_allclose(ratios, expected["R"], atol=tolerance)
    weights = inputs["alpha"] + inputs["beta"] * ratios
    np.testing.assert_allclose(weights, expected["weights"], atol=tolerance)
    logits, labels = torch.tensor(inputs["logits"], dtype=torch.float64), torch.tensor(inputs["labels"])
    for reduction in ("batch_mean", "weight_normalised"):
        loss = weighted_loss(logits, labels, weights, reduction)
        assert float(loss) == pytest.approx(expected[f"loss_{reduction}"], abs=tolerance)


def test_weights_without_denominator_are_left_out_and_ratios_are_capped() -> None:
    answers = torch.tensor([[-1.0, -3.0, 0.0], [0.5, 0.0, 0.0], [0.5, 0.0, 0.0]])
    assert float(row_mean_ratio(answers, 0)) == pytest.approx(2 * 1.0 / 1.0)
    assert float(row_mean_ratio(answers[:, 1:], 0)) == 10
    assert float(row_mean_ratio(answers * torch.tensor([[1e6], [1.0], [1.0]]), 0)) == 5000


def _outlier_reference(gradients: np.ndarray) -> list[float]:
    """The authors' rule written over single weights: updates are the negative gradients."""
    classes, rows, inputs = gradients.shape
    own, others = np.zeros(classes), np.zeros(classes)
    for i in range(rows):
        for j in range(inputs):
            update = -gradients[:, i, j]
            best = int(update.argmax())
            if sum(abs(value) > 0.8 * abs(update[best]) for value in update) < 2:
                own[best] += update[best]
                others[best] += np.delete(update, best).sum() / (classes - 1)
    return [min(abs(o / r), 5000) if r else 10 for o, r in zip(own, others, strict=True)]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5))
def test_the_authors_ratio_sums_over_weights_that_answer_to_one_class(seed: int, classes: int) -> None:
    gradients = np.random.default_rng(seed).normal(size=(classes, classes, 3))
    sums = [outlier_sums(torch.from_numpy(gradients[:, row])) for row in range(classes)]
    own, others = (torch.stack(parts).sum(dim=0) for parts in zip(*sums, strict=True))
    np.testing.assert_allclose(outlier_ratio(own, others), _outlier_reference(gradients), rtol=1e-9)


@pytest.mark.parametrize(("auxiliary", "held"), [(3, [3, 3, 3, 3]), (60, [40, 20, 10, 5])])
def test_class_weights_come_from_last_layer_gradients_at_the_global_model(auxiliary: int, held: list[int]) -> None:
    simulation = Simulation(_trial("ratio_loss", auxiliary_per_class=auxiliary), toy.skewed())
    data, net = simulation.data.server, simulation.model.net.eval()
    assert data is not None and [len(images) for images in data.images] == held
    gradients = []
    for label, images in enumerate(data.images):
        logits = net(data.pipeline.plain(images)).logits
        loss = F.cross_entropy(logits, torch.full((len(images),), label))
        gradients.append(torch.autograd.grad(loss, net.get_parameter("head.weight"))[0])
    stacked = torch.stack(gradients)
    expected = [1 + 0.1 * float(row_mean_ratio(stacked[:, row], row)) for row in range(4)]
    simulation.run_round()
    np.testing.assert_allclose(simulation.state.server.state["weights"], expected, rtol=1e-9)


@pytest.mark.parametrize(("aggregation", "other"), [("n_weighted", "fedavg"), ("uniform", "ratio_test_uniform")])
def test_equal_class_weights_are_fedavg_bit_for_bit_and_need_no_images(aggregation: str, other: str) -> None:
    plain, _ = toy.run(_trial("ratio_loss", beta=0.0, aggregation=aggregation), toy.skewed())
    base, _ = toy.run(_trial(other), toy.skewed())
    assert toy.same_model(plain, base)
    assert plain.data.server is None and not plain.state.server.state
    assert plain.communication == base.communication
    weighted, _ = toy.run(_trial("ratio_loss", aggregation=aggregation), toy.skewed())
    assert not toy.same_model(weighted, base)
    assert weighted.communication["down"] == base.communication["down"] + 4


def _with_spare(data: FederatedDataset) -> FederatedDataset:
    """Two more images of class 3 and one of class 2 in the source, which the profile left out."""
    labels = np.concatenate([data.labels, [3, 3, 2]])
    return dataclasses.replace(data, train_images=toy.class_images(labels, seed=5), source_labels=labels)


def test_the_server_takes_left_out_images_first_and_kept_ones_where_they_do_not_suffice() -> None:
    data = _with_spare(toy.skewed())
    count = len(data.labels)
    rows = data.server_rows(4, seed=0)
    assert data.source_labels is not None
    assert [set(data.source_labels[part]) for part in rows] == [{0}, {1}, {2}, {3}]
    assert [len(part) for part in rows] == [4, 4, 4, 4]
    assert [int((part >= count).sum()) for part in rows] == [0, 0, 1, 2]
    assert all(len(set(part)) == 4 for part in rows)
    assert [len(part) for part in data.server_rows(6, seed=0)] == [6, 6, 6, 6]
    assert [len(part) for part in data.server_rows(60, seed=0)] == [40, 20, 11, 7]
    assert any(not np.array_equal(a, b) for a, b in zip(rows, data.server_rows(4, seed=1), strict=True))


def test_a_loaded_dataset_knows_the_images_that_its_profile_left_out() -> None:
    config = parse({"data": {"source": "digits", "imbalance_factor": 20.0}, "federation": {"clients": 3}})
    data = load_dataset(config)
    rows = data.server_rows(5, seed=0)
    assert not set(rows[9]) & set(data.subset)
    assert len(rows) == 10 and all(len(part) == 5 for part in rows)


def test_a_class_without_images_has_the_ratio_of_no_evidence() -> None:
    data = toy.dataset([0] * 6 + [1] * 4, [range(5), range(5, 10)], 3)
    trial = toy.config(federation={"algorithm": "ratio_loss", "clients": 2, "rounds": 2})
    simulation, results = toy.run(trial, data)
    weights = simulation.state.server.state["weights"]
    assert float(weights[2]) == pytest.approx(1 + 0.1 * 10)
    assert torch.isfinite(weights).all() and np.isfinite(results[-1].metrics["train/loss"])


def test_the_servers_images_do_not_depend_on_the_runs_seed() -> None:
    data = toy.skewed()
    runs = [Simulation(parse({**_trial("ratio_loss").model_dump(), "seed": seed}), data) for seed in (1, 2)]
    first, second = (run.data.server for run in runs)
    assert first is not None and second is not None
    assert all(torch.equal(a, b) for a, b in zip(first.images, second.images, strict=True))


# fed-focal -----------------------------------------------------------------------------------------------------------


def test_the_focal_loss_is_that_of_the_worked_example(golden: Golden) -> None:
    inputs, expected, tolerance = _example(golden, "focal")
    logits, labels = torch.tensor(inputs["logits"], dtype=torch.float64), torch.tensor(inputs["labels"])
    assert float(focal_loss(logits, labels, inputs["gamma"])) == pytest.approx(expected["loss"], abs=tolerance)
    assert float(focal_loss(logits, labels, 0)) == pytest.approx(expected["loss_gamma0"], abs=tolerance)


def test_the_focal_factor_has_a_gradient_of_its_own() -> None:
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 4))).requires_grad_()
    labels = torch.tensor([0, 3, 1])
    assert torch.autograd.gradcheck(lambda values: focal_loss(values, labels, 2.0), (logits,))


def test_without_focusing_the_focal_loss_is_cross_entropy_bit_for_bit() -> None:
    focal, _ = toy.run(_trial("fedfocal", gamma=0.0), toy.skewed())
    base, _ = toy.run(_trial("fedavg"), toy.skewed())
    other, _ = toy.run(_trial("fedfocal"), toy.skewed())
    assert toy.same_model(focal, base)
    assert not toy.same_model(other, base)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=3, max_size=3),
    st.integers(0, 2),
    st.floats(0.05, 5),
    st.floats(0.05, 5),
)
def test_more_focusing_never_raises_the_loss_and_gradients_stay_finite(
    row: list[float], label: int, low: float, high: float
) -> None:
    logits, labels = torch.tensor([row], requires_grad=True), torch.tensor([label])
    low, high = sorted((low, high))
    losses = [focal_loss(logits, labels, gamma) for gamma in (0, low, high)]
    assert losses[0] >= losses[1] >= losses[2] >= 0
    for loss in losses:
        (slope,) = torch.autograd.grad(loss, logits, retain_graph=True)
        assert torch.isfinite(slope).all()


def test_options_out_of_range_are_named() -> None:
    faults = check_algorithm("ratio_loss", {"alpha": 0.0, "auxiliary_per_class": 0, "ratio": "mean", "gama": 1})
    for name in ("alpha", "auxiliary_per_class", "ratio", "gama"):
        assert any(f"federation.options.{name}" in fault for fault in faults)
    assert check_algorithm("fedfocal", {"gamma": -1})
