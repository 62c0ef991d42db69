"""Class counts and the choice of images."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrela_bench.data.longtail import choose_subset, longtail_counts, minority_classes, step_counts
from fedrela_bench.errors import ConfigError


def test_golden_counts(golden: Callable[[str], Path]) -> None:
    cases = json.loads(golden("longtail.json").read_text())["counts"]
    assert len(cases) >= 13
    for case in cases:
        n_max, classes = case["total_balanced"] // case["C"], case["C"]
        if case["imb_type"] == "exp":
            counts = longtail_counts(n_max, classes, case["IF"])
        else:
            minority = range(classes // 2, classes)
            counts = step_counts(n_max, classes, case["IF"], tuple(minority))
            np.testing.assert_array_equal(counts, step_counts(n_max, classes, case["IF"], "last", 0.5))
        assert counts.tolist() == case["counts"]
        assert counts.sum() == case["sum"]


def test_golden_step_setting_of_the_paper(golden: Callable[[str], Path]) -> None:
    cases = json.loads(golden("longtail.json").read_text())["step_paper"]
    assert len(cases) >= 12
    for case in cases:
        n_max, fraction = case["total_balanced"] // case["C"], case["minority_percent"] / 100
        counts = step_counts(n_max, case["C"], case["IR"], "even", fraction)
        minority = minority_classes(case["C"], "even", fraction)
        assert len(minority) == case["n_minority_classes"]
        assert set(counts[list(minority)]) == {case["minority_count"]}
        assert counts.max() == case["majority_count"]
        assert counts.sum() == case["sum"]


@pytest.mark.parametrize(
    ("n_max", "classes", "factor", "total", "last"),
    [
        (5000, 10, 50, 13996, 100),
        (5000, 10, 100, 12406, 50),
        (500, 100, 100, 10847, 5),
        (500, 100, 50, 12608, 10),
        (6000, 10, 50, 16796, 120),
        (6000, 10, 100, 14886, 60),
    ],
)
def test_published_totals(n_max: int, classes: int, factor: float, total: int, last: int) -> None:
    counts = longtail_counts(n_max=n_max, num_classes=classes, imbalance_factor=factor)
    assert (counts.sum(), counts[0], counts[-1]) == (total, n_max, last)


def test_degenerate_counts() -> None:
    assert longtail_counts(7, 1, 100).tolist() == [7]
    assert longtail_counts(7, 4, 1).tolist() == [7] * 4
    assert longtail_counts(3, 3, 100).tolist() == [3, 0, 0]


@given(st.integers(1, 5000), st.integers(1, 200), st.floats(1, 1000))
def test_counts_fall(n_max: int, classes: int, factor: float) -> None:
    counts = longtail_counts(n_max, classes, factor)
    assert counts.shape == (classes,)
    assert counts[0] == n_max
    assert (np.diff(counts) <= 0).all()
    assert (counts >= 0).all()


@pytest.mark.parametrize(
    ("classes", "minority", "fraction", "expected"),
    [
        (10, "even", 0.1, (0,)),
        (10, "even", 0.3, (0, 2, 4)),
        (10, "even", 0.5, (0, 2, 4, 6, 8)),
        (10, "last", 0.3, (7, 8, 9)),
        (100, "last", 0.29, tuple(range(71, 100))),
        (10, (4, 0, 2), 0.1, (0, 2, 4)),
    ],
)
def test_minority(classes: int, minority: object, fraction: float, expected: tuple[int, ...]) -> None:
    assert minority_classes(classes, minority, fraction) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("minority", "fraction", "words"),
    [
        ((), 0.3, ["names no class"]),
        ((0, 0), 0.3, ["twice"]),
        ((0, 10), 0.3, ["[10] are not classes", "0 to 9"]),
        ((-1, 3, 3), 0.3, ["[-1] are not classes", "twice"]),
        (tuple(range(10)), 0.3, ["all 10 classes"]),
        ("even", 0.04, ["is 0", "1 to 9"]),
        ("even", 0.8, ["even offers 5", "last"]),
    ],
)
def test_impossible_minority(minority: object, fraction: float, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        minority_classes(10, minority, fraction)  # type: ignore[arg-type]
    assert all(word in str(caught.value) for word in words)


def test_all_faults_of_the_numbers_at_once() -> None:
    with pytest.raises(ConfigError, match="did you mean 100") as caught:
        longtail_counts(0, 0, 0.01)
    assert len(caught.value.faults) == 3


def test_subset_follows_the_common_generator() -> None:
    labels = np.random.default_rng(3).integers(0, 5, 400)
    counts = np.array([40, 30, 20, 10, 1])
    stream, expected = np.random.RandomState(7), []
    for c in range(5):
        rows = np.where(labels == c)[0]
        stream.shuffle(rows)
        expected.append(np.sort(rows[: counts[c]]))
    np.testing.assert_array_equal(choose_subset(labels, counts, 7), np.concatenate(expected))


@given(st.integers(0, 50), st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_subset_properties(extra: int, counts: list[int], seed: int) -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), np.array(counts) + extra))
    subset = choose_subset(labels, np.array(counts), seed)
    assert np.bincount(labels[subset], minlength=len(counts)).tolist() == counts
    assert (np.diff(labels[subset]) >= 0).all()
    assert all((np.diff(subset[labels[subset] == c]) > 0).all() for c in range(len(counts)))
    np.testing.assert_array_equal(subset, choose_subset(labels, np.array(counts), seed))


def test_smaller_counts_are_nested_and_seeds_differ() -> None:
    labels = np.repeat(np.arange(3), 100)
    small, large = (set(choose_subset(labels, np.full(3, n), 0).tolist()) for n in (10, 50))
    assert small < large
    assert small != set(choose_subset(labels, np.full(3, 10), 1).tolist())


def test_too_few_images() -> None:
    with pytest.raises(ConfigError, match=r"class 1 has 2 images, 3 are to be kept; lower data\.n_max"):
        choose_subset(np.array([0, 0, 0, 1, 1]), np.array([3, 3]), 0)
