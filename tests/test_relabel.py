"""FedReLa's re-allocator against golden figures, its invariants, and its budget of time and memory."""

from __future__ import annotations

import itertools
import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedrela_bench.config import RelabelConfig
from fedrela_bench.errors import ConfigError
from fedrela_bench.relabel import RelabelOptions, reallocate, torch_engine

Golden = Callable[[str], Path]
Arrays = dict[str, NDArray[Any]]

VARIANTS = list(itertools.product(("d0", "d1"), ("order", "linear"), ("drawn", "all")))


@pytest.fixture(scope="module")
def cases(golden: Golden) -> list[tuple[dict[str, Any], Arrays]]:
    listed = json.loads(golden("relabel.json").read_text())["cases"]
    with np.load(golden("relabel.npz"), allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    prefix = [f"{case['name']}__" for case in listed]
    return [
        (case, {key.removeprefix(start): value for key, value in arrays.items() if key.startswith(start)})
        for case, start in zip(listed, prefix, strict=True)
    ]


@pytest.fixture(scope="module")
def example(golden: Golden) -> Callable[[str], dict[str, Any]]:
    examples = json.loads(golden("algorithm_examples.json").read_text())["examples"]
    return lambda name: examples[name]


def variant(std: str, quantile: Any, pick: Any, **more: Any) -> RelabelOptions:
    floor = 1e-6 if std == "d0" else 0.0
    return RelabelOptions(std_ddof=0 if std == "d0" else 1, sigma_floor=floor, quantile=quantile, pick=pick, **more)


def on_torch_engine(
    Q: NDArray[Any], y: NDArray[Any], tau: float, U: NDArray[Any], options: RelabelOptions
) -> torch_engine.Outcome:
    """The accelerator's path, run on the CPU."""
    return torch_engine.reallocate(*(torch.tensor(Q), torch.tensor(y), tau, torch.tensor(U)), options, True)


def close(actual: Any, expected: Any, tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=0, atol=tolerance)


@pytest.mark.parametrize(("std", "quantile", "pick"), VARIANTS)
def test_golden_figures_in_every_variant(
    cases: list[tuple[dict[str, Any], Arrays]], std: str, quantile: str, pick: str
) -> None:
    options, suffix = variant(std, quantile, pick), f"{std}_{quantile}"
    for case, gold in cases:
        tau = case["tau_used"] / 100
        r = reallocate(gold["Q"], gold["y"], tau, gold["U"], options)
        close(r.prior_weight, gold["prior_weight"])
        close(r.zscores, gold[f"z_{std}"])
        close(r.thresholds, gold[f"t_{suffix}"])
        close(r.rho, gold[f"rho_{suffix}"])
        np.testing.assert_array_equal(r.labels, gold[f"y_{suffix}_{pick}"], err_msg=case["name"])
        device = on_torch_engine(gold["Q"], gold["y"], tau, gold["U"], options)
        np.testing.assert_array_equal(device.labels.numpy(), r.labels, err_msg=case["name"])
        close(device.scores, r.zscores)
        close(device.thresholds, r.thresholds)
        close(device.prior_weight, r.prior_weight)
        close(device.strength, r.strength)


def test_golden_ablations(cases: list[tuple[dict[str, Any], Arrays]]) -> None:
    for case, gold in cases:
        for pick in ("all", "drawn"):
            options = variant("d1", "linear", pick, score="none")
            r = reallocate(gold["Q"], gold["y"], case["tau_used"] / 100, gold["U"], options)
            close(r.rho, gold["rho_nozscore"])
            np.testing.assert_array_equal(r.labels, gold[f"y_nozscore_{pick}"])
            device = on_torch_engine(gold["Q"], gold["y"], case["tau_used"] / 100, gold["U"], options)
            np.testing.assert_array_equal(device.labels.numpy(), r.labels)


def test_golden_constant_threshold(cases: list[tuple[dict[str, Any], Arrays]]) -> None:
    with_constant = [(case, gold) for case, gold in cases if "const_t" in case]
    assert with_constant
    for (case, gold), std, pick in itertools.product(with_constant, ("d0", "d1"), ("drawn", "all")):
        options = variant(std, "linear", pick, constant_threshold=case["const_t"])
        r = reallocate(gold["Q"], gold["y"], case["tau_used"] / 100, gold["U"], options)
        close(r.rho, gold[f"rho_{std}_const"])
        np.testing.assert_array_equal(r.labels, gold[f"y_{std}_const_{pick}"])


def test_float32_gives_float32_and_the_labels_of_float64(cases: list[tuple[dict[str, Any], Arrays]]) -> None:
    for case, gold in cases:
        if case["name"] == "u_zero_strict":
            continue
        for preset, labels in (("paper", "y_d1_linear_all"), ("author", "y_d0_order_drawn")):
            narrow = (gold["Q"].astype(np.float32), gold["y"], case["tau_used"] / 100, gold["U"].astype(np.float32))
            r = reallocate(*narrow, RelabelOptions.preset(preset))
            assert {r.rho.dtype, r.zscores.dtype, r.thresholds.dtype, r.strength.dtype} == {np.dtype(np.float32)}
            np.testing.assert_array_equal(r.labels, gold[labels], err_msg=case["name"])


def test_worked_example_of_one_client(example: Callable[[str], dict[str, Any]]) -> None:
    data = example("fedrela_client")
    given_, expected = data["inputs"], data["expected"]
    Q, y, tau, U = np.array(given_["Q"]), np.array(given_["labels"]), given_["tau"], np.array(given_["U"])
    paper = reallocate(Q, y, tau, U)
    close(paper.zscores, expected["paper"]["Z"], 1e-8)
    close(paper.rho, expected["paper"]["rho"], 1e-8)
    assert paper.labels.tolist() == expected["paper"]["new_labels"]
    drawn = reallocate(Q, y, tau, U, RelabelOptions(pick="drawn"))
    assert drawn.labels.tolist() == expected["paper_argmax_drawn"]["new_labels"]
    author = reallocate(Q, y, tau, U, RelabelOptions.preset("author"))
    close(author.thresholds, expected["author"]["t"], 1e-8)
    close(author.rho, expected["author"]["rho"], 1e-8)
    assert author.labels.tolist() == expected["author"]["new_labels"]


def test_worked_example_of_the_ablations(example: Callable[[str], dict[str, Any]]) -> None:
    data = example("fedrela_ablations")
    Q, y, tau = np.array(data["inputs"]["Q"]), np.array(data["inputs"]["labels"]), data["inputs"]["tau"]
    U = np.full(Q.shape, 0.3)
    close(reallocate(Q, y, tau, U, RelabelOptions(score="none")).rho, data["expected"]["rho_no_zscore"])
    minmax = reallocate(Q, y, tau, U, RelabelOptions(score="minmax"))
    close(minmax.zscores, data["expected"]["minmax"])
    close(minmax.thresholds, data["expected"]["t"])
    close(minmax.rho, data["expected"]["rho_minmax"])
    device = on_torch_engine(Q, y, tau, U, RelabelOptions(score="minmax"))
    close(device.scores, minmax.zscores)
    np.testing.assert_array_equal(device.labels.numpy(), minmax.labels)


@pytest.mark.parametrize("quantile", ["linear", "order"])
def test_worked_example_of_the_threshold_rules(example: Callable[[str], dict[str, Any]], quantile: Any) -> None:
    data = example("fedrela_threshold_rules")
    for (n, tau), expected in zip(data["inputs"]["cases"], data["expected"][quantile], strict=True):
        column = np.arange(n, dtype=np.float64)
        scaled = (column - column.mean()) / column.std(ddof=1)
        r = reallocate(column[:, None], np.zeros(n, dtype=int), tau, np.ones((n, 1)), RelabelOptions(quantile=quantile))
        close(r.thresholds[0], np.interp(expected, column, scaled))


def test_relabelled_posterior_moves_the_bayes_boundary(example: Callable[[str], dict[str, Any]]) -> None:
    data = example("fedrela_boundary")
    eta, rho, n = data["inputs"]["eta_j"], data["inputs"]["rho_l_to_j"], 200_000
    rng = np.random.default_rng(0)
    labels = (rng.random(n) < eta).astype(np.int64)
    moved = np.where((labels == 0) & (rng.random(n) < rho), 1, labels)
    assert moved.mean() == pytest.approx(data["expected"]["eta_j_new"], abs=0.005)


# --- invariants ------------------------------------------------------------------------------------------------------


@st.composite
def clients(draw: st.DrawFn) -> tuple[NDArray[Any], NDArray[Any], float, NDArray[Any]]:
    """One client: posterior, labels, tau, uniforms."""
    n, classes = draw(st.integers(1, 60)), draw(st.integers(1, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shares = rng.dirichlet(np.full(classes, draw(st.sampled_from([0.1, 1.0, 50.0]))))
    # Multiples of 2**-20, so that affine changes by powers of two are exact.
    Q = np.round(rng.dirichlet(np.ones(classes), n) * 2**20) / 2**20
    return (
        Q,
        rng.choice(classes, n, p=shares),
        draw(st.sampled_from([0.0, 0.03, 0.05, 0.3, 0.7, 1.0])),
        rng.random(Q.shape),
    )


options_strategy = st.builds(
    RelabelOptions,
    pick=st.sampled_from(["all", "drawn"]),
    std_ddof=st.sampled_from([0, 1]),
    sigma_floor=st.sampled_from([0.0, 1e-6]),
    quantile=st.sampled_from(["linear", "order"]),
    threshold_pool=st.sampled_from(["all", "exclude_own"]),
    absent_targets=st.sampled_from(["allow", "forbid"]),
    score=st.sampled_from(["zscore", "none", "minmax"]),
)


@settings(max_examples=150, deadline=None)
@given(clients(), options_strategy)
def test_invariants_hold_under_every_option(client: Any, options: RelabelOptions) -> None:
    Q, y, tau, U = client
    n, classes = Q.shape
    r = reallocate(Q, y, tau, U, options)
    counts = np.bincount(y, minlength=classes)
    for array in (r.zscores, r.rho, r.thresholds, r.prior_weight, r.strength):
        assert np.isfinite(array).all()
    assert ((r.rho >= 0) & (r.rho <= 1)).all()
    assert (counts[r.labels[r.changed]] < counts[y[r.changed]]).all()
    assert not r.changed[counts[y] == counts.min()].any()
    flow = r.flow()
    assert flow.sum() == n
    np.testing.assert_array_equal(flow.sum(axis=1), counts)
    if options.absent_targets == "forbid":
        assert flow[:, counts == 0].sum() == 0
    if options.score != "none" and options.threshold_pool == "all":
        bound = int(tau * n) if options.quantile == "order" else np.ceil(tau * (n - 1) + 1e-9)
        assert ((r.zscores > r.thresholds).sum(axis=0) <= bound).all()
        assert (flow.sum(axis=0) - np.diag(flow) <= bound).all()
    np.testing.assert_array_equal(reallocate(Q, y, tau, U, options, diagnostics=False).labels, r.labels)


@settings(max_examples=150, deadline=None)
@given(clients(), options_strategy)
def test_torch_gives_the_labels_of_numpy(client: Any, options: RelabelOptions) -> None:
    Q, y, tau, U = client
    r = reallocate(Q, y, tau, U, options)
    device = on_torch_engine(Q, y, tau, U, options)
    np.testing.assert_array_equal(device.labels.numpy(), r.labels)
    close(device.scores, r.zscores, 1e-8)
    close(device.thresholds, r.thresholds, 1e-8)
    scores: Any = device.scores
    rho = torch_engine.flip_probabilities(scores, torch.tensor(y), device.thresholds, device.prior_weight, options)
    close(rho, r.rho, 1e-8)


@settings(max_examples=80, deadline=None)
@given(clients(), st.randoms(use_true_random=False))
def test_order_of_samples_does_not_matter(client: Any, random: Any) -> None:
    Q, y, tau, U = client
    order = np.array(random.sample(range(len(y)), len(y)), dtype=np.int64)
    r, permuted = reallocate(Q, y, tau, U), reallocate(Q[order], y[order], tau, U[order])
    np.testing.assert_array_equal(permuted.labels, r.labels[order])
    close(permuted.zscores, r.zscores[order], 1e-8)


@settings(max_examples=80, deadline=None)
@given(clients(), st.integers(0, 2**32))
def test_affine_change_per_class_and_column_does_not_matter(client: Any, seed: int) -> None:
    Q, y, tau, U = client
    rng = np.random.default_rng(seed)
    scale, shift = 2.0 ** rng.integers(-6, 6, (2, Q.shape[1], Q.shape[1]))
    r, changed = reallocate(Q, y, tau, U), reallocate(Q * scale[y] + shift[y], y, tau, U)
    close(changed.zscores, r.zscores, 1e-6)
    np.testing.assert_array_equal(changed.labels, r.labels)


@settings(max_examples=60, deadline=None)
@given(clients(), st.sampled_from(["linear", "order"]), st.sampled_from([0, 1]))
def test_tau_zero_changes_nothing(client: Any, quantile: Any, ddof: Any) -> None:
    Q, y, _, U = client
    options = RelabelOptions(quantile=quantile, std_ddof=ddof)
    assert not reallocate(Q, y, 0.0, np.zeros_like(U), options).changed.any()
    assert torch.equal(on_torch_engine(Q, y, 0.0, np.zeros_like(U), options).labels, torch.tensor(y))


def test_order_rule_below_one_over_tau_samples_changes_nothing() -> None:
    rng = np.random.default_rng(3)
    Q, y = rng.dirichlet(np.ones(4), 19), np.repeat([0, 1, 2], [10, 6, 3])
    r = reallocate(Q, y, 0.05, np.zeros(Q.shape), RelabelOptions.preset("author"))
    close(r.thresholds, r.zscores.max(axis=0), 0)
    assert not r.changed.any()


def test_one_sample_and_equal_counts_change_nothing_and_one_class_moves_to_absent_ones() -> None:
    rng = np.random.default_rng(4)
    for labels in ([1], [0, 0, 1, 1, 2, 2]):
        Q = rng.dirichlet(np.ones(3), len(labels))
        assert not reallocate(Q, np.array(labels), 0.5, np.zeros(Q.shape)).changed.any()
    Q = rng.dirichlet(np.ones(3), 20)
    assert set(reallocate(Q, np.ones(20, dtype=int), 0.3, np.zeros(Q.shape)).labels) == {0, 1, 2}
    forbidden = RelabelOptions(absent_targets="forbid")
    assert not reallocate(Q, np.ones(20, dtype=int), 0.3, np.zeros(Q.shape), forbidden).changed.any()


def test_constant_columns_score_exactly_zero_whatever_their_value() -> None:
    rng = np.random.default_rng(5)
    Q, y = rng.dirichlet(np.ones(3), 30), np.repeat([0, 1, 2], [17, 9, 4])
    Q[y == 0, 2] = 0.1
    for scores in (reallocate(Q, y, 0.1, Q).zscores, on_torch_engine(Q, y, 0.1, Q, RelabelOptions()).scores):
        assert scores is not None
        assert (np.asarray(scores)[y == 0, 2] == 0).all()


def test_threshold_over_other_classes_only() -> None:
    rng = np.random.default_rng(6)
    Q, y, tau = rng.dirichlet(np.ones(3), 40), np.repeat([0, 1, 2], [25, 10, 5]), 0.2
    r = reallocate(Q, y, tau, rng.random(Q.shape), RelabelOptions(threshold_pool="exclude_own"))
    close(r.thresholds, [np.quantile(r.zscores[y != c, c], 1 - tau) for c in range(3)])


def test_large_and_small_blocks_agree_with_the_equations() -> None:
    rng = np.random.default_rng(7)
    for n, classes in ((70_000, 3), (9_000, 11)):
        Q, y, U = rng.dirichlet(np.ones(classes), n), rng.choice(classes, n), rng.random((n, classes))
        for labels in (y, np.sort(y)):
            r = reallocate(np.asfortranarray(Q), labels, 0.05, U)
            table = np.stack([Q[labels == c].mean(axis=0) for c in range(classes)])
            spread = np.stack([Q[labels == c].std(axis=0, ddof=1) for c in range(classes)])
            z = (Q - table[labels]) / spread[labels]
            close(r.zscores, z, 1e-8)
            close(r.thresholds, np.quantile(z, 0.95, axis=0), 1e-8)
            rho = np.maximum(np.tanh(r.zscores - r.thresholds) * r.prior_weight[labels], 0)
            close(r.rho, rho, 1e-12)
            expected = np.where((rho > U).any(axis=1), rho.argmax(axis=1), labels)
            np.testing.assert_array_equal(r.labels, expected)
            close(r.strength, np.where((rho > U).any(axis=1), rho.max(axis=1), 0), 1e-12)


# --- kinds, faults, budget -------------------------------------------------------------------------------------------


def problem(n: int, classes: int, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(seed)
    shares = 0.01 ** (np.arange(classes) / (classes - 1))
    return rng.random((n, classes)), np.sort(rng.choice(classes, n, p=shares / shares.sum())), rng.random((n, classes))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_in_tensors_out(dtype: torch.dtype) -> None:
    Q, y, U = problem(200, 6)
    posterior = torch.tensor(Q, dtype=dtype, requires_grad=True)
    r = reallocate(posterior, torch.tensor(y, dtype=torch.int32), 0.1, U)
    n = reallocate(posterior.detach().numpy(), y, 0.1, U)
    assert isinstance(r.labels, torch.Tensor)
    assert (r.labels.dtype, r.rho.dtype, r.zscores.dtype) == (torch.int32, dtype, dtype)
    assert not r.rho.requires_grad
    np.testing.assert_array_equal(r.labels.numpy(), n.labels)
    np.testing.assert_array_equal(r.changed.numpy(), n.changed)
    np.testing.assert_array_equal(r.flow().numpy(), n.flow())
    close(r.rho, n.rho, 1e-6)
    close(r.strength, n.strength, 1e-6)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_stays_on_its_device_and_gives_the_labels_of_numpy() -> None:
    for n, classes in ((1, 3), (50, 10), (5_000, 100)):
        Q, y, U = problem(n, classes)
        for preset in ("paper", "author"):
            options = RelabelOptions.preset(preset)
            r = reallocate(torch.tensor(Q).cuda(), torch.tensor(y), 0.05, U, options)
            assert r.labels.is_cuda
            assert r.rho.is_cuda
            np.testing.assert_array_equal(r.labels.cpu().numpy(), reallocate(Q, y, 0.05, U, options).labels)


def test_inputs_stay_as_they_were_and_results_do_not_alias_them() -> None:
    Q, y, U = problem(80, 5)
    before = Q.copy(), y.copy(), U.copy()
    r = reallocate(Q, y, 0.2, U)
    for array, copy in zip((Q, y, U), before, strict=True):
        np.testing.assert_array_equal(array, copy)
    changed = r.changed.copy()
    assert changed.any()
    y[:] = r.labels
    np.testing.assert_array_equal(r.changed, changed)


def test_no_samples_give_an_empty_result() -> None:
    for posterior in (np.zeros((0, 4)), torch.zeros(0, 4)):
        r = reallocate(posterior, [], 0.05, posterior)
        assert (len(r.labels), tuple(r.rho.shape), tuple(r.thresholds.shape)) == (0, (0, 4), (4,))
        assert int(r.flow().sum()) == 0


def test_without_diagnostics_rho_is_refused() -> None:
    Q, y, U = problem(30, 4)
    r = reallocate(Q, y, 0.1, U, diagnostics=False)
    with pytest.raises(ConfigError, match="diagnostics=True"):
        _ = r.rho


def test_every_fault_of_the_arguments_is_named_at_once() -> None:
    Q, y, U = problem(30, 4)
    with pytest.raises(ConfigError) as caught:
        reallocate(Q, y[:-1].astype(float), 5, U[:, :3])
    assert len(caught.value.faults) == 4
    for word in ("tau = 5", "did you mean 0.05", "labels have shape", "labels are of type", "uniforms have shape"):
        assert word in str(caught.value)
    Q[3, 1], y[0], U[0, 0] = np.nan, 4, 1.5
    with pytest.raises(ConfigError) as caught:
        reallocate(torch.tensor(Q), y, 0.05, U)
    assert len(caught.value.faults) == 3
    for word in ("posterior holds values that are not finite", "first in row 3", "labels reach from 0 to 4", "1.5"):
        assert word in str(caught.value)


@pytest.mark.parametrize("tau", [-0.1, float("nan"), True, "0.05"])
def test_tau_that_is_no_fraction_is_refused(tau: Any) -> None:
    Q, y, U = problem(10, 3)
    with pytest.raises(ConfigError, match="tau"):
        reallocate(Q, y, tau, U)


def test_a_posterior_must_be_a_matrix() -> None:
    with pytest.raises(ConfigError, match="one column per class"):
        reallocate(np.zeros(3), np.zeros(3, dtype=int), 0.05, np.zeros(3))


def test_wrong_options_are_named_at_once_with_the_nearest_choice() -> None:
    with pytest.raises(ConfigError) as caught:
        RelabelOptions(pick="al", std_ddof=2, sigma_floor=-1, quantile="ordr")  # type: ignore[arg-type]
    assert len(caught.value.faults) == 4
    assert "did you mean all?" in str(caught.value)
    assert "did you mean order?" in str(caught.value)
    with pytest.raises(ConfigError, match="no threshold"):
        RelabelOptions(score="none", constant_threshold=1.0)
    with pytest.raises(ConfigError, match="paper, author"):
        RelabelOptions.preset("authors")


@pytest.mark.parametrize("preset", ["paper", "author"])
def test_presets_are_those_of_the_configuration(preset: Any) -> None:
    assert RelabelOptions.of(RelabelConfig(preset=preset)) == RelabelOptions.preset(preset)


def test_time_and_memory_of_a_large_client() -> None:
    Q, y, U = problem(100_000, 100)
    started = time.perf_counter()
    reallocate(Q, y, 0.05, U)
    assert time.perf_counter() - started < 5
    for diagnostics, copies in ((True, 1.5), (False, 0.5)):
        tracemalloc.start()
        r = reallocate(Q, y, 0.05, U, diagnostics=diagnostics)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < copies * Q.nbytes
        assert r.changed.any()


def test_time_of_many_small_clients() -> None:
    Q, y, U = problem(300, 100)
    started = time.perf_counter()
    for _ in range(50):
        reallocate(Q, y, 0.05, U)
    assert time.perf_counter() - started < 2.5


def test_a_draw_equal_to_rho_is_not_a_success() -> None:
    rng = np.random.default_rng(5)
    posterior, labels = rng.dirichlet(np.ones(4), 60), np.repeat([0, 1, 2, 3], [30, 16, 9, 5])
    rho = reallocate(posterior, labels, 0.3, np.ones((60, 4)) * 0.999).rho
    assert (rho > 0).sum() > 10
    exactly = np.where(rho > 0, rho, 0.5)
    assert not reallocate(posterior, labels, 0.3, exactly).changed.any()
    below = np.where(rho > 0, np.nextafter(rho, 0), 0.5)
    assert reallocate(posterior, labels, 0.3, below).changed.sum() == (rho > 0).any(axis=1).sum()


def test_ties_that_only_rounding_breaks_go_to_the_lowest_class_in_both_engines() -> None:
    ties = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(3, 9))
        posterior, labels = rng.dirichlet(np.ones(10), n), rng.integers(0, 10, n)
        uniforms = rng.random((n, 10)) * 0.2
        ours = reallocate(posterior, labels, 0.05, uniforms)
        torchs = torch_engine.reallocate(
            torch.from_numpy(posterior),
            torch.from_numpy(labels),
            0.05,
            torch.from_numpy(uniforms),
            RelabelOptions(),
            False,
        )
        assert np.array_equal(ours.labels, torchs.labels.numpy()), seed
        for row in np.flatnonzero(ours.changed):
            near = np.flatnonzero(np.isclose(ours.rho[row], ours.rho[row].max(), rtol=1e-11, atol=0))
            ties += len(near) > 1
            assert ours.labels[row] == near[0], (seed, row)
    assert ties > 5


def test_options_of_another_kind_are_refused() -> None:
    for options in (None, {}, "paper"):
        with pytest.raises(ConfigError, match="RelabelOptions"):
            reallocate(np.ones((2, 2)), [0, 1], 0.1, np.ones((2, 2)), options)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="complex"):
        reallocate(np.ones((2, 2), dtype=complex), [0, 1], 0.1, np.ones((2, 2)))
