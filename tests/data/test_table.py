"""Tables: CSV and Parquet, standardised by the training rows that are kept."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedrela_bench.data import load_dataset
from fedrela_bench.data.sources.sheet import read_sheet
from tests.data.makers import config, visits, write_text
from tests.data.tables import read, refusal, table, trial

# what is read --------------------------------------------------------------------------------------------------------


def test_numbers_and_categories_are_standardised_by_the_rows_that_are_kept(tmp_path: Path) -> None:
    columns = visits(90)
    dataset = load_dataset(config(f"table:{write_text(tmp_path / 't.csv', columns)}", imbalance_factor=6))
    assert dataset.class_counts.tolist() == [24, 9, 4]
    assert (dataset.name, dataset.input_shape) == ("table_t_lt", (1, 1, 4))
    assert dataset.class_names == ("cold", "flu", "none")
    assert (dataset.is_table, dataset.train_images.dtype, dataset.normalization) == (True, np.float32, None)
    assert dataset.features == ("age (number)", "kind (3 categories)")
    kept = np.asarray(dataset.train_images[dataset.subset, 0, :, 0], dtype=np.float64)
    np.testing.assert_allclose([kept[:, 0].mean(), kept[:, 0].std()], [0, 1], atol=1e-6)
    np.testing.assert_array_equal(kept[:, 1:].sum(axis=1), 1)
    # The same numbers again by hand, of the rows that the split and the profile leave.
    raw = read(tmp_path / "t.csv")
    ages = raw.train_images[:, 0, 0, 0]
    mean, std = ages[dataset.subset].mean(), ages[dataset.subset].std()
    np.testing.assert_allclose(dataset.test_images[:, 0, 0, 0], (raw.test_images[:, 0, 0, 0] - mean) / std, rtol=1e-5)


def test_the_test_split_is_stratified_and_has_its_own_seed(tmp_path: Path) -> None:
    path = write_text(tmp_path / "t.csv", visits(61))
    first = read(path)
    counts = np.bincount(first.train_labels), np.bincount(first.test_labels)
    assert [part.tolist() for part in counts] == [[17, 16, 16], [4, 4, 4]]
    assert first.stated == (
        "the source has no test split: 12 of 61 rows, 0.2 of each class, were set aside to test (data.test_seed = 0)",
    )
    other = read(path, test_seed=1)
    assert not np.array_equal(first.test_images, other.test_images)
    assert np.bincount(read(path, test_fraction=0.5).test_labels).tolist() == [10, 10, 10]
    digests = [load_dataset(trial(path, test_seed=seed, partition_seed=1)).digest for seed in (0, 1)]
    assert len(set(digests)) == 2
    # The run's seed deals rows to clients and does not touch the split.
    by_seed = [load_dataset(trial(path, seed=seed, partition_seed=1)).digest for seed in (1, 2)]
    assert by_seed == [digests[0]] * 2


def test_train_and_test_files_and_a_split_column_say_the_same(tmp_path: Path) -> None:
    train, test = visits(30), visits(12, start=1)
    folder = tmp_path / "both"
    folder.mkdir()
    for name, columns in (("train-2", {n: v[20:] for n, v in train.items()}), ("test", test)):
        write_text(folder / f"{name}.csv", columns)
    write_text(folder / "train-1.csv", {n: v[:20] for n, v in train.items()})
    (folder / "notes.csv").write_text("x\n1\n")
    joined = {name: train[name] + test[name] + train[name][:3] for name in train}
    joined["split"] = ["train"] * 30 + ["Test"] * 12 + ["val"] * 3
    by_files, by_column = read(folder), read(write_text(tmp_path / "t.csv", joined))
    for name in ("train_images", "train_labels", "test_images", "test_labels"):
        np.testing.assert_array_equal(getattr(by_files, name), getattr(by_column, name))
    assert by_files.stated == ("files that are neither train* nor test* are left out: notes.csv",)
    assert by_column.stated == ("the 3 validation rows are left out, of training and of test",)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("head", ["", "\ufeff"])
def test_separators_and_byte_order_marks(tmp_path: Path, separator: str, head: str) -> None:
    plain = read(write_text(tmp_path / "plain.csv", visits()))
    path = write_text(tmp_path / "t.tsv", visits(), separator)
    path.write_text(head + path.read_text(encoding="utf-8"), encoding="utf-8", newline="\r\n")
    np.testing.assert_array_equal(read(path).train_images, plain.train_images)


def test_decimal_commas_beside_semicolons(tmp_path: Path) -> None:
    columns = {"x": ["1,5", "-2,25", "3", "0,5"], "label": [0, 1, 0, 1]}
    values = np.sort(read(write_text(tmp_path / "t.csv", columns, ";"), test_fraction=0.5).train_images.ravel())
    assert set(values) <= {1.5, -2.25, 3.0, 0.5}


def test_parquet_has_the_same_bits_as_csv(tmp_path: Path) -> None:
    columns = visits()
    as_text = load_dataset(trial(write_text(tmp_path / "t.csv", columns)))
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    as_columns = load_dataset(trial(tmp_path / "t.parquet"))
    assert as_columns.digest == as_text.digest


def test_parquet_types_and_embeddings(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(12, 5)).astype(np.float32)
    columns = {
        "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 5),
        "flag": [True, False] * 6,
        "code": [1, 2, 3, 4] * 3,
        "word": pa.array(["u", "v"] * 6).dictionary_encode(),
        "target": [1.0, 2.0, 7.0] * 4,
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    raw = read(tmp_path / "t.parquet", categorical_columns=("code",))
    assert raw.class_names == ("1", "2", "7")
    texts = [column.text() for column in raw.columns]
    assert texts == [
        *(f"v.{i} (number)" for i in range(5)),
        "flag (number)",
        "code (4 categories)",
        "word (2 categories)",
    ]
    both = np.concatenate([raw.train_images, raw.test_images])[:, 0, :5, 0]
    np.testing.assert_array_equal(np.sort(both, axis=0), np.sort(vectors.astype(np.float64), axis=0))


def test_category_order_is_that_of_the_sorted_training_categories(tmp_path: Path) -> None:
    columns = {"code": [10, 9, 2] * 4, "split": ["train"] * 9 + ["test"] * 3, "label": [0, 1, 1] * 4}
    columns["code"][-1] = 77
    path = write_text(tmp_path / "t.csv", columns)
    dataset = load_dataset(trial(path, categorical_columns=["code"]))
    assert dataset.train_images[:3, 0, :, 0].tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]
    # 77 is in no training row: none of the three.
    assert dataset.test_images[2, 0, :, 0].tolist() == [0, 0, 0]
    assert dataset.stated == ("test rows with categories that no training row has, which are left out: code: 1",)


def test_missing_values_are_filled_only_on_request(tmp_path: Path) -> None:
    columns = {"x": [1.0, 3.0, "", 5.0], "k": ["a", "b", "NA", "a"], "label": [0, 1, 0, 1]}
    columns |= {"split": ["train", "train", "train", "train"]}
    for name in columns:
        columns[name] = columns[name] + columns[name]  # type: ignore[operator]
    columns["split"][4:] = ["test"] * 4  # type: ignore[index]
    path = write_text(tmp_path / "t.csv", columns)
    message = refusal(path)
    assert "column x lacks 2 values (first: row 4)" in message
    assert "column k lacks 2 values" in message
    assert "data.impute" in message
    dataset = load_dataset(trial(path, impute="mean"))
    filled = dataset.train_images[2, 0, :, 0]
    assert filled.tolist() == [0, 0, 0]
    std = np.std([1, 3, 5])
    np.testing.assert_allclose(dataset.train_images[:, 0, 0, 0], [-2 / std, 0, 0, 2 / std], rtol=1e-6)
    assert "missing values were filled with the training mean" in dataset.stated[0]
    assert "x: 2, k: 2" in dataset.stated[0]


def test_constant_columns_are_zero_and_noted(tmp_path: Path) -> None:
    columns = visits()
    columns["same"], columns["word"] = [0.1] * 60, ["x"] * 60
    dataset = load_dataset(trial(write_text(tmp_path / "t.csv", columns)))
    assert not dataset.train_images[:, 0, 4, 0].any()
    assert any(note == "columns without any variation in the training rows: same, word" for note in dataset.notes)


def test_rows_are_cached_and_mapped_and_follow_the_kept_rows(tmp_path: Path, cache: Path) -> None:
    source = write_text(tmp_path / "t.csv", visits())
    thinned: dict[str, Any] = {"profile": "lt", "imbalance_factor": 4}
    first = load_dataset(trial(source, **thinned))
    assert isinstance(first.train_images, np.memmap)
    entries = sorted(path.name for path in (cache / "arrays").glob("*/"))
    assert [name.split("-")[0] for name in entries] == ["rows", "table"]
    assert load_dataset(trial(source, **thinned)).digest == first.digest
    assert len(list((cache / "arrays").glob("*/"))) == 2
    # Another subset has other statistics.
    assert load_dataset(trial(source, subset_seed=1, **thinned)).digest != first.digest
    assert len(list((cache / "arrays").glob("*/"))) == 3
    blocked = tmp_path / "file"
    blocked.write_text("")
    uncached = load_dataset(trial(source, **thinned), None, blocked / "cache")
    assert uncached.digest == first.digest
    assert not isinstance(uncached.train_images, np.memmap)


def test_unicode_names_and_quoted_fields(tmp_path: Path) -> None:
    text = 'größe,"città, nome",класс\n' + "".join(
        f'{i},"a ""{i % 2}"",\n{i}",{("да", "нет")[i % 2]}\n' for i in range(8)
    )
    raw = read(table(tmp_path, text), label_column="класс")
    assert raw.class_names == ("да", "нет")
    assert [column.name for column in raw.columns] == ["größe", "città, nome"]


def test_client_and_dropped_columns_are_no_features(tmp_path: Path) -> None:
    path = write_text(tmp_path / "t.csv", {"id": list(range(60)), **visits()})
    assert [column.name for column in read(path, drop_columns=("id",)).columns] == ["age", "kind"]
    assert [column.name for column in read(path, client_column="kind").columns] == ["id", "age", "client"]


# properties ----------------------------------------------------------------------------------------------------------

SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
WORDS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=8).filter(
    lambda text: text == text.strip() and text not in ("NA", "N/A", "n/a", "NaN", "nan", "NULL", "null")
)


def test_quoted_names_may_hold_other_separators(tmp_path: Path) -> None:
    sheet = read_sheet(table(tmp_path, '"key";"c , ,"\n"k";"0"\n'))
    assert sheet.table.column_names == ["key", "c , ,"]


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(
    names=st.lists(WORDS.map(lambda text: f"c {text}"), min_size=1, max_size=4, unique=True),
    rows=st.integers(1, 12),
    separator=st.sampled_from([",", ";", "\t", "|"]),
    data=st.data(),
)
def test_csv_round_trip(tmp_path: Path, names: list[str], rows: int, separator: str, data: st.DataObject) -> None:
    columns = [data.draw(st.lists(WORDS, min_size=rows, max_size=rows)) for _ in names]
    out = io.StringIO()
    writer = csv.writer(out, delimiter=separator, quoting=csv.QUOTE_ALL)
    writer.writerow(["key", *names])
    writer.writerows([["k", *row] for row in zip(*columns, strict=True)])
    path = table(tmp_path, out.getvalue())
    sheet = read_sheet(path)
    assert sheet.table.column_names == ["key", *names]
    assert [sheet.table.column(name).to_pylist() for name in names] == columns
    assert sheet.rows.tolist() == list(range(2, rows + 2))


@settings(max_examples=25, deadline=None, suppress_health_check=SLOW)
@given(
    values=st.lists(st.floats(-1e9, 1e9, allow_nan=False), min_size=4, max_size=30),
    fraction=st.floats(0.05, 0.95),
)
def test_numbers_survive_text_bit_for_bit(tmp_path: Path, values: list[float], fraction: float) -> None:
    path = write_text(tmp_path / "t.csv", {"x": values, "label": [i % 2 for i in range(len(values))]})
    raw = read(path, test_fraction=fraction)
    both = np.concatenate([raw.train_images, raw.test_images]).ravel()
    np.testing.assert_array_equal(np.sort(both), np.sort(np.array(values)))
