"""MOON: the contrastive term, what clients remember, and FedAvg at mu = 0."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedrela_bench.algorithms import Algorithm, check_algorithm, register
from fedrela_bench.algorithms.moon import Moon, ProjectionHead, contrastive_loss
from fedrela_bench.simulation import Simulation
from tests.simulation import toy

VARIANTS: list[dict[str, Any]] = [{}, {"use_projection": False, "mu": 5.0}, {"projection_dim": 8, "temperature": 0.1}]


@register
class ProjectedFedAvg(Algorithm):
    """FedAvg on MOON's network."""

    name: ClassVar[str] = "test_projected_fedavg"
    citation: ClassVar[str] = "test"
    purpose: ClassVar[str] = "comparison"

    def make_head(self, feature_dim: int) -> nn.Module:
        return ProjectionHead(feature_dim, 256, self.num_classes)


def _trial(options: Mapping[str, Any] | None = None, algorithm: str = "moon", **sections: Any) -> Any:
    federation = {"algorithm": algorithm, "options": dict(options or {}), "clients": 4, "rounds": 4}
    return toy.config(federation=federation | sections.pop("federation", {}), **sections)


# the term ------------------------------------------------------------------------------------------------------------


def test_the_contrastive_term_is_the_worked_example(golden: Callable[[str], Path]) -> None:
    example = json.loads(golden("algorithm_examples.json").read_text())["examples"]["moon_contrastive"]
    inputs, expected = example["inputs"], example["expected"]
    local, reference, previous = (torch.tensor(inputs[n], dtype=torch.float64) for n in ("z", "z_global", "z_prev"))
    loss = contrastive_loss(local, reference, previous, inputs["temperature"])
    assert float(loss) == pytest.approx(expected["mean"], abs=example["tolerance"])
    for row, value in enumerate(expected["per_sample"]):
        rows = slice(row, row + 1)
        single = contrastive_loss(local[rows], reference[rows], previous[rows], inputs["temperature"])
        assert float(single) == pytest.approx(value, abs=example["tolerance"])


def _random(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), temperature=st.floats(0.05, 10))
def test_equal_references_give_log_two_without_gradient(seed: int, temperature: float) -> None:
    local, reference = _random(seed, 3, 5).requires_grad_(), _random(seed + 1, 3, 5)
    loss = contrastive_loss(local, reference, reference.clone(), temperature)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(math.log(2), abs=1e-12)
    assert local.grad is not None and local.grad.abs().max() < 1e-15


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000))
def test_the_term_falls_towards_the_global_representation(seed: int) -> None:
    reference, previous = _random(seed, 3, 5), _random(seed + 1, 3, 5)
    at_global = contrastive_loss(reference, reference, previous, 0.5)
    at_previous = contrastive_loss(previous, reference, previous, 0.5)
    assert at_global < math.log(2) < at_previous
    assert torch.isfinite(contrastive_loss(1e30 * reference, -reference, previous, 1e-3))


# rounds --------------------------------------------------------------------------------------------------------------


def test_without_the_term_moon_is_fedavg_on_the_same_network_bit_for_bit() -> None:
    data, relabel = toy.skewed(clients=4), {"tau": 0.3, "start": 2}
    for options, twin in (({"mu": 0.0}, "test_projected_fedavg"), ({"mu": 0.0, "use_projection": False}, "fedavg")):
        moon, _ = toy.run(_trial(options, relabel=relabel), data)
        fedavg, _ = toy.run(_trial(algorithm=twin, relabel=relabel), data)
        assert toy.same_model(moon, fedavg)
        assert not moon.state.client_states


def test_the_first_participation_adds_a_constant_only() -> None:
    data = toy.skewed(clients=4)
    results = []
    for mu in (0.0, 2.0):
        simulation = Simulation(_trial({"mu": mu}), data)
        results.append((simulation, simulation.run_round().metrics["train/loss"]))
    assert toy.same_model(results[0][0], results[1][0])
    assert results[1][1] - results[0][1] == pytest.approx(2 * math.log(2))
    for simulation, _ in results:
        simulation.run_round()
    assert not toy.same_model(results[0][0], results[1][0])


def _models(simulation: Simulation, client: int) -> dict[str, nn.Module]:
    """Deep copies of the network at the local start and, in eval mode, at the global and the previous values."""
    server, state = simulation.state.server, simulation.state.client_states[client]
    found = {}
    for name, values in (
        ("previous", (state["params"], state["buffers"])),
        ("global", (server.params, server.buffers)),
    ):
        simulation.model.load(*values)
        found[name] = copy.deepcopy(simulation.model.net).eval()
    return {**found, "local": copy.deepcopy(simulation.model.net).train()}


@pytest.mark.parametrize("use_projection", [True, False])
def test_the_second_round_contrasts_with_the_global_and_the_previous_model(use_projection: bool) -> None:
    # Unlike clients: with equal ones the previous model would be the global one.
    data = toy.dataset([0, 1, 2, 0, 1, 2, 0, 1, 2, 2, 2, 0, 2, 2, 0, 2], [range(8), range(8, 16)], 3)
    options = {"mu": 3.0, "temperature": 0.7, "use_projection": use_projection}
    training = {"batch_size": 8, "local_epochs": 1}
    simulation = Simulation(_trial(options, federation={"clients": 2}, training=training), data)
    simulation.run_round()
    expected = []
    for client in (0, 1):
        rows, models = simulation.data.rows[client], _models(simulation, client)
        images, labels = simulation.data.pipeline.plain(simulation.data.images[rows]), simulation.data.original[rows]
        seen = {name: _representation(model, images) for name, model in models.items()}
        cosines = [F.cosine_similarity(seen["local"][0], seen[name][0]) / 0.7 for name in ("global", "previous")]
        contrast = F.cross_entropy(torch.stack(cosines, dim=1), torch.zeros(8, dtype=torch.long))
        expected.append((F.cross_entropy(seen["local"][1], labels) + 3 * contrast).detach())
    result = simulation.run_round()
    assert result.metrics["train/loss"] == pytest.approx(float(sum(expected)) / 2, abs=1e-12)


def _representation(model: Any, images: Tensor) -> tuple[Tensor, Tensor]:
    features = model.backbone(images)
    if isinstance(model.head, ProjectionHead):
        projected = model.head.projection(features)
        return projected, model.head.classifier(projected)
    return features, model.head(features)


def test_a_client_keeps_its_last_own_model_with_its_statistics() -> None:
    data, federation = toy.skewed(clients=4), {"participation": 0.5, "rounds": 6}
    simulation = Simulation(_trial(federation=federation), data)
    kept: dict[int, tuple[Tensor, Tensor]] = {}
    for _ in range(6):
        finish = simulation.algorithm.finish

        def record(update: Any, then: Any = finish) -> None:
            kept[update.context.client] = (update.params.clone(), update.buffers.clone())
            then(update)

        simulation.algorithm.finish = record  # type: ignore[method-assign]
        simulation.run_round()
        assert simulation.state.client_states.keys() == kept.keys()
        for client, (params, buffers) in kept.items():
            assert torch.equal(simulation.state.client_states[client]["params"], params)
            assert torch.equal(simulation.state.client_states[client]["buffers"], buffers)
    assert len(kept) == 4


@pytest.mark.parametrize("options", VARIANTS)
def test_resumed_and_forked_runs_equal_the_full_one(options: dict[str, Any]) -> None:
    data, federation, relabel = toy.skewed(clients=4), {"participation": 0.75}, {"tau": 0.3, "start": 2}
    full, results = toy.run(_trial(options, federation=federation, relabel=relabel), data)
    trunk = Simulation(_trial(options, federation=federation), data)
    trunk.run_round()
    trunk.run_round()
    fork = Simulation(_trial(options, federation=federation, relabel=relabel), data)
    fork.restore(trunk.snapshot())
    assert toy.figures(list(fork)) == toy.figures(results)[2:]
    assert toy.same_model(fork, full)
    assert results[-1].metrics["relabel/changed"] > 0


@pytest.mark.parametrize("options", VARIANTS)
@pytest.mark.parametrize("batch", [{"batch_size": 8}, {"batch_size": 1, "short_batch": "keep"}])
def test_empty_one_sample_and_one_class_clients_and_batches_of_one(
    options: dict[str, Any], batch: dict[str, Any]
) -> None:
    data = toy.dataset([0] * 9 + [1] * 5 + [2] * 3, [[], [16], range(9), range(9, 16)], 4)
    simulation, results = toy.run(_trial(options, training=batch), data)
    assert simulation.status == "completed"
    assert all(np.isfinite(result.metrics["train/loss"]) for result in results)


def test_the_posterior_leans_on_the_class_logits() -> None:
    simulation = Simulation(_trial(), toy.skewed(clients=4))
    algorithm, net, server = simulation.algorithm, simulation.model.net.eval(), simulation.state.server
    images = simulation.data.pipeline.plain(simulation.data.images[:5])
    with torch.no_grad():
        outputs = net(images)
        expected = _representation(net, images)[1]
    assert expected.shape == (5, 4)
    assert torch.equal(algorithm.posterior(net, outputs, server, "scored"), expected)
    assert torch.equal(algorithm.score(net, outputs, server), expected)


def test_state_and_communication_are_as_declared() -> None:
    for options, models in (({}, 1), ({"use_projection": False}, 1), ({"mu": 0.0}, 0)):
        simulation, _ = toy.run(_trial(options), toy.skewed(clients=4))
        server = simulation.state.server
        floats = len(server.params) + len(server.buffers)
        assert simulation.communication == {"down": floats, "up": floats}
        assert simulation.algorithm.client_state_floats(simulation.model.size(48, 4)) == models * floats
        for state in simulation.state.client_states.values():
            assert sum(tensor.numel() for tensor in state.values()) == models * floats


def test_the_projection_adds_its_layers() -> None:
    sizes = [len(Simulation(_trial(o), toy.skewed(clients=4)).state.server.params) for o in ({}, VARIANTS[1])]
    projection, classifiers = (48 * 48 + 48) + (48 * 256 + 256), (256 * 4 + 4) - (48 * 4 + 4)
    assert sizes[0] - sizes[1] == projection + classifiers


@pytest.mark.parametrize("options", [{"mu": -1.0}, {"temperature": 0.0}, {"use_projection": 1}, {"projection_dim": 0}])
def test_options_out_of_range_are_refused_by_name(options: dict[str, Any]) -> None:
    (fault,) = check_algorithm("moon", options)
    assert f"federation.options.{next(iter(options))}" in fault
    assert all(field.description for field in Moon.OptionsModel.model_fields.values())
