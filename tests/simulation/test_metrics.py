"""Groups, confusion and accuracies against golden splits and worked examples."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrela_bench.data.longtail import longtail_counts
from fedrela_bench.data.partition import dirichlet_partition
from fedrela_bench.errors import ConfigError
from fedrela_bench.simulation import RoundResult, shot_groups
from fedrela_bench.simulation.metrics import accuracies, confusion_matrix, step_groups, truncated_test_counts


def _medium(split: dict[str, list[int]]) -> dict[str, list[int]]:
    return {"medium" if name == "middle" else name: ids for name, ids in split.items()}


def test_splits_match_the_golden_ones(golden: Callable[[str], Path]) -> None:
    figures = json.loads(golden("longtail.json").read_text())
    for case in figures["splits"]:
        assert shot_groups(case["counts"]) == _medium(case["split"]), case["name"]
    for case in figures["counts"]:
        assert shot_groups(case["counts"]) == _medium(case["split_train_counts"])


def test_edge_cases_of_the_split(golden: Callable[[str], Path]) -> None:
    case = json.loads(golden("algorithm_examples.json").read_text())["examples"]["shot_split_edge_cases"]
    for counts, expected in zip(case["inputs"]["counts"], case["expected"]["splits"], strict=True):
        assert shot_groups(counts) == expected


def test_capped_test_distribution_is_the_authors(golden: Callable[[str], Path]) -> None:
    cases = json.loads(golden("longtail.json").read_text())["test_distribution"]
    for case in cases:
        labels = np.repeat(np.arange(case["C"]), case["train_counts"])
        clients = dirichlet_partition(labels, case["K"], case["alpha"], case["seed"])
        matrix = np.array([np.bincount(labels[rows], minlength=case["C"]) for rows in clients])
        assert truncated_test_counts(matrix, capped=True).tolist() == case["global_test_distribution"]
        assert shot_groups(matrix, "fedloge_trunc_capped") == _medium(case["split_on_test_distribution"])


def test_uncapped_split_sizes_are_those_of_table_2(golden: Callable[[str], Path]) -> None:
    example = json.loads(golden("algorithm_examples.json").read_text())["examples"]
    for name, sizes in example["fedloge_truncated_split_sizes_cifar100_K10"]["expected"].items():
        factor, alpha, seed = (float(part) for part in re.findall(r"[\d.]+", name))
        labels = np.repeat(np.arange(100), longtail_counts(500, 100, factor))
        clients = dirichlet_partition(labels, 10, alpha, int(seed))
        matrix = np.array([np.bincount(labels[rows], minlength=100) for rows in clients])
        groups = shot_groups(matrix, "fedloge_trunc")
        assert [len(groups[part]) for part in ("head", "medium", "tail")] == sizes, name


@given(st.lists(st.integers(0, 500), min_size=1, max_size=40).filter(any))
def test_groups_partition_the_classes_and_head_holds_three_quarters(counts: list[int]) -> None:
    groups = shot_groups(counts)
    assert sorted(c for ids in groups.values() for c in ids) == list(range(len(counts)))
    assert sum(counts[c] for c in groups["head"]) >= 0.75 * sum(counts) - 1e-9


@pytest.mark.parametrize("counts", [[0, 0], [[1, 2], [3, 4]]])
def test_unusable_counts_are_refused(counts: list[int]) -> None:
    with pytest.raises(ConfigError, match="at least one sample"):
        shot_groups(counts)


def test_unknown_rule_names_the_valid_ones() -> None:
    with pytest.raises(ConfigError, match="fedloge_trunc_capped"):
        shot_groups([[1, 2]], "trunc")


def test_group_accuracies_of_the_worked_example(golden: Callable[[str], Path]) -> None:
    case = json.loads(golden("algorithm_examples.json").read_text())["examples"]["group_metrics"]
    per_class = np.rint(np.array(case["inputs"]["per_class_acc"]) * 1000).astype(int)
    confusion = np.diag(per_class) + np.roll(np.diag(1000 - per_class), 1, axis=1)
    groups = shot_groups(longtail_counts(5000, 10, 100))
    values = accuracies(confusion, groups)
    for name, expected in case["expected"].items():
        assert values[name] == pytest.approx(expected, abs=case["tolerance"])


def test_absent_groups_are_absent_not_zero() -> None:
    assert "tail" not in accuracies(np.eye(10, dtype=int), shot_groups([5] * 10))


def test_step_groups_and_confusion() -> None:
    assert step_groups([0, 2], 4) == {"majority": [1, 3], "minority": [0, 2]}
    assert confusion_matrix(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist() == [[1, 1], [0, 1]]


def test_results_survive_json() -> None:
    result = RoundResult(
        round=3,
        status="ok",
        metrics={"test/overall": 0.5},
        confusion={"test": np.eye(2, dtype=np.int64)},
        flow=np.ones((2, 2), dtype=np.int64),
        relabelled={"position": np.array([4]), "rho": np.array([0.25])},
        seconds=1.5,
        participants=(0, 2),
    )
    back = RoundResult.from_json(json.loads(json.dumps(result.to_json())))
    assert back.to_json() == result.to_json()
