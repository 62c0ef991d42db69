"""FedAvg, FedProx and FedETF against the worked examples and the authors' aggregation."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedrela_bench.algorithms import ALGORITHMS, ClientUpdate, Server, build_algorithm, check_algorithm
from fedrela_bench.algorithms.fedetf import balanced_softmax_loss
from fedrela_bench.errors import ConfigError
from tests.algorithms.examples import Golden, worked_example


def _server(params: Tensor, clients: int) -> Server:
    return Server(params, torch.zeros(0), {}, np.ones(clients, dtype=int), 3, seed=0)


def _mean(states: list[Tensor], weights: list[float]) -> Tensor:
    algorithm = build_algorithm("fedavg", {}, 3)
    server = _server(torch.zeros_like(states[0]), len(states))
    sums = algorithm.new_sums(server)
    for state, weight in zip(states, weights, strict=True):
        context: Any = SimpleNamespace(weight=weight / sum(weights))
        algorithm.accumulate(sums, ClientUpdate(context, state, torch.zeros(0), 1))
    return algorithm.server_step(sums, server, range(len(states)))


def test_fedavg_is_the_mean_weighted_by_samples(golden: Golden) -> None:
    example = worked_example(golden, "fedavg_aggregate")
    states = [torch.tensor(values, dtype=torch.float64) for values in example["inputs"]["client_params"]]
    result = _mean(states, example["inputs"]["n"])
    np.testing.assert_allclose(result, example["expected"]["weighted"], atol=example["tolerance"])


def test_aggregation_is_the_authors(golden: Golden) -> None:
    figures = np.load(golden("aggregate.npz"))
    checked = 0
    for case in json.loads(str(figures["meta_json"])):
        name, weights = case["name"], [float(weight) for weight in case["weights"]]
        if sum(weights) == 0:
            continue
        for key in case["keys"]:
            states = [torch.from_numpy(figures[f"{name}__in{c}__{key}"]) for c in range(case["clients"])]
            if not states[0].is_floating_point():
                continue
            result = _mean([state.float() for state in states], weights)
            np.testing.assert_allclose(result, figures[f"{name}__ref64__{key}"], rtol=1e-5, atol=1e-6)
            checked += 1
    assert checked > 20


def test_local_steps_with_the_proximal_pull(golden: Golden) -> None:
    example = worked_example(golden, "fedprox_quadratic")
    inputs = example["inputs"]
    for mu, key in ((inputs["mu"], "client_params"), (0.0, "client_params_mu0")):
        for a, b, expected in zip(inputs["a"], inputs["b"], example["expected"][key], strict=True):
            result = _quadratic_steps(a, b, inputs, mu)
            np.testing.assert_allclose(result, expected, atol=example["tolerance"])


def test_heavy_ball_momentum_starts_with_the_gradient(golden: Golden) -> None:
    example = worked_example(golden, "sgd_momentum_quadratic")
    inputs = example["inputs"]
    for a, b, expected in zip(inputs["a"], inputs["b"], example["expected"]["client_params"], strict=True):
        np.testing.assert_allclose(_quadratic_steps(a, b, inputs, 0.0), expected, atol=example["tolerance"])


def _quadratic_steps(a: list[float], b: list[float], inputs: dict[str, Any], mu: float) -> Tensor:
    algorithm = build_algorithm("fedprox", {"mu": mu}, 3)
    w = torch.tensor(inputs["w0"], dtype=torch.float64)
    context: Any = SimpleNamespace(server=_server(w.clone(), 1))
    parameter = torch.nn.Parameter(w)
    sgd = torch.optim.SGD([parameter], lr=inputs["lr"], momentum=inputs["momentum"], fused=True)
    for _ in range(inputs["steps"]):
        gradient = torch.tensor(a, dtype=torch.float64) * (parameter.detach() - torch.tensor(b, dtype=torch.float64))
        if algorithm.adjusts_gradient():
            algorithm.adjust_gradient(gradient, parameter.detach(), context)
        parameter.grad = gradient
        sgd.step()
    return parameter.detach()


def test_the_balanced_softmax_of_fedetf(golden: Golden) -> None:
    example = worked_example(golden, "fedetf_original")
    inputs, expected = example["inputs"], example["expected"]
    logits = inputs["beta"] * torch.tensor(expected["cosine_logits"], dtype=torch.float64)
    labels, counts = torch.tensor(inputs["labels"]), torch.tensor([40, 0, 9])
    for gamma, key in ((inputs["gamma"], "loss"), (0.0, "loss_gamma0")):
        loss = balanced_softmax_loss(logits, labels, counts, gamma)
        assert float(loss) == pytest.approx(expected[key], abs=example["tolerance"])


def test_faults_of_name_and_options_are_found_together() -> None:
    assert check_algorithm("fedprox", {"mu": 0.1}) == []
    faults = check_algorithm("fedprox", {"mu": -1, "nu": 2})
    assert len(faults) == 2
    assert "federation.options.mu" in faults[0]
    assert "did you mean mu" in faults[1]
    assert "did you mean fedavg" in check_algorithm("fedavgg", {})[0]
    with pytest.raises(ConfigError):
        build_algorithm("fedetf_dotreg", {"etf_head_bn": "both"}, 3)


def test_every_algorithm_says_what_it_is() -> None:
    for name, kind in ALGORITHMS.items():
        assert kind.name == name
        assert kind.citation
        assert kind.purpose
