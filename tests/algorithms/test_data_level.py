"""Over-sampling, SMOTE, mixup and Remix: what a client trains on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedrela_bench.algorithms import Algorithm, Batch, LocalContext, build_algorithm, check_algorithm
from fedrela_bench.algorithms.data_level import mixed_cross_entropy
from fedrela_bench.algorithms.mixup import Mixup
from fedrela_bench.algorithms.oversampling import OverSampling
from fedrela_bench.algorithms.remix import Remix, rebalanced_weight
from fedrela_bench.algorithms.smote import Smote, extend, interpolate, nearest
from fedrela_bench.data.transforms import Pipeline
from fedrela_bench.rng import generator
from fedrela_bench.simulation import Simulation
from tests.algorithms.examples import Golden, worked_example
from tests.simulation import toy

NAMES = ["oversampling", "smote", "mixup", "remix"]


def _trial(algorithm: str, options: Mapping[str, Any] | None = None, **sections: Any) -> Any:
    federation = {"algorithm": algorithm, "options": dict(options or {}), "clients": 4, "rounds": 4}
    return toy.config(federation=federation | sections.pop("federation", {}), **sections)


def _context(labels: list[int], images: np.ndarray | None = None, round_index: int = 0, augment: str = "none") -> Any:
    pixels = toy.class_images(np.array(labels), seed=5) if images is None else images
    context: Any = SimpleNamespace(
        images=torch.from_numpy(pixels),
        labels=torch.tensor(labels),
        label_counts=torch.bincount(torch.tensor(labels), minlength=4),
        samples=len(labels),
        pipeline=Pipeline(None, augment, torch.float64),
        scratch={},
    )
    context.generator = lambda purpose: generator(7, purpose, round_index, 0)
    return context


# over-sampling -------------------------------------------------------------------------------------------------------


def test_over_sampling_draws_every_local_class_equally_often() -> None:
    labels, algorithm = [0] * 900 + [2] * 90 + [3] * 10, build_algorithm("oversampling", {}, 4)
    context = _context(labels, np.zeros((1000, 1, 1, 1), dtype=np.uint8))
    rng = np.random.default_rng(0)
    epochs = [algorithm.epoch_rows(context, rng) for _ in range(20)]
    assert all(len(rows) == 1000 for rows in epochs)
    drawn = np.concatenate(epochs)
    shares = np.bincount(np.array(labels)[drawn], minlength=4) / len(drawn)
    np.testing.assert_allclose(shares, [1 / 3, 0, 1 / 3, 1 / 3], atol=0.02)
    rare = np.bincount(drawn[drawn >= 990] - 990)
    np.testing.assert_allclose(rare / rare.sum(), 0.1, atol=0.02)


@given(labels=st.lists(st.integers(0, 3), min_size=1, max_size=30), seed=st.integers(0, 99))
def test_an_over_sampled_epoch_has_the_clients_length_and_classes(labels: list[int], seed: int) -> None:
    context = _context(labels)
    rows = build_algorithm("oversampling", {}, 4).epoch_rows(context, np.random.default_rng(seed))
    assert len(rows) == len(labels)
    assert set(np.array(labels)[rows]) <= set(labels)


# SMOTE ---------------------------------------------------------------------------------------------------------------


def test_a_synthetic_point_is_the_worked_example(golden: Golden) -> None:
    inputs = (example := worked_example(golden, "smote_point"))["inputs"]
    points = [torch.tensor([inputs[name]], dtype=torch.float64) for name in ("x", "neighbour")]
    result = interpolate(*points, torch.tensor([inputs["u"]], dtype=torch.float64))
    np.testing.assert_allclose(result[0], example["expected"]["synthetic"], atol=example["tolerance"])


@settings(deadline=None)
@given(seed=st.integers(0, 999), count=st.integers(2, 40), size=st.integers(1, 6))
def test_nearest_points_are_those_of_brute_force(seed: int, count: int, size: int) -> None:
    points = np.random.default_rng(seed).integers(0, 4, (count, size))
    found = nearest(torch.from_numpy(points.astype(np.uint8)), min(5, count - 1))
    for row in range(count):
        squares = ((points - points[row]) ** 2).sum(axis=1)
        order = sorted((int(squares[other]), other) for other in range(count) if other != row)
        assert found[row].tolist() == [other for _, other in order[: min(5, count - 1)]]


def test_distances_are_exact_for_large_images() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (600, 3072), dtype=np.uint8)
    pixels[599] = pixels[0]
    pixels[599, 0] ^= 1
    found = nearest(torch.from_numpy(pixels), 1)
    assert found[0].item() == 599
    assert found[599].item() == 0


@settings(deadline=None)
@given(
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=30),
    neighbours=st.integers(1, 7),
    round_index=st.integers(0, 50),
)
def test_smote_brings_every_local_class_to_the_largest(labels: list[int], neighbours: int, round_index: int) -> None:
    context = _context(labels, round_index=round_index)
    extended = extend(context, neighbours, torch.float64)
    own, count = np.array(labels), len(labels)
    sizes = np.bincount(own)
    np.testing.assert_array_equal(np.bincount(own[extended.base]), np.where(sizes > 0, sizes.max(), 0))
    np.testing.assert_array_equal(extended.base[:count], np.arange(count))
    assert not extended.share[:count].any()
    partners = extended.partner.numpy()
    np.testing.assert_array_equal(own[partners], own[extended.base])
    for base, partner, share in zip(extended.base[count:], partners[count:], extended.share[count:], strict=True):
        if sizes[own[base]] == 1:
            assert base == partner and share == 0
        else:
            assert partner in _neighbours(context.images, own, base, neighbours)
            assert 0 <= share < 1


def _neighbours(images: Tensor, labels: np.ndarray, base: int, count: int) -> list[int]:
    mates = [row for row in np.flatnonzero(labels == labels[base]) if row != base]
    squares = {row: float((images[row].double() - images[base].double()).square().sum()) for row in mates}
    return sorted(mates, key=lambda row: (squares[row], row))[:count]


@pytest.mark.parametrize("augment", ["none", "crop_flip"])
def test_smote_trains_on_interpolated_pixels(augment: str) -> None:
    labels = [0] * 6 + [1] * 3 + [3]
    context, algorithm = _context(labels, augment=augment), build_algorithm("smote", {}, 4)
    rng, moves = np.random.default_rng(0), np.random.default_rng(1)
    rows = algorithm.epoch_rows(context, rng)
    draws = torch.from_numpy(algorithm.draw(context, moves, len(rows)))
    inputs = algorithm.inputs(context, context.images[rows], draws)
    assert np.bincount(np.array(labels)[rows]).tolist() == [6, 6, 0, 6]
    extended = extend(context, 5, torch.float64)
    plain = context.images.double()
    share = extended.share.view(-1, 1, 1, 1)
    whole = plain[extended.base] + share * (plain[extended.partner] - plain[extended.base])
    expected = context.pipeline.train(whole[draws[:, -1]], draws[:, :-1])
    torch.testing.assert_close(inputs, expected, rtol=0, atol=1e-12)
    assert sorted(draws[:, -1].tolist()) == list(range(18))
    assert context.images.dtype == torch.uint8 and torch.equal(context.images.double(), plain)
    synthetic = inputs[(draws[:, -1] >= 10) & (torch.from_numpy(np.array(labels)[rows]) == 1)]
    assert not (synthetic * 255 == (synthetic * 255).round()).all()


def test_synthetic_points_change_with_the_round_only() -> None:
    labels = [0] * 6 + [1] * 3
    first, again, later = (extend(_context(labels, round_index=index), 5, torch.float64) for index in (0, 0, 1))
    assert torch.equal(first.share, again.share) and torch.equal(first.partner, again.partner)
    assert not torch.equal(first.share, later.share)


def test_smote_steps_through_the_extended_set() -> None:
    data = toy.dataset([0] * 10 + [1] * 4 + [2] * 4, [range(18), []], 3)
    counted: list[Batch] = []
    simulation = Simulation(_trial("smote", federation={"clients": 2, "rounds": 1}, training={"local_epochs": 1}), data)
    loss = simulation.algorithm.loss
    simulation.algorithm.loss = lambda net, batch, context: (counted.append(batch), loss(net, batch, context))[1]  # type: ignore[method-assign]
    simulation.run_round()
    labels = torch.cat([batch.labels for batch in counted])
    rows = torch.cat([batch.rows for batch in counted])
    assert torch.bincount(labels).tolist() == [10, 10, 10]
    assert torch.equal(simulation.data.original[rows], labels)


# mixup and Remix -----------------------------------------------------------------------------------------------------


def test_the_mixed_loss_is_the_worked_example(golden: Golden) -> None:
    inputs = (example := worked_example(golden, "mixup_loss"))["inputs"]
    labels = [torch.tensor(inputs[name]) for name in ("y_a", "y_b")]
    loss = mixed_cross_entropy(
        torch.tensor(inputs["logits"], dtype=torch.float64), *labels, torch.tensor(inputs["lam"])
    )
    assert float(loss) == pytest.approx(example["expected"]["loss"], abs=1e-7)
    exact = mixed_cross_entropy(
        torch.tensor(inputs["logits"], dtype=torch.float64), *labels, torch.tensor(inputs["lam"], dtype=torch.float64)
    )
    assert float(exact) == pytest.approx(example["expected"]["loss"], abs=example["tolerance"])


def test_remix_label_weights_are_the_worked_example(golden: Golden) -> None:
    inputs = (example := worked_example(golden, "remix_label_lambda"))["inputs"]
    own, other, share = (torch.tensor(column, dtype=torch.float64) for column in zip(*inputs["cases"], strict=True))
    weights = rebalanced_weight(own, other, share, inputs["kappa"], inputs["tau"])
    np.testing.assert_allclose(weights, example["expected"]["lambda_y"], atol=example["tolerance"])


@given(own=st.integers(0, 500), other=st.integers(0, 500), share=st.floats(0, 1), tau=st.floats(0, 0.5))
def test_remix_gives_the_rarer_label_at_least_its_share(own: int, other: int, share: float, tau: float) -> None:
    weight = float(rebalanced_weight(torch.tensor([own]), torch.tensor([other]), share, 3.0, tau))
    assert weight in (0.0, 1.0, share)
    if max(own, other) < 3 * min(own, other) or own == other:
        assert weight == share
    elif own < other:
        assert weight >= share
    elif own > other:
        assert weight <= share
    mirrored = rebalanced_weight(torch.tensor([other]), torch.tensor([own]), 1 - share, 3.0, tau)
    if 1 - (1 - share) == share:
        assert float(mirrored) == pytest.approx(1 - weight)


def test_remix_takes_a_class_without_original_samples_for_the_rarest() -> None:
    own, other = torch.tensor([1, 0, 0, 5]), torch.tensor([0, 1, 0, 0])
    assert rebalanced_weight(own, other, 0.4, 3.0, 0.5).tolist() == [0.0, 0.4, 0.4, 0.0]
    assert rebalanced_weight(own, other, 0.6, 3.0, 0.5).tolist() == [0.6, 1.0, 0.6, 0.6]


def test_mixup_mixes_images_and_labels_of_one_permutation() -> None:
    algorithm, context = build_algorithm("mixup", {"alpha": 2.0}, 4), _context([0, 1, 2, 3, 0])
    seen: list[Tensor] = []

    def net(inputs: Tensor) -> Any:
        seen.append(inputs)
        return SimpleNamespace(logits=inputs.flatten(1)[:, :4])

    context.server = SimpleNamespace(params=torch.zeros(1, dtype=torch.float64))
    images = context.pipeline.plain(context.images)
    rng = generator(7, "mixup", 0, 0)
    for _ in range(3):
        loss = algorithm.loss(net, Batch(images, context.labels, torch.arange(5)), context)  # type: ignore[arg-type]
        share, partners = rng.beta(2.0, 2.0), torch.from_numpy(rng.permutation(5))
        torch.testing.assert_close(seen[-1], share * images + (1 - share) * images[partners])
        logits = seen[-1].flatten(1)[:, :4]
        expected = share * F.cross_entropy(logits, context.labels)
        expected = expected + (1 - share) * F.cross_entropy(logits, context.labels[partners])
        assert float(loss) == pytest.approx(float(expected), abs=1e-12)


def test_remix_counts_the_clients_classes() -> None:
    algorithm, context = build_algorithm("remix", {}, 4), _context([0] * 9 + [1] * 3 + [2] * 2)
    first, second = torch.tensor([0, 1, 0, 2, 1]), torch.tensor([1, 0, 2, 0, 2])
    weights = algorithm.label_weight(first, second, 0.4, context)  # type: ignore[attr-defined]
    assert weights.tolist() == [0.0, 0.4, 0.0, 0.4, 0.4]
    weights = algorithm.label_weight(first, second, 0.6, context)  # type: ignore[attr-defined]
    assert weights.tolist() == [0.6, 1.0, 0.6, 1.0, 0.6]


# degenerate cases and rounds -----------------------------------------------------------------------------------------


def _equal_classes() -> Any:
    return toy.dataset(np.tile([0, 1, 2], 16), [range(12 * k, 12 * k + 12) for k in range(4)], 3)


TWINS: list[tuple[str, dict[str, Any], str, dict[str, Any], Callable[[], Any]]] = [
    ("smote", {}, "fedavg", {}, _equal_classes),
    ("mixup", {"alpha": 0.0}, "fedavg", {}, toy.skewed),
    ("remix", {"alpha": 0.0}, "fedavg", {}, toy.skewed),
    ("remix", {"kappa": 1e12}, "mixup", {}, toy.skewed),
    ("remix", {"tau": 0.0, "alpha": 0.4}, "mixup", {"alpha": 0.4}, toy.skewed),
]


@pytest.mark.parametrize(("name", "options", "twin", "twin_options", "make"), TWINS)
def test_degenerate_cases_bit_for_bit(
    name: str, options: dict[str, Any], twin: str, twin_options: dict[str, Any], make: Callable[[], Any]
) -> None:
    data, relabel = make(), {"tau": 0.3, "start": 2}
    federation = {"clients": len(data.clients)}
    ours, _ = toy.run(_trial(name, options, federation=federation, relabel=relabel), data)
    theirs, _ = toy.run(_trial(twin, twin_options, federation=federation, relabel=relabel), data)
    assert toy.same_model(ours, theirs)


@pytest.mark.parametrize("name", NAMES)
def test_by_default_they_are_not_fedavg(name: str) -> None:
    data = toy.skewed(clients=4)
    ours, fedavg = (toy.run(_trial(kind), data)[0] for kind in (name, "fedavg"))
    assert not torch.equal(ours.state.server.params, fedavg.state.server.params)
    assert ours.communication == fedavg.communication
    assert not ours.state.client_states


@pytest.mark.parametrize("name", NAMES)
def test_resumed_and_forked_runs_equal_the_full_one(name: str) -> None:
    data, federation, relabel = toy.skewed(clients=4), {"participation": 0.75}, {"tau": 0.3, "start": 2}
    full, results = toy.run(_trial(name, federation=federation, relabel=relabel), data)
    trunk = Simulation(_trial(name, federation=federation), data)
    trunk.run_round()
    trunk.run_round()
    fork = Simulation(_trial(name, federation=federation, relabel=relabel), data)
    fork.restore(trunk.snapshot())
    assert toy.figures(list(fork)) == toy.figures(results)[2:]
    assert toy.same_model(fork, full)
    assert results[-1].metrics["relabel/changed"] > 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("batch", [{"batch_size": 8}, {"batch_size": 1, "short_batch": "keep"}])
def test_empty_one_sample_and_one_class_clients_and_batches_of_one(name: str, batch: dict[str, Any]) -> None:
    data = toy.dataset([0] * 9 + [1] * 5 + [2] * 3, [[], [16], range(9), range(9, 16)], 4)
    simulation, results = toy.run(_trial(name, training=batch, relabel={"tau": 0.3, "start": 2}), data)
    assert simulation.status == "completed"
    assert all(np.isfinite(result.metrics["train/loss"]) for result in results)


class _Watching:
    """Notes the labels that the classes of an epoch come from."""

    def __init__(self, simulation: Simulation) -> None:
        self.counts: list[list[int]] = []
        self._rows = simulation.algorithm.epoch_rows
        simulation.algorithm.epoch_rows = self._watch  # type: ignore[method-assign]

    def _watch(self, context: LocalContext, rng: np.random.Generator) -> np.ndarray:
        rows = self._rows(context, rng)
        self.counts.append(torch.bincount(context.labels[torch.from_numpy(rows)], minlength=3).tolist())
        return rows


def test_classes_are_those_of_the_labels_in_force() -> None:
    data = toy.dataset([0] * 8 + [1] * 2, [range(10)], 3)
    simulation = Simulation(_trial("smote", federation={"clients": 1}), data)
    watching = _Watching(simulation)
    simulation.run_round()
    simulation.state.labels[:3] = 2
    simulation.run_round()
    assert watching.counts == [[8, 8, 0]] * 2 + [[5, 5, 5]] * 2


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("oversampling", {"alpha": 1.0}),
    ("smote", {"neighbours": 0}),
    ("mixup", {"alpha": -0.1}),
    ("remix", {"kappa": 0.5}),
    ("remix", {"tau": 1.5}),
]


@pytest.mark.parametrize(("name", "options"), WRONG)
def test_options_out_of_range_are_refused_by_name(name: str, options: dict[str, Any]) -> None:
    (fault,) = check_algorithm(name, options)
    assert f"federation.options.{next(iter(options))}" in fault


@pytest.mark.parametrize("kind", [OverSampling, Smote, Mixup, Remix])
def test_every_option_says_what_it_does(kind: type[Algorithm]) -> None:
    assert kind.name in NAMES
    assert all(field.description for field in kind.OptionsModel.model_fields.values())
