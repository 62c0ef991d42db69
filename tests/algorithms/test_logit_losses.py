"""Logit adjustment, balanced softmax and the equalization loss."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import fedrela_bench.algorithms.equalization
import fedrela_bench.algorithms.logit_adjustment  # noqa: F401
from fedrela_bench.algorithms import check_algorithm
from fedrela_bench.algorithms.equalization import equalization_loss, rare_classes, spared, tail_classes
from fedrela_bench.algorithms.logit_adjustment import Absent, adjusted_loss, log_prior, posthoc_logits
from fedrela_bench.data.longtail import longtail_counts
from fedrela_bench.models import Outputs
from fedrela_bench.simulation import Simulation
from tests.simulation import toy

Golden = Callable[[str], Path]


def _example(golden: Golden, name: str) -> tuple[dict[str, Any], dict[str, Any], float]:
    example = json.loads(golden("algorithm_examples.json").read_text())["examples"][name]
    return example["inputs"], example["expected"], example["tolerance"]


def _float(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _trial(algorithm: str, relabel: dict[str, Any] | None = None, **options: Any) -> Any:
    federation = {"algorithm": algorithm, "options": options, "participation": 0.7}
    return toy.config(federation=federation, relabel=relabel or {})


# logit adjustment and balanced softmax -------------------------------------------------------------------------------


def test_adjusted_loss_and_logits_are_those_of_the_worked_example(golden: Golden) -> None:
    inputs, expected, tolerance = _example(golden, "logit_adjustment")
    logits, labels, tau = _float(inputs["logits"]), torch.tensor(inputs["labels"]), inputs["tau"]
    prior = log_prior(_float(inputs["prior"]) * 50, "mask")
    assert float(adjusted_loss(logits, labels, prior, tau)) == pytest.approx(expected["loss"], abs=tolerance)
    assert float(adjusted_loss(logits, labels, prior, 0)) == pytest.approx(expected["loss_tau0"], abs=tolerance)
    found = posthoc_logits(logits, prior, tau)
    np.testing.assert_allclose(found, expected["posthoc_logits"], atol=tolerance)
    assert found.argmax(dim=1).tolist() == expected["posthoc_pred"]


def test_without_strength_every_form_is_fedavg_bit_for_bit() -> None:
    base, results = toy.run(_trial("fedavg"), toy.skewed())
    cases: tuple[dict[str, Any], ...] = ({}, {"form": "posthoc"}, {"prior": "global_oracle"})
    for options in cases:
        plain, same = toy.run(_trial("logit_adjustment", tau=0.0, **options), toy.skewed())
        assert toy.same_model(plain, base)
        assert toy.figures(same) == toy.figures(results)
        assert plain.communication == base.communication and not plain.state.server.state
    shifted, _ = toy.run(_trial("logit_adjustment"), toy.skewed())
    assert not toy.same_model(shifted, base)


def test_the_posthoc_form_trains_as_fedavg_and_scores_otherwise() -> None:
    base, results = toy.run(_trial("fedavg"), toy.skewed())
    posthoc, other = toy.run(_trial("logit_adjustment", form="posthoc"), toy.skewed())
    assert toy.same_model(posthoc, base)
    towards_tail = [r.confusion["test"][:, 2:].sum() for r in (other[0], results[0])]
    assert towards_tail[0] > towards_tail[1]
    assert posthoc.communication["up"] == base.communication["up"] + 4
    assert posthoc.communication["down"] == base.communication["down"]


def test_balanced_softmax_is_logit_adjustment_with_local_counts() -> None:
    for absent in ("mask", "floor", "one"):
        adjusted, _ = toy.run(_trial("logit_adjustment", absent=absent), toy.skewed())
        balanced, _ = toy.run(_trial("balanced_softmax", absent=absent), toy.skewed())
        assert toy.same_model(adjusted, balanced)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 6), st.floats(0.1, 3))
def test_a_flat_prior_shifts_nothing_and_balanced_softmax_weighs_by_counts(seed: int, classes: int, tau: float) -> None:
    rng = np.random.default_rng(seed)
    logits, labels = torch.from_numpy(rng.normal(size=(7, classes))), torch.from_numpy(rng.integers(0, classes, 7))
    flat = adjusted_loss(logits, labels, log_prior(torch.full((classes,), 9.0).double(), "mask"), tau)
    assert float(flat) == pytest.approx(float(F.cross_entropy(logits, labels)), abs=1e-12)
    counts = torch.from_numpy(rng.integers(1, 50, classes)).double()
    weighted = counts * logits.exp()
    expected = -(weighted[range(7), labels] / weighted.sum(dim=1)).log().mean()
    assert float(adjusted_loss(logits, labels, log_prior(counts, "mask"), 1.0)) == pytest.approx(float(expected))


@pytest.mark.parametrize(("absent", "shift"), [("mask", -np.inf), ("floor", np.log(1e-12)), ("one", np.log(1 / 8))])
def test_classes_without_samples(absent: Absent, shift: float) -> None:
    prior = log_prior(_float([5, 0, 2]), absent)
    assert float(prior[1]) == pytest.approx(shift)
    logits = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(adjusted_loss(logits, torch.tensor([0, 2]), prior, 1.0), logits)
    assert (slope[:, 1] == 0).all() == (absent == "mask")
    scored = posthoc_logits(torch.zeros(1, 3).double(), prior, 1.0)
    assert float(scored[0, 1]) == pytest.approx(-shift if absent != "mask" else -np.inf)


def test_a_label_that_samples_carry_is_never_masked() -> None:
    counts, labels = _float([5, 0, 0]), torch.tensor([0, 2])
    loss = adjusted_loss(torch.zeros(2, 3).double(), labels, log_prior(counts, "mask", labels), 1.0)
    assert torch.isfinite(loss)
    relabel = {"tau": 0.9, "start": 1, "label_stats": "original"}
    data = toy.dataset([0] * 12 + [1] * 3, [range(15), []], 3)
    federation = {"algorithm": "balanced_softmax", "clients": 2}
    simulation, results = toy.run(toy.config(federation=federation, relabel=relabel), data)
    assert (simulation.state.labels == 2).any()
    assert all(np.isfinite(result.metrics["train/loss"]) for result in results)


@pytest.mark.parametrize("form", ["loss", "posthoc"])
def test_the_oracle_counts_everybodys_labels_in_force(form: str) -> None:
    relabel = {"tau": 0.9, "start": 2, "late_clients": "all_at_T"}
    simulation = Simulation(_trial("logit_adjustment", relabel, form=form, prior="global_oracle"), toy.skewed())
    for index in range(3):
        simulation.run_round()
        counts = torch.bincount(simulation.state.labels, minlength=4)
        assert torch.equal(simulation.state.server.state["prior"], counts.double())
        assert torch.equal(counts, torch.bincount(simulation.data.original)) == (index < 2)


def test_the_estimate_is_the_participants_mean_prediction() -> None:
    simulation = Simulation(_trial("logit_adjustment", form="posthoc", prior="estimated"), toy.skewed())
    net, pipeline = simulation.model.net.eval(), simulation.data.pipeline
    predicted = net(pipeline.plain(simulation.data.images)).logits.softmax(dim=1).detach()
    participants = simulation.run_round().participants
    rows = torch.cat([simulation.data.rows[client] for client in participants])
    assert len(participants) == 2
    np.testing.assert_allclose(simulation.state.server.state["prior"], predicted[rows].sum(dim=0), atol=1e-9)


def test_the_posterior_is_unadjusted_unless_asked() -> None:
    simulation, _ = toy.run(_trial("logit_adjustment", form="posthoc"), toy.skewed())
    algorithm, net, server = simulation.algorithm, simulation.model.net, simulation.state.server
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 4)))
    outputs = Outputs(torch.zeros(2, 48).double(), logits)
    assert torch.equal(algorithm.posterior(net, outputs, server, "unadjusted"), logits)
    scored = algorithm.posterior(net, outputs, server, "scored")
    assert torch.equal(scored, algorithm.score(net, outputs, server))
    prior = log_prior(server.state["prior"], "mask")
    np.testing.assert_allclose(scored - logits, -prior.expand(2, 4), atol=1e-12)


def test_a_class_that_nobody_has_is_never_predicted_after_the_fact() -> None:
    data = toy.dataset([0] * 8 + [1] * 4, [range(6), range(6, 12)], 3)
    federation = {"algorithm": "logit_adjustment", "clients": 2, "options": {"form": "posthoc"}}
    _, results = toy.run(toy.config(federation=federation), data)
    assert all(result.confusion["test"][:, 2].sum() == 0 for result in results)


def test_a_prior_that_does_not_suit_the_form_is_refused() -> None:
    for options, choice in (
        ({"form": "posthoc", "prior": "local"}, "global_oracle or estimated"),
        ({"prior": "estimated"}, "local or global_oracle"),
    ):
        (fault,) = check_algorithm("logit_adjustment", options)
        assert "federation.options.prior" in fault and choice in fault
    assert check_algorithm("logit_adjustment", {"form": "posthoc", "prior": "estimated"}) == []
    assert len(check_algorithm("logit_adjustment", {"form": "both", "prior": "local", "tau": -1})) == 2


# equalization --------------------------------------------------------------------------------------------------------


def test_the_equalization_loss_is_that_of_the_worked_example(golden: Golden) -> None:
    inputs, expected, tolerance = _example(golden, "equalization_softmax")
    logits, labels = _float(inputs["logits"]), torch.tensor(inputs["labels"])
    rare = rare_classes(_float(inputs["freq"]) * 50, inputs["threshold"])
    left_out = spared(rare, labels, torch.tensor(inputs["beta_draws"]) > 0)
    assert (~left_out).double().tolist() == expected["w"]
    loss, plain = (
        float(equalization_loss(logits, labels, mask, "softmax")) for mask in (left_out, torch.zeros_like(left_out))
    )
    assert loss == pytest.approx(expected["loss"], abs=tolerance)
    assert plain == pytest.approx(expected["loss_gamma0"], abs=tolerance)


def test_sparing_nobody_is_fedavg_bit_for_bit() -> None:
    base, _ = toy.run(_trial("fedavg"), toy.skewed())
    plain, _ = toy.run(_trial("equalization", gamma=0.0), toy.skewed())
    equal, _ = toy.run(_trial("equalization", gamma=1.0, threshold=0.0), toy.skewed())
    other, _ = toy.run(_trial("equalization", threshold=0.3), toy.skewed())
    assert toy.same_model(plain, base)
    assert toy.same_model(equal, base)
    assert not toy.same_model(other, base)


def test_the_sigmoid_form_without_sparing_is_binary_cross_entropy() -> None:
    logits, labels = _float([[2.0, 1.0, 0.0], [0.0, 1.0, -1.0]]), torch.tensor([0, 2])
    targets = F.one_hot(labels, 3).double()
    none = torch.zeros(2, 3, dtype=torch.bool)
    expected = F.binary_cross_entropy_with_logits(logits, targets, reduction="sum") / 2
    assert torch.equal(equalization_loss(logits, labels, none, "sigmoid"), expected)
    plain, _ = toy.run(_trial("equalization", form="sigmoid", gamma=0.0), toy.skewed())
    equal, _ = toy.run(_trial("equalization", form="sigmoid", threshold=0.0), toy.skewed())
    assert toy.same_model(plain, equal)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["softmax", "sigmoid"]))
def test_spared_negatives_get_no_gradient_and_own_classes_keep_theirs(seed: int, form: str) -> None:
    rng = np.random.default_rng(seed)
    labels = torch.from_numpy(rng.integers(0, 4, 6))
    rare, draws = (torch.from_numpy(rng.random(shape) < 0.5) for shape in (4, (6, 4)))
    left_out = spared(rare, labels, draws)
    logits = torch.from_numpy(rng.normal(size=(6, 4))).requires_grad_()
    (slope,) = torch.autograd.grad(equalization_loss(logits, labels, left_out, form), logits)
    assert not left_out[range(6), labels].any()
    others = left_out == (rare & draws)
    others[range(6), labels] = True
    assert others.all()
    assert (slope[left_out] == 0).all()
    if form == "sigmoid":
        own = (logits.sigmoid() - 1)[range(6), labels] / 6
        np.testing.assert_allclose(slope[range(6), labels], own.detach(), atol=1e-12)


@pytest.mark.parametrize(
    ("n_max", "classes", "factor", "first"),
    [(5000, 10, 50, 7), (5000, 10, 100, 6), (500, 100, 50, 68), (500, 100, 100, 61)],
)
def test_automatic_tails_are_the_published_tail_groups(n_max: int, classes: int, factor: float, first: int) -> None:
    counts = torch.from_numpy(longtail_counts(n_max, classes, factor))
    assert torch.equal(tail_classes(counts), torch.arange(classes) >= first)
    shuffled = torch.from_numpy(np.random.default_rng(0).permutation(classes))
    assert torch.equal(tail_classes(counts[shuffled]), shuffled >= first)


def test_absent_classes_are_rare_and_a_balanced_client_has_few() -> None:
    assert tail_classes(torch.tensor([7, 0, 0])).tolist() == [False, True, True]
    assert not tail_classes(torch.tensor([5, 5])).any()
    assert tail_classes(torch.tensor([94, 1, 5])).tolist() == [False, True, False]
    assert tail_classes(torch.tensor([95, 5])).tolist() == [False, True]
    assert rare_classes(torch.tensor([90, 10, 0]), 0.1).tolist() == [False, False, True]


def test_draws_have_the_asked_share_and_leave_the_augmentations_stream_alone() -> None:
    simulation = Simulation(_trial("equalization", gamma=0.3), toy.skewed())
    simulation.data.pipeline.augment = "crop_flip"
    context = simulation._trainer.context(0, 0, 1)
    simulation.algorithm.prepare(simulation.model.net, context)
    drawn = simulation.algorithm.draw(context, np.random.default_rng(0), 500)
    assert np.array_equal(drawn[:, :3], context.pipeline.draws(np.random.default_rng(0), 500))
    assert drawn[:, 3:].shape == (500, 4)
    assert 0.26 < drawn[:, 3:].mean() < 0.34


def test_options_out_of_range_are_named() -> None:
    assert check_algorithm("equalization", {"threshold": 5e-3}) == []
    faults = check_algorithm("equalization", {"threshold": "tail", "gamma": 1.5, "form": "hinge"})
    for name in ("threshold", "gamma", "form"):
        assert any(f"federation.options.{name}" in fault for fault in faults)
