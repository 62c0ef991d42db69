"""FedMix and NaiveMix: the losses, what is shared, and when."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fedrela_bench.algorithms.fedmix  # noqa: F401
from fedrela_bench.algorithms import check_algorithm
from fedrela_bench.algorithms.fedmix import fedmix_loss, naivemix_loss
from fedrela_bench.config import parse
from fedrela_bench.models import Outputs
from fedrela_bench.nested import deep_merge
from fedrela_bench.simulation import Simulation
from tests.simulation import toy


def _linear(weight: Tensor, bias: Tensor) -> Any:
    return lambda inputs: Outputs(inputs, inputs @ weight.T + bias)


def _trial(algorithm: str = "fedmix", relabel: dict[str, Any] | None = None, **options: Any) -> Any:
    federation = {"algorithm": algorithm, "options": options, "participation": 0.7}
    return toy.config(federation=federation, relabel=relabel or {})


class Example:
    """The worked example's arguments in float64."""

    def __init__(self, golden: Callable[[str], Path]) -> None:
        example = json.loads(golden("algorithm_examples.json").read_text())["examples"]["fedmix"]
        inputs, self.expected, self.tolerance = example["inputs"], example["expected"], example["tolerance"]
        numbers = {name: torch.tensor(inputs[name], dtype=torch.float64) for name in ("x", "W", "b", "x_avg", "y_avg")}
        self.x, self.mean, self.mean_label = numbers["x"], numbers["x_avg"], numbers["y_avg"]
        self.weight, self.bias = numbers["W"], numbers["b"]
        self.labels, self.lam = torch.tensor(inputs["labels"]), float(inputs["lam"])

    def arguments(self, lam: float | None = None) -> tuple[Any, ...]:
        shared = (self.mean, self.mean_label, self.lam if lam is None else lam)
        return (_linear(self.weight, self.bias), self.x, self.labels, *shared)


def test_both_losses_are_those_of_the_worked_example(golden: Callable[[str], Path]) -> None:
    example = Example(golden)
    expected, tolerance = example.expected, example.tolerance
    assert float(fedmix_loss(*example.arguments()).detach()) == pytest.approx(expected["loss"], abs=tolerance)
    assert float(naivemix_loss(*example.arguments())) == pytest.approx(expected["naivemix_loss"], abs=tolerance)
    without_mean = (*example.arguments()[:3], torch.zeros(2).double(), torch.zeros(3).double(), example.lam)
    assert float(fedmix_loss(*without_mean).detach()) == pytest.approx(expected["l1"], abs=tolerance)
    without_slope = (*example.arguments()[:3], torch.zeros(2).double(), example.mean_label, example.lam)
    assert float(fedmix_loss(*without_slope).detach()) == pytest.approx(expected["l1"] + expected["l2"], abs=tolerance)


def test_fedmix_is_naivemix_up_to_second_order(golden: Callable[[str], Path]) -> None:
    example = Example(golden)
    gaps = [
        abs(float((fedmix_loss(*example.arguments(lam)) - naivemix_loss(*example.arguments(lam))).detach()))
        for lam in (0.02, 0.01)
    ]
    assert gaps[0] / gaps[1] == pytest.approx(4, rel=0.05)


def test_the_slope_term_does_not_shrink_with_the_batch(golden: Callable[[str], Path]) -> None:
    example = Example(golden)
    net, x, labels, *shared = example.arguments()
    once, twice = fedmix_loss(net, x, labels, *shared), fedmix_loss(net, x.repeat(4, 1), labels.repeat(4), *shared)
    assert float(once.detach()) == pytest.approx(float(twice.detach()), abs=1e-12)


def test_gradients_go_through_the_input_slope(golden: Callable[[str], Path]) -> None:
    example = Example(golden)

    def loss(weight: Tensor, bias: Tensor) -> Tensor:
        return fedmix_loss(_linear(weight, bias), *example.arguments()[1:])

    parameters = (example.weight.clone().requires_grad_(), example.bias.clone().requires_grad_())
    assert torch.autograd.gradcheck(loss, parameters)


@pytest.mark.parametrize("algorithm", ["fedmix", "naivemix"])
def test_without_lambda_it_is_fedavg_bit_for_bit_and_nothing_is_shared(algorithm: str) -> None:
    plain, _ = toy.run(_trial(algorithm, lam=0.0), toy.skewed())
    base, _ = toy.run(_trial("fedavg"), toy.skewed())
    mixed, _ = toy.run(_trial(algorithm), toy.skewed())
    assert toy.same_model(plain, base)
    assert not plain.state.server.state
    assert not toy.same_model(mixed, base)


def test_on_a_smooth_model_a_tiny_lambda_makes_the_two_methods_nearly_agree() -> None:
    smooth = {"training": {"model": "identity_net"}}
    base, first, second = (
        toy.run(parse(deep_merge(trial.model_dump(), smooth)), toy.skewed())[0].state.server.params
        for trial in (_trial("fedavg"), _trial(lam=1e-4), _trial("naivemix", lam=1e-4))
    )
    assert 0 < float((first - base).norm()) < 0.01 * float(base.norm())
    assert float((first - second).norm()) < 0.05 * float((first - base).norm())


@pytest.mark.parametrize(("group", "sizes"), [(4, [4, 4, 3]), ("client", [11])])
def test_groups_cut_a_client_into_means(group: Any, sizes: list[int]) -> None:
    data = toy.dataset([0] * 7 + [1] * 4, [range(11), []], 3)
    trial = toy.config(federation={"algorithm": "fedmix", "clients": 2, "options": {"group": group}})
    simulation = Simulation(trial, data)
    simulation.run_round()
    state = simulation.state.server.state
    weights = torch.tensor(sizes, dtype=torch.float64) / 11
    images = simulation.data.pipeline.plain(simulation.data.images)
    assert state["means"].shape == (len(sizes), 1, 8, 8)
    np.testing.assert_allclose(torch.tensordot(weights, state["means"], 1), images.mean(dim=0), atol=1e-12)
    np.testing.assert_allclose(weights @ state["labels"], [7 / 11, 4 / 11, 0], atol=1e-12)
    np.testing.assert_allclose(state["labels"].sum(dim=1), 1, atol=1e-12)


def test_everybody_shares_once_and_relabelling_changes_nothing_of_it() -> None:
    simulation = Simulation(_trial(relabel={"tau": 0.9, "start": 1}), toy.skewed())
    first = simulation.run_round()
    groups = sum(-(-len(rows) // 5) for rows in toy.skewed().clients)
    shared = {name: value.clone() for name, value in simulation.state.server.state.items()}
    assert len(first.participants) == 2
    assert len(shared["means"]) == len(shared["labels"]) == groups
    results = list(simulation)
    assert results[-1].metrics["relabel/changed"] > 0
    assert all(torch.equal(shared[name], value) for name, value in simulation.state.server.state.items())


def test_with_refresh_the_shared_labels_are_those_in_force() -> None:
    trial = _trial(relabel={"tau": 0.9, "start": 1, "late_clients": "all_at_T"}, group="client", refresh=True)
    simulation = Simulation(trial, toy.skewed())
    simulation.run_round()
    means = simulation.state.server.state["means"].clone()
    simulation.run_round()
    state = simulation.state
    assert (state.labels != simulation.data.original).any()
    for rows, found in zip(simulation.data.rows, state.server.state["labels"], strict=True):
        np.testing.assert_allclose(found, F.one_hot(state.labels[rows], 4).double().mean(dim=0), atol=1e-12)
    assert torch.equal(state.server.state["means"], means)


def test_choosing_means_leaves_the_augmentations_stream_alone() -> None:
    simulation = Simulation(_trial(), toy.skewed())
    simulation.run_round()
    simulation.data.pipeline.augment = "crop_flip"
    simulation._trainer.load_client(0)
    context = simulation._trainer.context(0, 0, 1)
    simulation.algorithm.prepare(simulation.model.net, context)
    drawn = simulation.algorithm.draw(context, np.random.default_rng(0), 50)
    assert drawn.shape == (50, 4)
    assert np.array_equal(drawn[:, :3], context.pipeline.draws(np.random.default_rng(0), 50))
    assert set(drawn[:, 3]) <= set(range(len(context.server.state["means"]))) and len(set(drawn[:, 3])) > 5


def test_options_out_of_range_are_named() -> None:
    assert check_algorithm("fedmix", {"lam": 0.1, "group": "client"}) == []
    faults = check_algorithm("naivemix", {"lam": 1.0, "group": 0, "refresh": 1})
    for name in ("lam", "group", "refresh"):
        assert any(f"federation.options.{name}" in fault for fault in faults)
