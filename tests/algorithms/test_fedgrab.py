"""FedGraB: the controllers, the re-weighted gradient at the logits, and what a client keeps."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedrela_bench.algorithms.fedgrab  # noqa: F401
from fedrela_bench.algorithms import Algorithm, Batch, LocalContext, build_algorithm, check_algorithm, register
from fedrela_bench.algorithms.fedgrab import bypass_probability, controller_step, weight_of
from fedrela_bench.models import Outputs
from fedrela_bench.simulation import Simulation
from tests.simulation import toy


@register
class FederatedBCE(Algorithm):
    name: ClassVar[str] = "fedgrab_test_bce"
    citation: ClassVar[str] = "test"
    purpose: ClassVar[str] = "one sigmoid per class"

    def criterion(self, outputs: Outputs, labels: Tensor, context: LocalContext) -> Tensor:
        targets = F.one_hot(labels, self.num_classes).to(outputs.logits.dtype)
        return F.binary_cross_entropy_with_logits(outputs.logits, targets, reduction="sum") / len(labels)


def _trial(algorithm: str = "fedgrab", relabel: dict[str, Any] | None = None, **options: Any) -> Any:
    return toy.config(federation={"algorithm": algorithm, "options": options}, relabel=relabel or {})


def test_controllers_and_weights_follow_the_worked_example(golden: Callable[[str], Path]) -> None:
    example = json.loads(golden("algorithm_examples.json").read_text())["examples"]["fedgrab"]
    inputs, expected, tolerance = example["inputs"], example["expected"], example["tolerance"]
    state, outputs = torch.zeros(3, 1, dtype=torch.float64), []
    for gap in inputs["gap_sequence"]:
        gains = (inputs["Kp"], inputs["Ki"], inputs["Kd"])
        state = controller_step(state, torch.tensor([gap], dtype=torch.float64), gains)
        outputs.append(state[0])
    found = torch.cat(outputs)
    np.testing.assert_allclose(found, expected["u"], atol=tolerance)
    np.testing.assert_allclose(weight_of(found, 0.5), expected["pos_weight"], atol=tolerance)
    np.testing.assert_allclose(weight_of(-found, 0.5), expected["neg_weight"], atol=tolerance)


def test_weights_are_exactly_one_at_rest_and_stay_between_zero_and_ten() -> None:
    ends = weight_of(torch.tensor([0.0, 1e6, -1e6]), 0.5)
    assert ends.tolist() == [1.0, 10.0, 0.0]


def test_without_gains_it_is_federated_binary_cross_entropy_bit_for_bit() -> None:
    still, results = toy.run(_trial(kp=0.0, ki=0.0, kd=0.0), toy.skewed())
    plain, expected = toy.run(_trial("fedgrab_test_bce"), toy.skewed())
    steered, _ = toy.run(_trial(), toy.skewed())
    assert toy.same_model(still, plain)
    assert toy.figures(results) == toy.figures(expected)
    assert not toy.same_model(steered, plain)


class Step:
    """One client's steps on free logits, and the gradient that reaches them."""

    def __init__(self, counts: Sequence[int] = (3, 2, 1), **options: Any) -> None:
        classes = len(counts)
        self.algorithm = build_algorithm("fedgrab", options, classes)
        self.head = nn.Linear(2, classes, dtype=torch.float64)
        self.context: Any = SimpleNamespace(
            state={"controllers": torch.zeros(3, classes).double(), "gap": torch.zeros(classes).double()},
            scratch={},
            label_counts=torch.tensor(counts),
            labels=torch.tensor(counts),
            generator=lambda purpose: np.random.default_rng(0),
        )
        self.algorithm.prepare(SimpleNamespace(head=self.head), self.context)  # type: ignore[arg-type]

    def __call__(self, logits: Tensor, labels: Tensor, inputs: Any = None) -> tuple[Tensor, Tensor]:
        live = logits.clone().requires_grad_()
        batch = Batch(live if inputs is None else (live, inputs), labels, labels)
        net: Any = lambda images: Outputs(images, images * 1)  # noqa: E731
        loss = self.algorithm.loss(net, batch, self.context)
        return loss.detach(), torch.autograd.grad(loss, live)[0]


def test_positives_and_negatives_are_weighted_apart_and_summed_up_after_weighting() -> None:
    step, rng = Step(), np.random.default_rng(1)
    gap, state = torch.zeros(3).double(), torch.zeros(3, 3).double()
    for _ in range(4):
        logits, labels = torch.from_numpy(rng.normal(size=(5, 3))), torch.from_numpy(rng.integers(0, 3, 5))
        loss, gradient = step(logits, labels)
        targets = F.one_hot(labels, 3).double()
        state = controller_step(state, gap, (10.0, 0.01, 0.1))
        weights = torch.where(targets > 0, weight_of(state[0], 0.5), weight_of(-state[0], 0.5))
        expected = (logits.sigmoid() - targets) / 5 * weights
        gap = gap + (expected.abs() * (2 * targets - 1)).sum(dim=0)
        plain = F.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(dim=1).mean()
        np.testing.assert_allclose(gradient, expected, atol=1e-14)
        assert float(loss) == pytest.approx(float(plain))
        np.testing.assert_allclose(step.context.state["gap"], gap, atol=1e-14)
    assert (state[0] != 0).all()


def test_the_gap_of_a_class_without_positives_is_held() -> None:
    """Only negatives: the plain gap grows without bound, the controlled one settles as their weight goes to 0."""
    logits, labels = torch.zeros(4, 3).double(), torch.zeros(4, dtype=torch.int64)
    ends = []
    for gain in (0.0, 10.0):
        step = Step(kp=gain, ki=0.0, kd=0.0)
        for _ in range(60):
            step(logits, labels)
        ends.append(float(step.context.state["gap"][2]))
    assert ends[0] == pytest.approx(-30)
    assert -2 < ends[1] < 0


def test_bypass_probabilities_fall_from_one_to_a_tenth_over_the_tail() -> None:
    every, half = torch.tensor([True] * 3), torch.tensor([False, True, True])
    ids = torch.arange(3)
    np.testing.assert_allclose(bypass_probability(every, ids), [1, 0.1**0.5, 0.1], rtol=1e-6)
    np.testing.assert_allclose(bypass_probability(every, ids.flip(0)), [0.1, 0.1**0.5, 1], rtol=1e-6)
    np.testing.assert_allclose(bypass_probability(half, ids)[1:], [1, 0.1], rtol=1e-6)


@pytest.mark.parametrize(
    ("bypass", "counts", "ranked"), [("id", [1, 2, 3], [0, 1, 2]), ("counts", [4, 9, 7], [1, 2, 0])]
)
def test_the_first_class_is_always_bypassed_and_the_last_seldom(
    bypass: str, counts: list[int], ranked: list[int]
) -> None:
    step = Step(counts=counts, bypass=bypass)
    logits, labels = torch.zeros(2, 3).double(), torch.tensor([0, 0])
    drawn = step.context.scratch["draws"].integers(0, 1 << 24, (400, 3))
    moved = torch.zeros(3)
    for row in drawn:
        before = step.context.state["gap"].clone()
        _, gradient = step(logits, labels, torch.from_numpy(np.tile(row, (2, 1))))
        changed = step.context.state["gap"] != before
        left_alone = gradient[0].abs() == 0.25
        assert (changed | left_alone).all()
        moved += changed
    head, middle, tail = moved[ranked].tolist()
    assert head == 0
    assert 220 < middle < 320 < tail < 390


def test_only_classes_with_short_classifier_rows_are_controlled() -> None:
    step = Step(tail="norms")
    norms = step.head.weight.detach().norm(dim=1)
    tail = norms < norms.mean()
    assert tail.any() and not tail.all()
    for _ in range(3):
        step(torch.ones(4, 3).double(), torch.tensor([0, 1, 2, 2]))
    assert torch.equal(step.context.state["gap"] != 0, tail)
    assert torch.equal(step.context.state["controllers"].any(dim=0), tail)


def test_draws_beside_the_augmentation_leave_its_stream_alone() -> None:
    simulation = Simulation(_trial(bypass="id"), toy.skewed())
    simulation.data.pipeline.augment = "crop_flip"
    simulation._trainer.load_client(0)
    context = simulation._trainer.context(0, 0, 1)
    simulation.algorithm.prepare(simulation.model.net, context)
    drawn = simulation.algorithm.draw(context, np.random.default_rng(0), 6)
    assert drawn.shape == (6, 3 + 4) and drawn.dtype == np.int64
    assert np.array_equal(drawn[:, :3], context.pipeline.draws(np.random.default_rng(0), 6))


def test_a_client_takes_its_controllers_up_again_after_relabelling(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(_trial(relabel={"tau": 0.3, "start": 2}), toy.skewed())
    for _ in range(2):
        simulation.run_round()
    kept = {k: {name: value.clone() for name, value in s.items()} for k, s in simulation.state.client_states.items()}
    found: dict[int, dict[str, Tensor]] = {}
    prepare = type(simulation.algorithm).prepare

    def look(self: Any, net: Any, context: LocalContext) -> None:
        found[context.client] = {name: value.clone() for name, value in context.state.items()}
        prepare(self, net, context)

    monkeypatch.setattr(type(simulation.algorithm), "prepare", look)
    result = simulation.run_round()
    assert result.metrics["relabel/changed"] > 0
    assert sorted(kept) == sorted(found) == [0, 1, 2]
    for client, state in kept.items():
        assert sum(tensor.numel() for tensor in state.values()) == 4 * 4
        assert all(torch.equal(found[client][name], value) and value.any() for name, value in state.items())
    assert simulation.algorithm.client_state_floats(simulation.model.size(48, 4)) == 4 * 4


def test_both_posterior_heads() -> None:
    algorithm = build_algorithm("fedgrab", {}, 4)
    logits = torch.tensor([[2.0, -1.0, 0.0, 30.0]], dtype=torch.float64)
    nothing: Any = None
    outputs = Outputs(logits, logits)
    assert torch.equal(algorithm.posterior(nothing, outputs, nothing, "scored"), logits)
    scores = algorithm.posterior(nothing, outputs, nothing, "sigmoid").softmax(dim=1)
    np.testing.assert_allclose(scores, logits.sigmoid() / logits.sigmoid().sum(), atol=1e-12)


def test_options_out_of_range_are_named() -> None:
    faults = check_algorithm("fedgrab", {"kp": -1, "slope": 0, "tail": "some", "bypass": True})
    assert len(faults) == 4
