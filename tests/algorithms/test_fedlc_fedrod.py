"""FedLC and FedRoD: worked examples, FedAvg as a special case bit for bit, awkward clients, absent classes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedrela_bench.algorithms import build_algorithm, check_algorithm
from fedrela_bench.algorithms.fedlc import calibrated_loss, excluding_loss, margins_of
from fedrela_bench.algorithms.fedrod import RoDHeads, balanced_prior
from fedrela_bench.models import Outputs
from fedrela_bench.simulation import Simulation
from tests.algorithms.examples import Golden, worked_example
from tests.simulation import toy


def _real(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def _trial(name: str, options: dict[str, Any] | None = None, **sections: Any) -> Any:
    federation = {"algorithm": name, "options": options or {}, **sections.pop("federation", {})}
    return toy.config(federation=federation, **sections)


def _context(counts: Tensor, labels: Tensor) -> Any:
    server = SimpleNamespace(params=torch.zeros(1, dtype=torch.float64))
    return SimpleNamespace(label_counts=counts, labels=labels, server=server, scratch={})


def _fedlc_loss(options: dict[str, Any], logits: Tensor, labels: Tensor, counts: Tensor, held: Tensor) -> Tensor:
    """The loss of a batch for a client that holds the labels `held` and counts them as `counts`."""
    algorithm, context = build_algorithm("fedlc", options, logits.shape[1]), _context(counts, held)
    algorithm.prepare(cast(Any, None), context)
    return algorithm.criterion(Outputs(logits, logits), labels, context)


# FedLC --------------------------------------------------------------------------------------------------------------


def test_the_calibrated_loss(golden: Golden) -> None:
    example = worked_example(golden, "fedlc")
    inputs, expected, near = example["inputs"], example["expected"], {"abs": example["tolerance"]}
    logits, labels, counts = _real(inputs["logits"]), torch.tensor(inputs["labels"]), torch.tensor(inputs["counts"])
    margins = margins_of(counts.double(), inputs["tau"], "mask")
    np.testing.assert_allclose(margins, expected["margins"], atol=example["tolerance"])
    np.testing.assert_allclose(logits - margins, expected["calibrated"], atol=example["tolerance"])
    held = torch.tensor([0, 1, 2])
    for options, key in (
        ({}, "loss_default"),
        ({"denominator": "exclude_true"}, "loss_paper_denominator"),
        ({"tau": 0}, "loss_tau0"),
    ):
        assert float(_fedlc_loss(options, logits, labels, counts, held)) == pytest.approx(expected[key], **near)
    absent, labels = torch.tensor(inputs["counts_absent"]), torch.tensor(inputs["labels_absent"])
    for rule, key in (("mask", "loss_absent_mask"), ("floor", "loss_absent_floor1e_8")):
        loss = _fedlc_loss({"absent": rule}, logits, labels, absent, torch.tensor([0, 1]))
        assert float(loss) == pytest.approx(expected[key], **near)


def test_without_margins_it_is_cross_entropy_bit_for_bit() -> None:
    data = toy.skewed()
    average, _ = toy.run(_trial("fedavg"), data)
    for absent in ("one", "floor"):
        none, _ = toy.run(_trial("fedlc", {"tau": 0, "absent": absent}), data)
        assert toy.same_model(none, average)
    some, _ = toy.run(_trial("fedlc", {"tau": 0.1, "absent": "one"}), data)
    assert not toy.same_model(some, average)


@given(
    logits=st.lists(st.lists(st.floats(-30, 30), min_size=4, max_size=4), min_size=1, max_size=5),
    count=st.integers(1, 10**6),
    tau=st.floats(0, 50),
)
@settings(max_examples=50, deadline=None)
def test_equal_counts_give_cross_entropy(logits: list[list[float]], count: int, tau: float) -> None:
    values, labels = _real(logits), torch.arange(len(logits)) % 4
    margins = margins_of(_real([count] * 4), tau, "mask")
    torch.testing.assert_close(
        calibrated_loss(values, labels, margins, None), cross_entropy(values, labels), atol=1e-12, rtol=1e-12
    )


def test_rarer_true_classes_pull_harder() -> None:
    margins, pulls = margins_of(_real([100, 10, 1]), 1.0, "mask"), []
    for label in range(3):
        logits = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
        calibrated_loss(logits, torch.tensor([label]), margins, None).backward()  # type: ignore[no-untyped-call]
        assert logits.grad is not None
        pulls.append(-float(logits.grad[0, label]))
    assert pulls == sorted(pulls)
    assert pulls[0] < 2 / 3 < pulls[2]


def test_a_label_moved_into_an_absent_class_has_a_finite_loss() -> None:
    logits, labels = _normal(4, 3), torch.tensor([0, 0, 1, 2])
    stale = torch.tensor([3, 1, 0])
    for options in ({}, {"denominator": "exclude_true"}, {"absent": "one"}):
        assert torch.isfinite(_fedlc_loss(options, logits, labels, stale, labels))


def test_masked_classes_get_no_gradient() -> None:
    logits = _normal(4, 3).requires_grad_()
    labels = torch.tensor([0, 0, 1, 1])
    _fedlc_loss({}, logits, labels, torch.tensor([2, 2, 0]), labels).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert not logits.grad[:, 2].any()
    assert logits.grad[:, :2].all()


@pytest.mark.parametrize("size", [1.0, 1e4])
def test_one_class_alone_has_nothing_to_be_told_from(size: float) -> None:
    logits = (size * _normal(3, 4)).requires_grad_()
    labels = torch.ones(3, dtype=torch.long)
    for loss in (calibrated_loss, excluding_loss):
        value = loss(logits, labels, None, torch.tensor([True, False, True, True]))
        (gradient,) = torch.autograd.grad(value, logits)
        assert float(value.detach()) == 0
        assert not gradient.any()


# FedRoD -------------------------------------------------------------------------------------------------------------


class _Features(torch.nn.Module):
    """Passes features through, so that a loss can be asked about them."""

    def __init__(self, head: RoDHeads) -> None:
        super().__init__()
        self.head = head

    def features(self, inputs: Tensor) -> Tensor:
        return inputs


def _fedrod(inputs: dict[str, Any], options: dict[str, Any]) -> tuple[Any, Any, Any]:
    heads = RoDHeads(2, 3).double()
    with torch.no_grad():
        for layer, key in ((heads.generic, "W_generic"), (heads.personal, "W_personal")):
            layer.weight.copy_(_real(inputs[key]))
            layer.bias.zero_()
    algorithm = build_algorithm("fedrod", options, 3)
    context = _context(torch.tensor([8, 2, 0]), torch.tensor(inputs["labels"]))
    algorithm.prepare(cast(Any, None), context)
    return algorithm, _Features(heads), context


def test_the_loss_of_both_heads(golden: Golden) -> None:
    example = worked_example(golden, "fedrod")
    inputs, expected, near = example["inputs"], example["expected"], {"abs": example["tolerance"]}
    features, labels = _real(inputs["features"]), torch.tensor(inputs["labels"])
    algorithm, net, context = _fedrod(inputs, {"gamma": inputs["gamma"]})
    batch = SimpleNamespace(inputs=features, labels=labels)
    loss = float(algorithm.loss(net, batch, context).detach())
    assert loss == pytest.approx(expected["loss_generic"] + expected["loss_personal"], **near)
    with torch.no_grad():
        outputs = Outputs(features, net.head(features))
        personal = algorithm.personal_score(net, outputs, context.label_counts)
    np.testing.assert_allclose(outputs.logits, expected["generic_logits"], atol=example["tolerance"])
    np.testing.assert_allclose(personal, expected["personal_total_logits"], atol=example["tolerance"])


def test_one_backward_pass_gives_the_gradients_of_two_optimisers() -> None:
    inputs = {
        "labels": [0, 1, 1, 0],
        "W_generic": _normal(3, 2, seed=1).tolist(),
        "W_personal": _normal(3, 2, seed=2).tolist(),
    }
    features = _normal(4, 2).requires_grad_()
    algorithm, net, context = _fedrod(inputs, {})
    labels, heads = torch.tensor(inputs["labels"]), net.head
    together = algorithm.loss(net, SimpleNamespace(inputs=features, labels=labels), context)
    generic = cross_entropy(heads.generic(features) + context.scratch["prior"], labels)
    apart = [features, *heads.generic.parameters()]
    for ours, theirs in zip(
        torch.autograd.grad(together, apart, retain_graph=True), torch.autograd.grad(generic, apart), strict=True
    ):
        assert torch.equal(ours, theirs)
    detached = features.detach()
    personal = cross_entropy(heads.generic(detached).detach() + heads.personal(detached), labels)
    own = list(heads.personal.parameters())
    for ours, theirs in zip(torch.autograd.grad(together, own), torch.autograd.grad(personal, own), strict=True):
        assert torch.equal(ours, theirs)


def test_absent_classes_count_once_or_not_at_all() -> None:
    counts, labels = _real([8, 2, 0]), torch.tensor([0, 0, 1])
    assert balanced_prior(counts, labels, 2.0, "floor").tolist() == pytest.approx([2 * np.log(8), 2 * np.log(2), 0])
    masked = balanced_prior(counts, labels, 1.0, "mask")
    assert masked[2] == -torch.inf
    moved = balanced_prior(counts, torch.tensor([0, 1, 2]), 1.0, "mask")
    assert moved.tolist() == pytest.approx([np.log(8), np.log(2), 0])


def _shared(simulation: Simulation) -> dict[str, Tensor]:
    server = simulation.state.server
    named = simulation.model.named(server.params, server.buffers)
    return {k.replace("head.generic.", "head."): v for k, v in named.items() if not k.startswith("head.personal.")}


def test_without_balance_the_generic_model_is_fedavgs_bit_for_bit() -> None:
    data = toy.skewed()
    average, _ = toy.run(_trial("fedavg"), data)
    plain, _ = toy.run(_trial("fedrod", {"gamma": 0}), data)
    expected = _shared(average)
    assert _shared(plain).keys() == expected.keys()
    for name, value in _shared(plain).items():
        assert torch.equal(value, expected[name]), name
    balanced, _ = toy.run(_trial("fedrod"), data)
    assert not torch.equal(_shared(balanced)["head.weight"], expected["head.weight"])


def test_personal_heads_start_as_the_generic_one_and_never_touch_it() -> None:
    data = toy.skewed()
    plain, moved = Simulation(_trial("fedrod"), data), Simulation(_trial("fedrod"), data)
    first = plain._trainer._first_private
    heads = cast(RoDHeads, plain.model.net.head)
    assert torch.equal(first["head.personal.weight"], heads.generic.weight.detach().flatten())
    moved._trainer._first_private["head.personal.weight"].mul_(-5)
    for simulation in (plain, moved):
        list(simulation)
    for name, value in _shared(moved).items():
        assert torch.equal(value, _shared(plain)[name]), name
    kept = plain.state.private
    assert not torch.equal(kept[0]["head.personal.weight"], kept[1]["head.personal.weight"])


# both ---------------------------------------------------------------------------------------------------------------

VARIANTS = [
    ("fedlc", {}),
    ("fedlc", {"denominator": "exclude_true", "tau": 0.2}),
    ("fedlc", {"absent": "floor"}),
    ("fedrod", {}),
    ("fedrod", {"absent": "mask"}),
]


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_awkward_clients_a_fork_and_a_resume(name: str, options: dict[str, Any]) -> None:
    """One client with one sample, one with one class, class 4 on none."""
    labels = [0, 0, 0, 1, 1, 2, 0, 3, 3, 3]
    data = toy.dataset(labels, [range(6), [6], [7, 8, 9]], 5)
    relabel = {"tau": 0.4, "start": 2}
    full, results = toy.run(_trial(name, options, relabel=relabel), data)
    assert all(np.isfinite(result.metrics["train/loss"]) for result in results)
    trunk = Simulation(_trial(name, options), data)
    trunk.run_round(), trunk.run_round()
    fork = Simulation(_trial(name, options, relabel=relabel), data)
    fork.restore(trunk.snapshot())
    fork.run_round()
    again = Simulation(_trial(name, options, relabel=relabel), data)
    again.restore(fork.snapshot())
    list(again)
    assert toy.same_model(again, full)
    assert again.state.private.keys() == full.state.private.keys()


@pytest.mark.parametrize("name", ["fedlc", "fedrod"])
def test_the_losses_follow_the_labels_in_force(name: str) -> None:
    data, relabel = toy.skewed(), {"tau": 0.4, "start": 1}
    trials = [_trial(name, relabel={**relabel, "label_stats": stats}) for stats in ("current", "original")]
    (current, results), (original, _) = (toy.run(trial, data) for trial in trials)
    assert results[1].metrics["relabel/changed"] > 0
    assert not torch.equal(current.state.server.params, original.state.server.params)


def test_what_is_kept_and_sent() -> None:
    head, backbone = 48 * 4 + 4, 6 * 9 + 6 + 2 * 6 + 2 * 6
    for name, kept in (("fedlc", 0), ("fedrod", head)):
        simulation = Simulation(_trial(name), toy.skewed())
        assert simulation.algorithm.client_state_floats(simulation.model.size(48, 4)) == kept
        assert simulation.communication == {"down": backbone + head, "up": backbone + head}
        list(simulation)
        private = simulation.state.private.values()
        assert {sum(value.numel() for value in part.values()) for part in private} == ({kept} if kept else set())
        assert not simulation.state.client_states


def test_wrong_options_are_named() -> None:
    assert len(check_algorithm("fedlc", {"tau": -1, "denominator": "some", "absent": "zero"})) == 3
    assert len(check_algorithm("fedrod", {"gamma": -1, "absent": "one", "personal_metric": "yes"})) == 3
