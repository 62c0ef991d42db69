"""FedYoYo: the prior's estimation and exchange, the loss, special cases, awkward clients."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from fedrela_bench.algorithms import Algorithm, Batch, LocalContext, build_algorithm, check_algorithm, register
from fedrela_bench.algorithms.fedyoyo import (
    FedYoYo,
    adjustment,
    distillation,
    effective_numbers,
    first_numbers,
    later_numbers,
    mixed_prior,
)
from fedrela_bench.models import Outputs
from fedrela_bench.simulation import Simulation
from tests.algorithms.examples import Golden, worked_example
from tests.simulation import toy


def _real(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def _trial(options: dict[str, Any] | None = None, name: str = "fedyoyo", **sections: Any) -> Any:
    federation = {"algorithm": name, "options": options or {}, **sections.pop("federation", {})}
    return toy.config(federation=federation, **sections)


# effective numbers --------------------------------------------------------------------------------------------------


def _received(rounds: list[list[Tensor]], start: Tensor) -> Tensor:
    algorithm = build_algorithm("fedyoyo", {}, 3)
    server: Any = SimpleNamespace(state={"effective": start})
    for messages in rounds:
        algorithm.receive(server, {client: {"effective": message} for client, message in enumerate(messages)})
    return cast(Tensor, server.state["effective"])


def test_effective_numbers_and_their_exchange(golden: Golden) -> None:
    example = worked_example(golden, "fedyoyo_effective_number")
    inputs, expected = example["inputs"], example["expected"]
    near = {"atol": example["tolerance"], "rtol": example["tolerance"]}
    labels, means = torch.tensor(inputs["labels"]), _real(inputs["class_means"])
    numbers = effective_numbers(_real(inputs["features"]), labels, means)
    torch.testing.assert_close(numbers, _real(expected["eff_batch"]), **near)
    first = _received([[numbers]], torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(first, _real(expected["first_round"]), **near)
    torch.testing.assert_close(first / first.sum(), _real(expected["first_round_prior"]), **near)
    previous = _real(inputs["eff_prev"])
    torch.testing.assert_close(0.9 * previous + 0.1 * (numbers + 1), _real(expected["ema"]), **near)
    later = _received([[numbers]], previous)
    torch.testing.assert_close(later, _real(expected["ema_after_threshold"]), **near)
    torch.testing.assert_close(later / later.sum(), _real(expected["prior"]), **near)


@given(st.integers(0, 10**6), st.integers(1, 12), st.booleans())
@settings(max_examples=40, deadline=None)
def test_effective_numbers_are_the_inverse_mean_cosine(seed: int, count: int, with_zero: bool) -> None:
    rng = np.random.default_rng(seed)
    features, labels, means = _normal(count, 5, seed=seed), torch.from_numpy(rng.integers(0, 3, count)), _normal(4, 5)
    if with_zero:
        features[0] = means[labels[0]]
    numbers = effective_numbers(features, labels, means)
    for label in range(4):
        rows = [row for row in range(count) if labels[row] == label]
        centred = features[rows] - means[label]
        if len(rows) < 2:
            assert numbers[label] == len(rows)
            continue
        mean = cosine_similarity(centred[:, None], centred[None], dim=2).mean()
        assert float(numbers[label]) == pytest.approx(1 / max(float(mean), 1e-6), rel=1e-6)


def test_clients_numbers_are_added_and_smoothed() -> None:
    a, b = _real([3.0, 0.0, 1.0]), _real([2.0, 1.0, 0.0])
    once = _received([[a, b]], torch.zeros(3, dtype=torch.float64))
    assert once.tolist() == [6.0, 2.0, 2.0]
    assert _received([[a, b], [b]], torch.zeros(3, dtype=torch.float64)).tolist() == pytest.approx([5.7, 2.0, 1.9])


def test_outliers_are_replaced_or_refused() -> None:
    assert first_numbers(_real([2e4, 4.0, 6.0])).tolist() == [5.0, 4.0, 6.0]
    assert first_numbers(_real([2e4, 3e4])).tolist() == [2e4, 3e4]
    assert later_numbers(_real([1.0, 1.0]), _real([1e4, 900.0])).tolist() == pytest.approx([1.0, 90.9])


def test_the_probe_counts_a_clients_own_batches() -> None:
    simulation = Simulation(_trial(), toy.skewed())
    context = simulation._trainer.context(1, 0, total=10)
    simulation._trainer.load_client(1)
    net = simulation.model.net.eval()
    sent = simulation.algorithm.probe(net, context)["effective"]
    assert torch.equal(sent, simulation.algorithm.probe(net, context)["effective"])
    with torch.no_grad():
        features = net.features(context.pipeline.plain(context.images))
    means = torch.stack([features[context.labels == c].mean(dim=0).nan_to_num() for c in range(4)])
    rows = torch.from_numpy(context.generator("effective number").permutation(context.samples))
    parts = [effective_numbers(features[part], context.labels[part], means) for part in torch.split(rows, 8)]
    assert len(parts) > 1
    torch.testing.assert_close(sent, torch.stack(parts).sum(dim=0))


# the loss -----------------------------------------------------------------------------------------------------------


class _Table:
    """A network that answers with given logits, weak views first."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    def __call__(self, inputs: Tensor) -> Outputs:
        assert len(inputs) == len(self.logits)
        return Outputs(inputs, self.logits)


def _loss_of(
    options: dict[str, Any], weak: Tensor, strong: Tensor, labels: Tensor, prior: Tensor, counts: Tensor, index: int
) -> Tensor:
    algorithm = build_algorithm("fedyoyo", options, weak.shape[1])
    server = SimpleNamespace(state={"effective": 7 * prior})
    context: Any = SimpleNamespace(server=server, label_counts=counts, round=index, scratch={})
    algorithm.prepare(cast(Any, None), context)
    blank = torch.zeros(len(labels), 1)
    net: Any = _Table(torch.cat([weak, strong]))
    return algorithm.loss(net, Batch((blank, blank), labels, labels), context)


def test_the_loss_of_both_views(golden: Golden) -> None:
    example = worked_example(golden, "fedyoyo_loss")
    inputs, expected, near = example["inputs"], example["expected"], {"abs": example["tolerance"]}
    prior, counts = _real(inputs["global_prior"]), torch.tensor(inputs["local_counts"])
    mixed = mixed_prior(prior, counts.double() / counts.sum(), inputs["gamma"])
    np.testing.assert_allclose(mixed, expected["mixed_prior"], atol=example["tolerance"])
    shift = adjustment(mixed, inputs["tau"])
    np.testing.assert_allclose(shift, expected["adjustment"], atol=example["tolerance"])
    weak, strong, labels = _real(inputs["logits_weak"]), _real(inputs["logits_strong"]), torch.tensor(inputs["targets"])
    kd = distillation(weak + shift, strong + shift, labels, inputs["temperature"])
    assert float(kd) == pytest.approx(expected["kd"], **near)
    assert (weak + shift).argmax(1).eq(labels).tolist() == expected["kept_for_distillation"]
    options = {name: inputs[name] for name in ("gamma", "tau", "temperature", "warmup")}
    arguments = (weak, strong, labels, prior, counts, inputs["round"] - 1)
    total = _loss_of({**options, "kd_weight": inputs["lamda"]}, *arguments)
    assert float(total) == pytest.approx(expected["total"], **near)
    assert float(_loss_of({**options, "kd_weight": 0}, *arguments)) == pytest.approx(expected["ce"], **near)


def test_the_compounding_prior_drifts_to_the_local_one(golden: Golden) -> None:
    example = worked_example(golden, "fedyoyo_loss")
    inputs, expected = example["inputs"], example["expected"]
    algorithm = build_algorithm("fedyoyo", {"prior_mix": "compounding", "gamma": inputs["gamma"]}, 3)
    server = SimpleNamespace(state={"effective": 3 * _real(inputs["global_prior"])})
    counts = torch.tensor(inputs["local_counts"])
    context: Any = SimpleNamespace(server=server, label_counts=counts, round=9, scratch={})
    algorithm.prepare(cast(Any, None), context)
    blank, net = torch.zeros(1, 1), cast(Any, _Table(torch.zeros(2, 3, dtype=torch.float64)))
    for _ in range(50):
        algorithm.loss(net, Batch((blank, blank), torch.tensor([0]), torch.tensor([0])), context)
    prior = context.scratch["prior"]
    np.testing.assert_allclose(prior, expected["code_mixed_prior_after_50_batches"], atol=example["tolerance"])
    assert server.state["effective"].sum() == pytest.approx(3), "the server's numbers are not touched"


def test_identical_views_have_nothing_to_distil() -> None:
    logits, labels = _normal(6, 4), torch.tensor([0, 1, 2, 3, 0, 1])
    assert float(distillation(logits, logits, logits.argmax(1), 1.5)) == 0
    assert float(distillation(logits, -logits, logits.argmin(1), 1.5)) == 0, "the teacher is never right"
    assert float(distillation(logits, _normal(6, 4, seed=1), labels, 1.5)) >= 0


def test_the_teacher_gets_no_gradient() -> None:
    weak, strong = _normal(3, 4).requires_grad_(), _normal(3, 4, seed=1).requires_grad_()
    distillation(weak, strong, weak.argmax(1), 2.0).backward()  # type: ignore[no-untyped-call]
    assert weak.grad is None
    assert strong.grad is not None


def test_only_local_frequencies_are_local_logit_adjustment() -> None:
    weak, strong, labels, counts = (
        _normal(4, 3),
        _normal(4, 3, seed=1),
        torch.tensor([0, 1, 1, 0]),
        torch.tensor([6, 3, 1]),
    )
    options = {"gamma": 1, "tau": 1, "kd_weight": 0}
    ours = _loss_of(options, weak, strong, labels, _real([0.2, 0.2, 0.6]), counts, 0)
    theirs = cross_entropy(torch.cat([weak, strong]) + (counts / 10).double().log(), labels.repeat(2))
    assert float(ours) == pytest.approx(float(theirs), abs=1e-7)


@pytest.mark.parametrize("size", [1e3, 1e5])
def test_extreme_logits_have_finite_losses_and_gradients(size: float) -> None:
    weak, strong = (size * _normal(5, 4)).requires_grad_(), (size * _normal(5, 4, seed=1)).requires_grad_()
    labels = weak.detach().argmax(1)
    loss = _loss_of({"warmup": 1}, weak, strong, labels, _real([1.0, 0, 0, 0]), torch.tensor([5, 0, 0, 0]), 3)
    gradients = torch.autograd.grad(loss, [weak, strong])
    assert torch.isfinite(loss)
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


def test_distillation_warms_up() -> None:
    weak, strong, labels = _normal(4, 3), _normal(4, 3, seed=1), _normal(4, 3).argmax(1)
    rest = (weak, strong, labels, _real([0.4, 0.3, 0.3]), torch.tensor([1, 1, 1]))
    ce = float(_loss_of({"kd_weight": 0}, *rest, 0))
    extra = [float(_loss_of({"kd_weight": 2.0, "warmup": 4, "tau": 0}, *rest, index)) - ce for index in range(6)]
    assert ce == pytest.approx(float(cross_entropy(torch.cat([weak, strong]), labels.repeat(2))), abs=0.2)
    plain = float(_loss_of({"kd_weight": 0, "tau": 0}, *rest, 0)) - ce
    weights = [(value - plain) / (extra[5] - plain) for value in extra]
    assert weights == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])


# runs ---------------------------------------------------------------------------------------------------------------


@register
class TwoViewAverage(Algorithm):
    """FedAvg on the two views of FedYoYo."""

    name: ClassVar[str] = "test_two_view_average"
    citation: ClassVar[str] = "test"
    purpose: ClassVar[str] = "special case of FedYoYo"

    draw = FedYoYo.draw
    inputs = FedYoYo.inputs

    def loss(self, net: Any, batch: Batch, context: LocalContext) -> Tensor:
        return cross_entropy(net(torch.cat(batch.inputs)).logits, batch.labels.repeat(2))


def test_without_prior_and_distillation_it_is_fedavg_on_two_views() -> None:
    data = toy.skewed()
    ours, _ = toy.run(_trial({"kd_weight": 0, "tau": 0}), data)
    theirs, _ = toy.run(_trial(name="test_two_view_average"), data)
    torch.testing.assert_close(ours.state.server.params, theirs.state.server.params, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(ours.state.server.buffers, theirs.state.server.buffers, atol=1e-12, rtol=1e-12)
    full, _ = toy.run(_trial(), data)
    assert (full.state.server.params - theirs.state.server.params).abs().max() > 1e-3


def _awkward() -> Any:
    """One client with several classes, one with one sample, one with one class, one without any; class 4 on none."""
    labels = [0, 0, 0, 1, 1, 2, 0, 3, 3, 3]
    return toy.dataset(labels, [range(6), [6], [7, 8, 9], []], 5)


@pytest.mark.parametrize("options", [{}, {"prior_mix": "compounding", "warmup": 1, "kd_weight": 4.0}])
def test_awkward_clients_a_fork_and_a_resume(options: dict[str, Any]) -> None:
    relabel = {"tau": 0.4, "start": 2}
    federation = {"clients": 4, "participation": 0.75, "rounds": 5}
    trial, plain = (_trial(options, federation=federation, relabel=part) for part in (relabel, {}))
    full, results = toy.run(trial, _awkward())
    assert all(np.isfinite(result.metrics["train/loss"]) for result in results)
    assert results[-1].metrics["relabel/changed"] > 0
    trunk = Simulation(plain, _awkward())
    trunk.run_round(), trunk.run_round()
    fork = Simulation(trial, _awkward())
    fork.restore(trunk.snapshot())
    fork.run_round()
    again = Simulation(trial, _awkward())
    again.restore(fork.snapshot())
    list(again)
    assert toy.same_model(again, full)
    assert torch.equal(again.state.server.state["effective"], full.state.server.state["effective"])
    assert (full.state.server.state["effective"] >= 1).all()


def test_the_exchange_uses_the_labels_in_force() -> None:
    data = toy.skewed()
    relabelled = Simulation(_trial(relabel={"tau": 0.5, "start": 1}), data)
    plain = Simulation(_trial(), data)
    for simulation in (relabelled, plain):
        simulation.run_round(), simulation.run_round()
    assert not torch.equal(relabelled.state.labels, plain.state.labels)
    first, second = (simulation.state.server.state["effective"] for simulation in (relabelled, plain))
    assert not torch.equal(first, second)


def test_three_channels_crops_and_flips_run_too() -> None:
    data = toy.skewed()
    images: dict[str, Any] = {
        name: np.repeat(getattr(data, name), 3, axis=3) for name in ("train_images", "test_images")
    }
    data = dataclasses.replace(data, **images, augment="crop_flip", normalization=((0.5,) * 3, (0.2,) * 3))
    _, results = toy.run(_trial(federation={"rounds": 2}), data)
    assert all(np.isfinite(result.metrics["train/loss"]) for result in results)


def test_what_is_kept_and_sent() -> None:
    simulation = Simulation(_trial(), toy.skewed())
    model = 6 * 9 + 6 + 2 * 6 + 2 * 6 + 48 * 4 + 4
    assert simulation.algorithm.client_state_floats(simulation.model.size(48, 4)) == 0
    assert simulation.communication == {"down": model + 4, "up": model + 4}
    list(simulation)
    assert not simulation.state.client_states
    assert not simulation.state.private
    assert {name: tuple(value.shape) for name, value in simulation.state.server.state.items()} == {"effective": (4,)}


def test_wrong_options_are_named() -> None:
    wrong = {"gamma": 1.5, "tau": -1, "temperature": 0, "kd_weight": -1, "warmup": 0, "prior_mix": "twice"}
    faults = check_algorithm("fedyoyo", wrong)
    assert len(faults) == len(wrong)
