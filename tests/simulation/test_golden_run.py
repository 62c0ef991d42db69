"""The golden federated runs, float64, of which every step's loss and every round's state are known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import fedrela_bench.relabelers.fedrela as relabeling
from fedrela_bench.algorithms import Algorithm, LocalContext, register
from fedrela_bench.simulation import Simulation
from tests.simulation import toy

TOLERANCE = 1e-9
SHAPES = {
    "conv1.weight": (8, 3, 3, 3),
    "bn1.weight": (8,),
    "bn1.bias": (8,),
    "conv2.weight": (16, 8, 3, 3),
    "bn2.weight": (16,),
    "bn2.bias": (16,),
    "linear.weight": (0, 16),
    "linear.bias": (0,),
}


@register
class UnsquaredProx(Algorithm):
    """The released utility code's penalty: beta ||w - w^t||, not on the first batch of an epoch."""

    name: ClassVar[str] = "golden_unsquared_prox"
    citation: ClassVar[str] = "test"
    purpose: ClassVar[str] = "golden run"
    beta: ClassVar[float] = 0.1

    def adjusts_gradient(self) -> bool:
        return True

    def prepare(self, net: Any, context: LocalContext) -> None:
        context.scratch["step"] = 0
        context.scratch["per_epoch"] = -(-context.samples // context.batch_size)

    def adjust_gradient(self, gradient: Tensor, params: Tensor, context: LocalContext) -> None:
        if context.scratch["step"] % context.scratch["per_epoch"]:
            gap = params - context.server.params
            gradient.add_(gap, alpha=self.beta / float(gap.norm()))
        context.scratch["step"] += 1


def _filled(name: str, shape: tuple[int, ...], start: int) -> Tensor:
    values = torch.from_numpy(toy.hash_fill(start, int(np.prod(shape)))).reshape(shape)
    if len(shape) == 4:
        return values * (6 / np.prod(shape[1:])) ** 0.5
    if len(shape) == 2:
        return values * (3 / shape[1]) ** 0.5
    return 1 + 0.1 * values if name.endswith("weight") else 0.1 * values


def _weights(setup: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor], list[dict[str, Tensor]]]:
    classes, start = setup["C"], setup["fill_start"]

    def take(shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
        nonlocal start
        values = {}
        for name, shape in shapes.items():
            shape = tuple(classes if size == 0 else size for size in shape)
            values[name] = _filled(name, shape, start)
            start += int(np.prod(shape))
        return values

    linear: dict[str, tuple[int, ...]] = {"weight": (classes, 16), "bias": (classes,)}
    return take(SHAPES), take(linear), [take(linear) for _ in setup["clients"]]


def _images(labels: list[int], start: int) -> Tensor:
    count = len(labels)
    noise = toy.hash_fill(start, count * 3 * 32 * 32).reshape(count, 3, 32, 32)
    g, c, h, w = np.ogrid[:count, :3, :32, :32]
    wave = np.sin(2 * np.pi * (h * (np.asarray(labels)[g] + 1) + w * (c + 1)) / 32)
    return torch.from_numpy(0.5 * wave + 0.6 * noise)


def _simulation(setup: dict[str, Any]) -> Simulation:
    algorithm = {"fedavg": "fedavg", "fedprox": "golden_unsquared_prox", "fedetf": "fedetf_dotreg"}[setup["kind"]]
    relabel = {}
    if "tau" in setup:
        relabel = {
            "preset": "author",
            "tau": setup["tau"] / 100,
            "start": setup["relabel_start"] / setup["rounds"],
            "posterior_batch": setup["batch_size"],
            "posterior_augment": False,
        }
    trial = toy.config(
        federation={
            "clients": 3,
            "rounds": setup["rounds"],
            "algorithm": algorithm,
            "options": {"etf_head_bn": "author"} if algorithm == "fedetf_dotreg" else {},
        },
        training={
            "model": "golden_net",
            "local_epochs": setup["local_epochs"],
            "batch_size": setup["batch_size"],
            "lr": setup["lr"],
            "momentum": setup["momentum"],
            "weight_decay": 0.0,
            "shuffle": False,
            "short_batch": "keep",
        },
        relabel=relabel,
    )
    grey = np.zeros((len(setup["y"]), 32, 32, 3), dtype=np.uint8)
    simulation = Simulation(trial, toy.dataset(setup["y"], setup["clients"], setup["C"], images=grey, test_per_class=2))
    toy.with_floats(simulation, _images(setup["y"], setup["data_start"]), _images(setup["test_y"], setup["test_start"]))
    _load(simulation, setup)
    return simulation


def _load(simulation: Simulation, setup: dict[str, Any]) -> None:
    network, auxiliary, local = _weights(setup)
    values = {f"backbone.{name}": value for name, value in network.items() if not name.startswith("linear")}
    if setup["kind"] != "fedetf":
        values |= {f"head.{name}": network[f"linear.{name}"] for name in ("weight", "bias")}
    else:
        values |= {f"head.auxiliary.{name}": value for name, value in auxiliary.items()}
        simulation.state.private = {
            k: {f"head.local.{name}": value.flatten() for name, value in head.items()} for k, head in enumerate(local)
        }
        classes = setup["C"]
        center = torch.eye(classes, dtype=torch.float64) - 1 / classes
        vertices = torch.tensor(setup["P"], dtype=torch.float64) @ center * (classes / (classes - 1)) ** 0.5
        simulation.model.net.get_submodule("head.etf_head").etf.copy_(vertices)
    toy.set_weights(simulation, values)


def _check_state(simulation: Simulation, expected: dict[str, list[float]]) -> None:
    server = simulation.state.server
    named = simulation.model.named(server.params, server.buffers)
    checked = 0
    for name, (mean, norm) in expected.items():
        ours = f"backbone.{name}" if not name.startswith("linear") else f"head.{name.removeprefix('linear.')}"
        if ours in named:
            value = named[ours]
            assert float(value.mean()) == pytest.approx(mean, abs=TOLERANCE)
            assert float(value.norm()) == pytest.approx(norm, abs=TOLERANCE)
            checked += 1
    assert checked >= 10


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fedetf", "fedetf_relabel"])
def test_the_loop_reproduces_the_golden_run(
    name: str, golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = {r["setup"]["name"]: r for r in json.loads(golden("tiny_run.json").read_text())["runs"]}
    setup, expected = runs[name]["setup"], runs[name]["float64"]
    simulation = _simulation(setup)
    losses: list[float] = []
    solver, posteriors = simulation._trainer.solver, []
    step = solver._step
    monkeypatch.setattr(solver, "_step", lambda b, c: (losses.append(float(loss := step(b, c))), loss)[1])
    if "U" in setup:
        _inject_uniforms(monkeypatch, setup, posteriors)
    for index, reference in enumerate(expected["rounds"]):
        losses.clear()
        result = simulation.run_round()
        steps = [sum(loss) for client in reference["clients"] for loss in client["step_losses"]]
        np.testing.assert_allclose(losses, steps, atol=TOLERANCE)
        _check_state(simulation, reference["global_state"])
        if index == setup.get("relabel_start"):
            _check_labels(simulation, setup, reference, posteriors)
            assert result.metrics["relabel/changed"] == sum(runs[name]["relabelled_per_client"])
    _check_logits(simulation, expected)


def _inject_uniforms(monkeypatch: pytest.MonkeyPatch, setup: dict[str, Any], posteriors: list[np.ndarray]) -> None:
    uniforms, taken = np.asarray(setup["U"]), 0
    original = relabeling.reallocate

    def fed(posterior: Any, labels: Any, tau: float, draws: Any, options: Any, **more: Any) -> Any:
        nonlocal taken
        posteriors.append(posterior.numpy().copy())
        taken += len(labels)
        return original(posterior, labels, tau, uniforms[taken - len(labels) : taken], options, **more)

    monkeypatch.setattr(relabeling, "reallocate", fed)


def _check_labels(
    simulation: Simulation, setup: dict[str, Any], reference: dict[str, Any], posteriors: list[np.ndarray]
) -> None:
    assert len(posteriors) == len(setup["clients"])
    for rows, client, posterior in zip(setup["clients"], reference["clients"], posteriors, strict=True):
        np.testing.assert_allclose(posterior, client["Q"], atol=TOLERANCE)
        assert simulation.state.labels[rows].tolist() == client["new_labels"]


def _check_logits(simulation: Simulation, expected: dict[str, Any]) -> None:
    simulation._trainer.load_global()
    net, images = simulation.model.net, simulation.data.test_images.permute(0, 3, 1, 2)
    with torch.no_grad():
        if "test_logits" in expected:
            simulation.algorithm.prepare_eval(net, "test")
            np.testing.assert_allclose(net(images).logits, expected["test_logits"], atol=TOLERANCE)
            return
        simulation.algorithm.prepare_eval(net, "test")
        np.testing.assert_allclose(net(images).logits, expected["test_logits_bn_batch"], atol=TOLERANCE)
        simulation._trainer.load_global()
        simulation.algorithm.prepare_eval(net, "posterior")
        outputs = net(images)
        np.testing.assert_allclose(outputs.logits, expected["test_logits_bn_eval"], atol=TOLERANCE)
        auxiliary = net.get_submodule("head.auxiliary")(outputs.features)
        np.testing.assert_allclose(auxiliary, expected["test_logits_g_aux"], atol=TOLERANCE)
