"""CReFF: gradients per class, feature matching, re-training on the server, and a broadcast model that is FedAvg's."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedrela_bench.algorithms.creff  # noqa: F401
from fedrela_bench.algorithms import LocalContext, build_algorithm
from fedrela_bench.algorithms.creff import (
    CReFF,
    class_gradient,
    fresh_classifier,
    match_features,
    matching_distance,
    retrain,
)
from fedrela_bench.models import Outputs
from fedrela_bench.simulation import Simulation
from tests.simulation import toy

QUICK = {"features_per_class": 6, "match_steps": 4, "retrain_epochs": 3, "retrain_batch": 8}


def _trial(relabel: dict[str, Any] | None = None, **options: Any) -> Any:
    federation = {"algorithm": "creff", "options": {**QUICK, **options}, "participation": 0.7}
    return toy.config(federation=federation, relabel=relabel or {})


def _context(simulation: Simulation, client: int) -> LocalContext:
    simulation._trainer.load_client(client)
    simulation.model.net.eval()
    return simulation._trainer.context(client, 0, 1)


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def test_distance_and_class_gradient_are_those_of_the_worked_example(golden: Callable[[str], Path]) -> None:
    example = json.loads(golden("algorithm_examples.json").read_text())["examples"]["creff"]
    inputs, expected, tolerance = example["inputs"], example["expected"], example["tolerance"]

    def joined(weight: Any, bias: Any) -> Tensor:
        return torch.tensor([[*row, b] for row, b in zip(weight, bias, strict=True)], dtype=torch.float64)

    real, synthetic = joined(*inputs["real"]), joined(*inputs["synthetic"])
    assert float(matching_distance(synthetic, real)) == pytest.approx(expected["distance"], abs=tolerance)
    assert float(matching_distance(real, real)) == pytest.approx(expected["distance_self"], abs=tolerance)
    features = torch.tensor(inputs["features_of_class_1"], dtype=torch.float64)
    classifier = joined(inputs["W"], inputs["b"])
    gradient = class_gradient(features, 1, classifier, torch.full((2,), 0.5, dtype=torch.float64))
    np.testing.assert_allclose(gradient[:, :-1], expected["grad_W"], atol=tolerance)
    np.testing.assert_allclose(gradient[:, -1], expected["grad_b"], atol=tolerance)


@pytest.mark.parametrize("augment", ["none", "crop_flip"])
def test_a_clients_gradient_is_the_mean_over_draws_of_autograds(augment: str) -> None:
    data = toy.skewed()
    if augment == "crop_flip":  # Black images look the same after every crop and flip.
        data = dataclasses.replace(data, train_images=np.zeros_like(data.train_images))
    simulation = Simulation(_trial(images_per_draw=2, repeats=3, augment=augment), data)
    algorithm, context = simulation.algorithm, _context(simulation, 0)
    assert isinstance(algorithm, CReFF)
    message = algorithm.probe(simulation.model.net, context)
    classifier = context.server.state["classifier"].clone().requires_grad_()
    labels, rng = context.labels.numpy(), context.generator("creff")
    assert sorted(message) == [str(label) for label in np.unique(labels)]
    for label in np.unique(labels):
        losses = []
        for rows in algorithm._picks(rng, np.flatnonzero(labels == label)):
            assert len(set(rows)) == len(rows) <= 2
            features = simulation.model.net.features(context.pipeline.plain(context.images[rows])).detach()
            logits = features @ classifier[:, :-1].T + classifier[:, -1]
            losses.append(F.cross_entropy(logits, torch.full((len(rows),), int(label))))
        (expected,) = torch.autograd.grad(torch.stack(losses).mean(), classifier)
        np.testing.assert_allclose(message[str(label)], expected, atol=1e-12)


def test_one_crop_moves_all_images_of_a_draw() -> None:
    simulation = Simulation(_trial(augment="crop_flip", repeats=2), toy.skewed())
    plain = Simulation(_trial(repeats=2), toy.skewed())
    moved, again, still = (
        run.algorithm.probe(run.model.net, _context(run, 0)) for run in (simulation, simulation, plain)
    )
    assert all(torch.equal(moved[name], again[name]) for name in moved)
    assert not torch.allclose(moved["0"], still["0"])


def test_the_broadcast_model_is_fedavgs_bit_for_bit_but_another_classifier_is_scored() -> None:
    creff, results = toy.run(_trial(), toy.skewed())
    fedavg, plain = toy.run(toy.config(federation={"participation": 0.7}), toy.skewed())
    assert toy.same_model(creff, fedavg)
    assert [r.metrics["train/loss"] for r in results] == [r.metrics["train/loss"] for r in plain]
    assert any((a.confusion["test"] != b.confusion["test"]).any() for a, b in zip(results, plain, strict=True))


def test_matching_brings_synthetic_gradients_towards_the_real_ones() -> None:
    classifier, real, features = _random(3, 6), _random(2, 3, 6, seed=1), _random(2, 4, 5, seed=2)

    def distances(found: Tensor) -> list[float]:
        weights = torch.full((4,), 0.25)
        pairs = zip(found, (0, 2), real, strict=True)
        return [float(matching_distance(class_gradient(f, c, classifier, weights), r)) for f, c, r in pairs]

    matched = match_features(features, [0, 2], classifier, real, 30, 0.1)
    assert all(after < before for after, before in zip(distances(matched), distances(features), strict=True))
    assert torch.equal(match_features(features, [0, 2], classifier, real, 0, 0.1), features)


def test_a_step_on_the_features_descends_the_distance_of_autograds_gradients() -> None:
    classifier, real, features = _random(3, 6), _random(1, 3, 6, seed=1), _random(1, 4, 5, seed=2)
    live, layer = features[0].clone().requires_grad_(), nn.Linear(5, 3, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(classifier[:, :-1])
        layer.bias.copy_(classifier[:, -1])
    loss = F.cross_entropy(layer(live), torch.full((4,), 1))
    slopes = torch.autograd.grad(loss, list(layer.parameters()), create_graph=True)
    distance = matching_distance(torch.cat([slopes[0], slopes[1][:, None]], dim=1), real[0])
    expected = features[0] - 0.1 * torch.autograd.grad(distance, live)[0]
    np.testing.assert_allclose(match_features(features, [1], classifier, real, 1, 0.1)[0], expected, atol=1e-12)


def test_classes_are_matched_apart_whoever_is_matched_beside_them() -> None:
    classifier, real, features = _random(3, 6), _random(2, 3, 6, seed=1), _random(2, 4, 5, seed=2)
    together = match_features(features, [0, 2], classifier, real, 3, 0.1)
    for place, label in enumerate((0, 2)):
        part = slice(place, place + 1)
        alone = match_features(features[part], [label], classifier, real[part], 3, 0.1)
        np.testing.assert_allclose(together[part], alone, atol=1e-12)


def test_retraining_is_plain_sgd_on_a_fresh_linear_layer() -> None:
    features, epochs, batch, lr = _random(3, 5, 4), 3, 4, 0.1
    result = retrain(features, np.random.default_rng(7), epochs, batch, lr)
    rng = np.random.default_rng(7)
    first = fresh_classifier(rng, 3, 4, features)
    layer = nn.Linear(4, 3, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(first[:, :-1])
        layer.bias.copy_(first[:, -1])
    sgd = torch.optim.SGD(layer.parameters(), lr)
    inputs, labels = features.flatten(0, 1), torch.arange(3).repeat_interleave(5)
    for _ in range(epochs):
        for rows in torch.from_numpy(rng.permutation(15)).split(batch):
            sgd.zero_grad()
            F.cross_entropy(layer(inputs[rows]), labels[rows]).backward()
            sgd.step()
    np.testing.assert_allclose(result[:, :-1], layer.weight.detach(), atol=1e-12)
    np.testing.assert_allclose(result[:, -1], layer.bias.detach(), atol=1e-12)


def test_only_features_of_reported_classes_move_and_every_client_counts_once() -> None:
    simulation = Simulation(_trial(), toy.skewed())
    algorithm, server = simulation.algorithm, simulation.state.server
    before = {name: value.clone() for name, value in server.state.items()}
    one, two = _random(4, 49, seed=1), _random(4, 49, seed=2)
    algorithm.receive(server, {0: {"1": one, "3": one}, 2: {"1": two}})
    moved = [not torch.equal(a, b) for a, b in zip(before["features"], server.state["features"], strict=True)]
    assert moved == [False, True, False, True]
    expected = match_features(
        before["features"][[1, 3]], [1, 3], before["classifier"], torch.stack([(one + two) / 2, one]), 4, 0.1
    )
    np.testing.assert_allclose(server.state["features"][[1, 3]], expected, atol=1e-12)


def test_without_matching_features_stay_as_drawn_and_the_classifier_is_retrained_anew() -> None:
    simulation = Simulation(_trial(match_steps=0), toy.skewed())
    first = {name: value.clone() for name, value in simulation.state.server.state.items()}
    assert 0.8 < float(first["features"].std()) < 1.2
    classifiers = [first["classifier"]]
    for _ in range(2):
        simulation.run_round()
        classifiers.append(simulation.state.server.state["classifier"])
    assert torch.equal(simulation.state.server.state["features"], first["features"])
    assert not torch.equal(classifiers[0], classifiers[1]) and not torch.equal(classifiers[1], classifiers[2])


def test_the_scored_logits_and_both_posterior_heads() -> None:
    simulation, _ = toy.run(_trial(), toy.skewed())
    server, net, algorithm = simulation.state.server, simulation.model.net, simulation.algorithm
    features, logits = _random(5, 48), _random(5, 4)
    outputs, classifier = Outputs(features, logits), server.state["classifier"]
    scored = features @ classifier[:, :-1].T + classifier[:, -1]
    np.testing.assert_allclose(algorithm.score(net, outputs, server), scored, atol=1e-12)
    assert torch.equal(algorithm.posterior(net, outputs, server, "scored"), algorithm.score(net, outputs, server))
    assert torch.equal(algorithm.posterior(net, outputs, server, "broadcast"), logits)


def test_after_relabelling_clients_report_the_classes_of_the_labels_in_force() -> None:
    relabel = {"tau": 0.9, "start": 1, "posterior_head": "broadcast"}
    data = toy.dataset([0] * 12 + [1] * 3, [range(15), []], 3)
    trial = toy.config(federation={"algorithm": "creff", "options": QUICK, "clients": 2}, relabel=relabel)
    simulation = Simulation(trial, data)
    before = sorted(simulation.algorithm.probe(simulation.model.net, _context(simulation, 0)))
    list(simulation)
    after = sorted(simulation.algorithm.probe(simulation.model.net, _context(simulation, 0)))
    assert before == ["0", "1"]
    assert after == [str(label) for label in np.unique(simulation.state.labels.numpy())] == ["0", "1", "2"]


def test_a_message_holds_one_classifier_gradient_per_class() -> None:
    simulation = Simulation(_trial(), toy.skewed())
    message = simulation.algorithm.probe(simulation.model.net, _context(simulation, 0))
    assert {tuple(value.shape) for value in message.values()} == {(4, 49)}
    shared = Simulation(toy.config(), toy.skewed()).communication["up"]
    assert simulation.communication == {"down": shared + 4 * 49, "up": shared + 4 * 4 * 49}


def test_options_out_of_range_are_refused() -> None:
    with pytest.raises(Exception, match=r"federation.options.match_steps(.|\n)*federation.options.augment"):
        build_algorithm("creff", {"match_steps": -1, "augment": "siamese"}, 3)
