"""FedLoGe: its three heads, and a run whose every loss and label is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedrela_bench.algorithms import build_algorithm, check_algorithm
from fedrela_bench.algorithms.fedloge import ABSENT_LOGIT, FedLoGe, LoGeHeads, realign
from fedrela_bench.errors import ConfigError
from fedrela_bench.simulation import Simulation
from tests.algorithms.examples import Golden, worked_example
from tests.simulation import test_golden_run as golden_run
from tests.simulation import toy


def _trial(options: dict[str, Any] | None = None, **sections: Any) -> Any:
    federation = {"algorithm": "fedloge", "options": {"ssec_steps": 20, **(options or {})}}
    return toy.config(federation={**federation, **sections.pop("federation", {})}, **sections)


# heads --------------------------------------------------------------------------------------------------------------


def _heads(inputs: dict[str, Any]) -> LoGeHeads:
    heads = LoGeHeads(2, 2, build_algorithm("fedloge", {}, 2).options)  # type: ignore[arg-type]
    heads.auxiliary, heads.local = torch.nn.Linear(2, 3).double(), torch.nn.Linear(2, 3).double()
    with torch.no_grad():
        heads.auxiliary.weight.copy_(torch.tensor(inputs["W_aux"]))
        heads.auxiliary.bias.copy_(torch.tensor(inputs["b_aux"], dtype=torch.float64))
        heads.local.weight.copy_(torch.tensor(inputs["W_local"]))
        heads.local.bias.zero_()
    return heads


@torch.no_grad()
def test_realignment(golden: Golden) -> None:
    example = worked_example(golden, "fedloge_realign")
    inputs, expected, tolerance = example["inputs"], example["expected"], example["tolerance"]
    heads, features = _heads(inputs), torch.tensor(inputs["features"], dtype=torch.float64)
    before, after = heads.auxiliary(features), heads.realigned(features, 1.7)
    np.testing.assert_allclose(realign(heads.auxiliary.weight, 1.7), expected["W_realigned"], atol=tolerance)
    np.testing.assert_allclose(before, expected["logits_before"], atol=tolerance)
    np.testing.assert_allclose(after, expected["logits_after"], atol=tolerance)
    assert before.argmax(1).tolist() == expected["pred_before"]
    assert after.argmax(1).tolist() == expected["pred_after"]
    counts = torch.tensor(inputs["local_counts"])
    personal = heads.personal(features, counts) - heads.local(features)
    scaled = features @ torch.tensor(expected["W_local_realigned"]).T.double() + heads.auxiliary.bias
    np.testing.assert_allclose(personal[:, counts > 0], scaled[:, counts > 0], atol=tolerance)
    np.testing.assert_allclose(personal[:, counts == 0], ABSENT_LOGIT)


def test_realignment_is_the_released_codes(golden: Golden) -> None:
    figures = np.load(golden("etf.npz"))
    for case in json.loads(str(figures["meta_json"]))["realign"]:
        weight, bias, features, expected, logits = (
            torch.from_numpy(figures[f"realign_{case['name']}__{key}"])
            for key in ("weight", "bias", "X", "calibrated_weight", "logits")
        )
        ours = realign(weight.double(), case["scale"])
        torch.testing.assert_close(ours, expected.double(), atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(features.double() @ ours.T + bias.double(), logits.double(), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_equal_norms_and_no_bias_leave_predictions_alone() -> None:
    heads = LoGeHeads(5, 4, build_algorithm("fedloge", {}, 4).options)  # type: ignore[arg-type]
    heads.auxiliary = torch.nn.Linear(5, 4).double()
    heads.auxiliary.weight.copy_(realign(heads.auxiliary.weight, 0.3))
    heads.auxiliary.bias.zero_()
    features = torch.randn(50, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(heads.realigned(features, 1.7).argmax(1), heads.auxiliary(features).argmax(1))


# runs ---------------------------------------------------------------------------------------------------------------


def _gradients(simulation: Simulation, loss: Callable[[Any, Any], Tensor]) -> dict[str, Tensor]:
    net = simulation.model.net.train()
    net.zero_grad()
    images, labels = simulation.data.pipeline.plain(simulation.data.images[:8]), simulation.data.original[:8]
    loss(net, SimpleNamespace(inputs=images, labels=labels)).backward()  # type: ignore[no-untyped-call]
    return {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}


def test_one_backward_pass_gives_the_gradients_of_three() -> None:
    simulation = Simulation(_trial(), toy.skewed())
    together = _gradients(simulation, lambda net, batch: simulation.algorithm.loss(net, batch, cast(Any, None)))
    alone = [
        _gradients(simulation, lambda net, b: cross_entropy(net.head.ssec(net.features(b.inputs)), b.labels)),
        _gradients(simulation, lambda net, b: cross_entropy(net.head.auxiliary(_detached(net, b)), b.labels)),
        _gradients(simulation, lambda net, b: cross_entropy(net.head.local(_detached(net, b)), b.labels)),
    ]
    assert {name.split(".")[0] for name in alone[0]} == {"backbone"}
    separate = {name: gradient for part in alone for name, gradient in part.items()}
    assert sum(len(part) for part in alone) == len(separate) == len(together)
    for name, gradient in together.items():
        assert torch.equal(gradient, separate[name]), name


def _detached(net: Any, batch: Any) -> Tensor:
    return cast(Tensor, net.features(batch.inputs).detach())


def test_the_backbone_does_not_feel_the_other_heads() -> None:
    data, trial = toy.skewed(), _trial()
    plain, other = Simulation(trial, data), Simulation(trial, data)
    named = other.model.named(other.state.server.params, other.state.server.buffers)
    named["head.auxiliary.weight"].mul_(3)
    other._trainer._first_private["head.local.weight"].mul_(-2)
    for simulation in (plain, other):
        list(simulation)
    first, second = (s.model.named(s.state.server.params, s.state.server.buffers) for s in (plain, other))
    assert all(torch.equal(first[name], second[name]) for name in first if name.startswith("backbone."))
    assert not torch.equal(first["head.auxiliary.weight"], second["head.auxiliary.weight"])


@pytest.mark.parametrize("bias", ["zero", "author"])
def test_the_sparse_classifier_never_changes(bias: str) -> None:
    simulation = Simulation(_trial({"ssec_bias": bias}), toy.skewed())
    fixed = cast(LoGeHeads, simulation.model.net.head).ssec
    before = (fixed.weight.clone(), fixed.bias.clone())
    assert bool(fixed.bias.any()) == (bias == "author")
    list(simulation)
    assert torch.equal(fixed.weight, before[0])
    assert torch.equal(fixed.bias, before[1])
    again = Simulation(_trial({"ssec_bias": bias}), toy.skewed())
    assert torch.equal(cast(LoGeHeads, again.model.net.head).ssec.weight, fixed.weight), "keyed by the seed"


@pytest.mark.parametrize("head", ["scored", "ssec", "realign"])
def test_the_posterior_is_of_the_head_asked_for(head: str) -> None:
    simulation = Simulation(_trial({"score": "realign"}, relabel={"tau": 0.2, "posterior_head": head}), toy.skewed())
    net, algorithm, server = simulation.model.net.eval(), cast(FedLoGe, simulation.algorithm), simulation.state.server
    with torch.no_grad():
        outputs = net(simulation.data.pipeline.plain(simulation.data.test_images))
        logits = algorithm.posterior(net, outputs, server, head)
        scores = {"realign": algorithm.score(net, outputs, server), **algorithm.extra_scores(net, outputs, server)}
    assert set(scores) == {"realign", "ssec"}
    assert torch.equal(logits, scores["realign" if head == "scored" else head])
    assert torch.equal(scores["ssec"], outputs.logits)
    assert not torch.equal(scores["ssec"], scores["realign"])


def test_both_heads_are_reported_in_one_run() -> None:
    data = toy.skewed()
    (one, ssec), (two, realigned) = (toy.run(_trial({"score": score}), data) for score in ("ssec", "realign"))
    assert toy.same_model(one, two)
    for scored, other, name in ((ssec, realigned, "ssec"), (realigned, ssec, "realign")):
        beside = [value for key, value in other[-1].metrics.items() if key.startswith("test/") and key.endswith(name)]
        assert beside == [value for key, value in scored[-1].metrics.items() if key.startswith("test/")][: len(beside)]
        assert len(beside) >= 2


def test_wrong_options_and_narrow_models_are_named() -> None:
    faults = check_algorithm("fedloge", {"score": "both", "ssec_steps": -1, "ssec_bias": "random", "realign_norm": 0})
    assert len(faults) == 4
    data = toy.dataset(np.arange(60), [range(60)], 60)
    with pytest.raises(ConfigError, match="60 classes and 48 features"):
        Simulation(_trial(federation={"clients": 1}), data)


def test_what_is_kept_and_sent() -> None:
    simulation = Simulation(_trial(), toy.skewed())
    head = 48 * 4 + 4
    size = simulation.model.size(48, 4)
    assert simulation.algorithm.client_state_floats(size) == head
    backbone = 6 * 9 + 6 + 2 * 6 + 2 * 6
    assert simulation.communication == {"down": backbone + head, "up": backbone + head}
    list(simulation)
    kept = [sum(value.numel() for value in private.values()) for private in simulation.state.private.values()]
    assert kept == [head] * 3


AWKWARD = [[0, 0, 0, 1, 1, 2], [0], [3, 3, 3]]


def _awkward() -> Any:
    """One client with several classes, one with one sample, one with one class; class 4 is on none."""
    labels, clients, start = [label for part in AWKWARD for label in part], [], 0
    for part in AWKWARD:
        clients.append(range(start, start + len(part)))
        start += len(part)
    return toy.dataset(labels, clients, 5)


def test_awkward_clients_a_fork_and_a_resume() -> None:
    relabel = {"tau": 0.4, "start": 2}
    full, results = toy.run(_trial({"score": "realign"}, relabel=relabel), _awkward())
    assert all(np.isfinite(result.metrics["train/loss"]) for result in results)
    trunk = Simulation(_trial({"score": "realign"}), _awkward())
    trunk.run_round(), trunk.run_round()
    fork = Simulation(_trial({"score": "realign"}, relabel=relabel), _awkward())
    fork.restore(trunk.snapshot())
    fork.run_round()
    again = Simulation(_trial({"score": "realign"}, relabel=relabel), _awkward())
    again.restore(fork.snapshot())
    list(again)
    assert toy.same_model(again, full)
    for client, private in full.state.private.items():
        assert all(torch.equal(again.state.private[client][name], value) for name, value in private.items())


# the golden run -----------------------------------------------------------------------------------------------------


def _golden_simulation(setup: dict[str, Any]) -> Simulation:
    trial = toy.config(
        federation={
            "clients": len(setup["clients"]),
            "rounds": setup["rounds"],
            "algorithm": "fedloge",
            "options": {"ssec_steps": 1},
        },
        training={
            **{name: setup[name] for name in ("local_epochs", "batch_size", "lr", "momentum")},
            "model": "golden_net",
            "weight_decay": 0.0,
            "shuffle": False,
            "short_batch": "keep",
        },
        relabel={
            "preset": "author",
            "tau": setup["tau"] / 100,
            "start": setup["relabel_start"] / setup["rounds"],
            "posterior_batch": setup["batch_size"],
            "posterior_augment": False,
        },
    )
    grey = np.zeros((len(setup["y"]), 32, 32, 3), dtype=np.uint8)
    data = toy.dataset(setup["y"], setup["clients"], setup["C"], images=grey, test_per_class=2)
    simulation = Simulation(trial, data)
    train, test = ((setup["y"], setup["data_start"]), (setup["test_y"], setup["test_start"]))
    toy.with_floats(simulation, golden_run._images(*train), golden_run._images(*test))
    _load_golden(simulation, setup)
    return simulation


def _load_golden(simulation: Simulation, setup: dict[str, Any]) -> None:
    """The fixed head's values follow those of the local heads."""
    network, auxiliary, local = golden_run._weights(setup)
    filled = sum(value.numel() for part in (network, auxiliary, *local) for value in part.values())
    start, classes = setup["fill_start"] + filled, setup["C"]
    ssec = cast(LoGeHeads, simulation.model.net.head).ssec
    ssec.weight.copy_(golden_run._filled("weight", (classes, 16), start))
    ssec.bias.copy_(golden_run._filled("bias", (classes,), start + 16 * classes))
    values = {f"backbone.{name}": value for name, value in network.items() if not name.startswith("linear")}
    toy.set_weights(simulation, values | {f"head.auxiliary.{name}": value for name, value in auxiliary.items()})
    for client, head in enumerate(local):
        private = {f"head.local.{name}": value.flatten() for name, value in head.items()}
        simulation.state.private[client] = private


def test_the_released_codes_run_with_relabelling(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = {run["setup"]["name"]: run for run in json.loads(golden("tiny_run.json").read_text())["runs"]}
    setup, expected = runs["fedloge_relabel"]["setup"], runs["fedloge_relabel"]["float64"]
    simulation = _golden_simulation(setup)
    losses: list[float] = []
    posteriors: list[np.ndarray] = []
    step = simulation._trainer.solver._step

    def recording(*arguments: Any) -> Tensor:
        losses.append(float(loss := step(*arguments)))
        return loss

    monkeypatch.setattr(simulation._trainer.solver, "_step", recording)
    golden_run._inject_uniforms(monkeypatch, setup, posteriors)
    for index, reference in enumerate(expected["rounds"]):
        losses.clear()
        result = simulation.run_round()
        steps = [sum(loss) for client in reference["clients"] for loss in client["step_losses"]]
        np.testing.assert_allclose(losses, steps, atol=golden_run.TOLERANCE)
        golden_run._check_state(simulation, reference["global_state"])
        if index == setup["relabel_start"]:
            golden_run._check_labels(simulation, setup, reference, posteriors)
            assert result.metrics["relabel/changed"] == sum(runs["fedloge_relabel"]["relabelled_per_client"]) > 0
    simulation._trainer.load_global()
    net = simulation.model.net.eval()
    with torch.no_grad():
        outputs = net(simulation.data.test_images.permute(0, 3, 1, 2))
        np.testing.assert_allclose(outputs.logits, expected["test_logits"], atol=golden_run.TOLERANCE)
        auxiliary = cast(LoGeHeads, net.head).auxiliary(outputs.features)
        np.testing.assert_allclose(auxiliary, expected["test_logits_g_aux"], atol=golden_run.TOLERANCE)
