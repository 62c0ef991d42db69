"""Test sets balanced by resampling: every class counts alike, halves share no row, and reports say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedrela_bench.config import TrialConfig, parse
from fedrela_bench.data import FederatedDataset, load_dataset
from fedrela_bench.defaults import resolve
from tests.data.makers import config, visits, write_text

unhurried = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def natural(source: str, clients: int | str = "auto", **data: Any) -> TrialConfig:
    values = {"source": source, "profile": "natural", "partition": "natural", **data}
    return parse({"data": values, "federation": {"clients": clients}})


def unbalanced(**changes: Any) -> FederatedDataset:
    values: dict[str, Any] = {
        "name": "x",
        "train_images": np.zeros((3, 1, 1, 1), np.uint8),
        "subset": np.arange(3),
        "labels": np.arange(3),
        "clients": (np.arange(3),),
        "test_images": np.zeros((17, 1, 1, 1), np.uint8),
        "test_labels": np.repeat([0, 1, 2], [10, 5, 2]),
        "class_names": ("a", "b", "c"),
        "normalization": None,
        "augment": "none",
        "minority": (),
        "notes": (),
        "digest": "",
        "balanced_test": True,
    }
    return FederatedDataset(**{**values, **changes})


def test_resampling_counts_every_class_alike_and_every_row_nearly() -> None:
    dataset = unbalanced()
    rows = dataset.test_rows()
    labels = dataset.test_labels[rows]
    assert np.bincount(labels).tolist() == [10, 10, 10]
    times = np.bincount(rows, minlength=17)
    assert times.tolist() == [1] * 10 + [2] * 5 + [5] * 2
    np.testing.assert_array_equal(rows, unbalanced().test_rows())
    plain = unbalanced(balanced_test=False)
    np.testing.assert_array_equal(plain.test_rows(), np.arange(17))


def test_halves_of_a_balanced_test_set_share_no_row() -> None:
    dataset = unbalanced()
    selection, report = dataset.test_slices()
    assert not set(selection) & set(report)
    assert set(selection) | set(report) == set(range(17))
    for half in (selection, report):
        counts = np.bincount(dataset.test_labels[half])
        assert len(set(counts.tolist())) == 1
    plain = unbalanced(balanced_test=False).test_slices()
    assert [sorted(set(half)) for half in (selection, report)] == [half.tolist() for half in plain]


@unhurried
@given(st.lists(st.integers(1, 9), min_size=2, max_size=5))
def test_resampled_accuracy_is_the_mean_over_classes(counts: list[int]) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    dataset = unbalanced(test_labels=labels, class_names=tuple(map(str, counts)))
    rows = dataset.test_rows()
    times = np.bincount(rows, minlength=len(labels))
    for c in range(len(counts)):
        mine = times[labels == c]
        assert mine.sum() == max(counts)
        assert mine.max() - mine.min() <= 1


def test_a_class_with_a_single_test_row_is_noted(tmp_path: Path) -> None:
    columns = visits(20)
    columns["label"][0], columns["label"][1] = "rare", "rare"
    dataset = load_dataset(natural(f"table:{write_text(tmp_path / 't.csv', columns)}"))
    assert any(note.startswith("a single test row of class") and "rare" in note for note in dataset.notes)
    selection, _ = dataset.test_slices()
    assert dataset.class_names.index("rare") not in dataset.test_labels[selection]


def test_columns_may_be_named_like_numbers(tmp_path: Path) -> None:
    path = write_text(tmp_path / "t.csv", {"2020": [1.0, 2.0] * 6, "x": [0.5] * 12, "2021": [0, 1, 2] * 4})
    overrides = {"data.label_column": 2021, "data.drop_columns": 2020}
    dataset = load_dataset(resolve(f"table:{path}", overrides=overrides).config)
    assert dataset.features == ("x (number)",)


def test_a_balanced_test_set_is_stated_and_belongs_to_the_digest(tmp_path: Path) -> None:
    source = f"table:{write_text(tmp_path / 't.csv', visits(61))}"
    plain, balanced = (load_dataset(natural(source, balanced_test=on)) for on in (False, True))
    assert plain.digest != balanced.digest
    assert balanced.stated[-1] == (
        "the server's test set is balanced by resampling: rows of smaller classes are repeated until each class counts "
        "as much as the largest (4 to 4 rows a class before)"
    )
    assert set(balanced.stated) <= set(balanced.notes)
    assert load_dataset(config("digits", balanced_test=True)).balanced_test
