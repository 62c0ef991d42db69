"""Every worked example has a test; here are those of the data protocol that algorithms are compared under."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedrela_bench.data.longtail import longtail_counts, minority_classes, step_counts
from fedrela_bench.data.partition import dirichlet_partition
from fedrela_bench.simulation import shot_groups
from fedrela_bench.simulation.metrics import truncated_test_counts
from tests.algorithms.examples import Golden, worked_example

TESTS = Path(__file__).resolve().parents[1]
LARGEST = {"cifar10": 5000, "cifar100": 500, "fmnist": 6000}


def test_no_worked_example_is_left_unread(golden: Golden) -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py"))
    examples = json.loads(golden("algorithm_examples.json").read_text())["examples"]
    assert [name for name in examples if f'"{name}"' not in sources] == []


def test_long_tailed_counts_and_groups(golden: Golden) -> None:
    expected = worked_example(golden, "longtail_counts_and_splits")["expected"]
    assert len(expected) == 6
    for name, case in expected.items():
        source, factor = name.split("_IF")
        counts = longtail_counts(LARGEST[source], 100 if source == "cifar100" else 10, float(factor))
        assert counts.tolist() == case["counts"] and counts.sum() == case["total"]
        groups = shot_groups(counts)
        assert groups == {part: case[part] for part in ("head", "medium", "tail")}
        assert [len(ids) for ids in groups.values()] == case["sizes"]


def test_step_counts(golden: Golden) -> None:
    expected = worked_example(golden, "step_counts")["expected"]
    assert len(expected) == 18
    for name, case in expected.items():
        source, share, ratio = name.split("_")
        classes, fraction = 100 if source == "cifar100" else 10, int(share.removesuffix("pct")) / 100
        counts = step_counts(LARGEST[source], classes, float(ratio.removeprefix("IR")), "even", fraction)
        minority = list(minority_classes(classes, "even", fraction))
        first_last_and_number = [minority[0], minority[-1], len(minority)]
        assert case["minority_even"] == (first_last_and_number if classes == 100 else minority)
        assert set(counts[minority]) == {case["minority_count"]}
        assert (counts.max(), counts.sum()) == (case["majority_count"], case["total"])


@pytest.fixture
def dealt(golden: Golden) -> np.ndarray:
    """(K, C) samples of each class on each client of the worked partition."""
    example = worked_example(golden, "dirichlet_partition_author_compat")
    inputs, expected = example["inputs"], example["expected"]
    labels = np.repeat(np.arange(len(inputs["class_counts"])), inputs["class_counts"])
    clients = dirichlet_partition(labels, inputs["K"], inputs["alpha"], inputs["seed"])
    assert [rows.tolist() for rows in clients] == expected["client_indices"]
    matrix = np.array([np.bincount(labels[rows], minlength=len(inputs["class_counts"])) for rows in clients])
    assert matrix.tolist() == expected["counts"]
    return matrix


def test_the_released_partition_and_what_truncation_leaves_of_it(
    golden: Golden, dealt: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = worked_example(golden, "fedloge_truncated_test_counts")
    assert example["inputs"]["client_class_counts"] == dealt.tolist()
    monkeypatch.setattr("fedrela_bench.simulation.metrics.TEST_SIZE", example["inputs"]["n_test"])
    assert truncated_test_counts(dealt, capped=False).tolist() == example["expected"]["summed"]
