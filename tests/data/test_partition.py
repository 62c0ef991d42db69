"""Partitions and the rules for small clients."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrela_bench.data.clients import empty_client_note, settle_small_clients
from fedrela_bench.data.partition import dirichlet_partition, iid_partition
from fedrela_bench.errors import ConfigError, DataError


def golden_labels(rule: dict[str, object]) -> np.ndarray:
    if "counts" in rule:
        counts = rule["counts"]
        assert isinstance(counts, list)
        return np.repeat(np.arange(len(counts)), counts)
    return np.arange(3000) % 10


def assert_partition(parts: Sequence[np.ndarray], clients: int, n: int) -> None:
    assert len(parts) == clients
    assert all((np.diff(part) > 0).all() for part in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))


def test_golden_matrices(golden: Callable[[str], Path]) -> None:
    content = json.loads(golden("dirichlet.json").read_text())
    assert len(content["cases"]) >= 64
    for case in content["cases"]:
        labels = golden_labels(content["labels"][case["labels"]])
        parts = dirichlet_partition(labels, clients=case["K"], alpha=case["alpha"], seed=case["seed"])
        matrix = [np.bincount(labels[part], minlength=case["C"]).tolist() for part in parts]
        assert matrix == case["matrix"]
        empty = case["empty_clients"]
        found = [k for k, part in enumerate(parts) if not len(part)]
        assert found == empty if isinstance(empty, list) else len(found) == empty


def test_golden_indices(golden: Callable[[str], Path]) -> None:
    cases = json.loads(golden("dirichlet.json").read_text())["small"]
    assert cases
    for case in cases:
        parts = dirichlet_partition(np.array(case["y"]), case["K"], case["alpha"], case["seed"], case["C"])
        assert [part.tolist() for part in parts] == case["indices"]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, 6), max_size=120),
    st.integers(1, 150),
    st.floats(0.05, 1000),
    st.integers(0, 2**32 - 1),
)
def test_dirichlet_is_disjoint_complete_and_seeded(labels: list[int], clients: int, alpha: float, seed: int) -> None:
    values = np.array(labels, dtype=np.int64)
    parts = dirichlet_partition(values, clients, alpha, seed)
    assert_partition(parts, clients, len(labels))
    again = dirichlet_partition(values, clients, alpha, seed)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


@given(st.integers(0, 200), st.integers(1, 250), st.integers(0, 10**12))
def test_iid_is_disjoint_complete_even_and_seeded(n: int, clients: int, seed: int) -> None:
    parts = iid_partition(np.zeros(n, dtype=np.int64), clients, seed)
    assert_partition(parts, clients, n)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    again = iid_partition(np.zeros(n, dtype=np.int64), clients, seed)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


def test_absent_highest_class_still_advances_the_stream() -> None:
    labels = np.repeat([0, 1], 50)
    with_absent = dirichlet_partition(labels, 4, 0.5, 3, num_classes=3)
    without = dirichlet_partition(labels, 4, 0.5, 3)
    assert any(not np.array_equal(a, b) for a, b in zip(with_absent, without, strict=True))


def test_global_generator_is_left_alone() -> None:
    before = np.random.get_state()[1].copy()  # type: ignore[index]
    dirichlet_partition(np.repeat([0, 1], 50), 4, 0.5, 3)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # type: ignore[index]


@pytest.mark.parametrize(
    ("clients", "alpha", "seed", "words"),
    [
        (10, 1e-300, 1, ["data.alpha = 1e-300", "raise data.alpha"]),
        (10, 1e-5, 1, ["raise data.alpha"]),
        (10, 1e308, 1, ["data.partition: iid"]),
        (10, 0.0, 1, ["positive"]),
        (10, float("nan"), 1, ["positive"]),
        (0, 0.3, 1, ["federation.clients = 0"]),
        (3, 0.3, 2**32, ["data.partition_seed"]),
        (0, 0.3, -1, ["federation.clients = 0", "partition seed -1"]),
    ],
)
def test_impossible_dirichlet(clients: int, alpha: float, seed: int, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        dirichlet_partition(np.repeat(np.arange(10), 20), clients, alpha, seed)
    assert all(word in str(caught.value) for word in words)


def skewed() -> list[np.ndarray]:
    """Sizes 0, 2, 30, 8 of 40 samples, not in order."""
    order = np.random.default_rng(0).permutation(40)
    return [np.sort(part) for part in np.split(order, [0, 2, 32])]


def test_small_client_error_has_the_numbers() -> None:
    with pytest.raises(DataError) as caught:
        settle_small_clients(skewed(), 5, "error", 1, "cifar100_lt dealt with alpha = 0.1")
    message = str(caught.value)
    for words in ("= 5 with 4 clients", "cifar100_lt dealt with alpha = 0.1 has 40 images", "2 clients below", "0, 1"):
        assert words in message
    assert "Raise data.alpha" in message
    assert "pad or skip" in message


def test_skip_empties_and_lists() -> None:
    parts, notes = settle_small_clients(skewed(), 5, "skip", 1)
    assert [len(part) for part in parts] == [0, 0, 30, 8]
    assert notes == ["2 clients below 5 images are skipped (2 images unused): 0, 1"]
    assert empty_client_note(parts) == ["2 of 4 clients hold no images and never train: 0, 1"]
    with pytest.raises(DataError, match="leaves nobody"):
        settle_small_clients(skewed(), 31, "skip", 1)


def test_pad_takes_from_the_largest() -> None:
    before = skewed()
    parts, notes = settle_small_clients(before, 9, "pad", 1)
    assert_partition(parts, 4, 40)
    assert [len(part) for part in parts] == [9, 9, 13, 9]
    assert set(before[1].tolist()) < set(parts[1].tolist())
    assert notes == ["3 clients were filled up to 9 images (17 moved from the largest): 0, 1, 3"]


def test_pad_impossible() -> None:
    with pytest.raises(ConfigError, match="4 clients x 11 is 44 images") as caught:
        settle_small_clients(skewed(), 11, "pad", 1)
    assert "Lower data.min_client_samples" in str(caught.value)


def test_enough_everywhere_changes_nothing() -> None:
    for rule in ("error", "skip", "pad"):
        parts, notes = settle_small_clients(skewed(), 0, rule, 1)
        assert notes == []
        assert all(np.array_equal(a, b) for a, b in zip(parts, skewed(), strict=True))


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 40), st.integers(0, 300), st.integers(0, 12), st.integers(0, 99), st.sampled_from([0.05, 0.3, 5.0])
)
def test_pad_always_ends_disjoint_complete_seeded(clients: int, n: int, minimum: int, seed: int, alpha: float) -> None:
    labels = np.sort(np.random.default_rng(seed).integers(0, 5, n))
    parts = dirichlet_partition(labels, clients, alpha, seed)
    if clients * minimum > n:
        with pytest.raises(ConfigError):
            settle_small_clients(parts, minimum, "pad", seed)
        return
    padded, _ = settle_small_clients(parts, minimum, "pad", seed)
    assert_partition(padded, clients, n)
    assert min(len(part) for part in padded) >= minimum
    again, _ = settle_small_clients(parts, minimum, "pad", seed)
    assert all(np.array_equal(a, b) for a, b in zip(padded, again, strict=True))


def test_long_lists_are_cut() -> None:
    note = empty_client_note([np.empty(0, dtype=np.int64)] * 100)[0]
    assert note.endswith("38, 39 and 60 more")
