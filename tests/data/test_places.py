"""Named sets in every layout, the order of places, and what a user reads when nothing is there."""

from __future__ import annotations

import gzip
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from fedrela_bench.data import load_dataset
from fedrela_bench.data.sources import download, places, read_source
from fedrela_bench.errors import DataError
from tests.data.makers import config, encode, pixels, write_cifar10, write_cifar100, write_fashion, write_parquet

TEN, HUNDRED = np.repeat(np.arange(10), 2), np.repeat(np.arange(100), 2)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("Network is unreachable")

    monkeypatch.setattr(download, "_download", refuse)


def fashion(folder: Path) -> Path:
    return write_fashion(folder, pixels(20, 28, 1)[..., 0], TEN, pixels(10, 28, 1, 1)[..., 0], np.arange(10))


def ten(folder: Path) -> Path:
    return write_cifar10(folder, pixels(20), TEN, pixels(10, start=1), np.arange(10))


def hundred(folder: Path) -> Path:
    return write_cifar100(folder, pixels(200), HUNDRED, pixels(100, start=1), np.arange(100))


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("folder", ["FashionMNIST/raw", ".", "raw", "fashion-mnist"])
def test_fashion_mnist_layouts(tmp_path: Path, folder: str) -> None:
    fashion(tmp_path / "data" / folder)
    raw = read_source("fashion_mnist", data_dir=tmp_path / "data")
    np.testing.assert_array_equal(raw.train_images, pixels(20, 28, 1))
    np.testing.assert_array_equal(raw.test_labels, np.arange(10))
    assert raw.class_names[9] == "Ankle boot"
    assert raw.notes == ()


@pytest.mark.usefixtures("offline")
def test_fashion_mnist_unzipped(tmp_path: Path) -> None:
    folder = fashion(tmp_path / "data")
    for path in folder.glob("*.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert read_source("fashion_mnist", data_dir=folder).train_images.shape == (20, 28, 28, 1)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("inside", [True, False])
def test_cifar_layouts(tmp_path: Path, inside: bool) -> None:
    for source, make, name, count in (
        ("cifar10", ten, "cifar-10-batches-py", 20),
        ("cifar100", hundred, "cifar-100-python", 200),
    ):
        root = make(tmp_path / source)
        raw = read_source(source, data_dir=root if inside else root / name)
        np.testing.assert_array_equal(raw.train_images, pixels(count))
        assert raw.train_labels.dtype == np.int64


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("subfolder", [".", "cifar10"])
def test_same_pixels_in_another_layout_have_the_same_digest(tmp_path: Path, subfolder: str) -> None:
    write_parquet(tmp_path / "b" / subfolder, pixels(20), TEN, pixels(10, start=1), np.arange(10))
    wanted = config("cifar10", profile="balanced")
    first = load_dataset(wanted, ten(tmp_path / "a"))
    second = load_dataset(wanted, tmp_path / "b")
    assert first.digest == second.digest
    assert first.class_names == second.class_names


@pytest.mark.usefixtures("offline")
def test_order_of_places(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = tmp_path / "system"
    monkeypatch.setattr(places, "SYSTEM_FOLDERS", {"cifar10": (system,)})
    monkeypatch.setenv("FEDRELA_DATA", str(tmp_path / "variable"))
    given = tmp_path / "given"
    for number, folder in enumerate([system, cache, tmp_path / "variable", given], 1):
        write_cifar10(folder, np.full((20, 32, 32, 3), number, np.uint8), TEN, pixels(10), np.arange(10))
        raw = read_source("cifar10", data_dir=given if folder == given else None)
        assert raw.train_images[0, 0, 0, 0] == number


@pytest.mark.usefixtures("offline")
def test_found_elsewhere_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDRELA_DATA", str(ten(tmp_path / "variable")))
    given = tmp_path / "given"
    given.mkdir()
    dataset = load_dataset(config("cifar10", profile="balanced"), given)
    assert any("is not in data_dir" in note and str(tmp_path / "variable") in note for note in dataset.notes)


@pytest.mark.usefixtures("offline")
def test_offline_error_names_places_and_command(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDRELA_DATA", str(tmp_path / "absent"))
    given = hundred(tmp_path / "given")
    (given / "cifar-100-python" / "meta").unlink()
    with pytest.raises(DataError) as caught:
        read_source("cifar100", data_dir=given)
    message = str(caught.value)
    assert f"1. data_dir {given}: cifar-100-python is incomplete and lacks meta" in message
    assert f"2. FEDRELA_DATA {tmp_path / 'absent'}: no such folder" in message
    assert f"3. cache {cache}: nothing of the set" in message
    assert "Network is unreachable" in message
    assert "cifar-100-python/train" in message
    assert "train-*.parquet" in message
    assert "fedrela-bench data get cifar100" in message


@pytest.mark.usefixtures("offline")
def test_parquet_of_another_set_is_not_taken(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data", pixels(200), HUNDRED, pixels(100), np.arange(100))
    with pytest.raises(DataError, match="parquet files with 100 classes, not 10"):
        read_source("cifar10", data_dir=tmp_path / "data")


@pytest.mark.usefixtures("offline")
def test_parquet_without_test_split(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data", pixels(20), TEN, pixels(10), np.arange(10))
    (tmp_path / "data" / "test-00000-of-00001.parquet").unlink()
    with pytest.raises(DataError, match=r"parquet files but no test\*\.parquet"):
        read_source("cifar10", data_dir=tmp_path / "data")


def test_data_dir_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data_dir .*absent does not exist") as caught:
        read_source("cifar10", data_dir=tmp_path / "absent")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "cannot be read"),
        (lambda path: path.write_bytes(b"not gzip"), "cannot be read"),
        (lambda path: path.write_bytes(gzip.compress(b"\x00\x00\x08\x03\x00\x00")), "ends inside its header"),
        (lambda path: path.write_bytes(gzip.compress(b"\x00\x00\x0d\x03abcd")), "not an IDX file of bytes"),
        (lambda path: path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1])), "its header says"),
        (lambda path: shutil.copy(path.with_name("train-labels-idx1-ubyte.gz"), path), "1 dimensions"),
    ],
)
def test_damaged_idx(tmp_path: Path, damage: object, words: str) -> None:
    path = fashion(tmp_path / "data") / "train-images-idx3-ubyte.gz"
    damage(path)  # type: ignore[operator]
    with pytest.raises(DataError, match=words) as caught:
        read_source("fashion_mnist", data_dir=tmp_path / "data")
    assert "train-images-idx3-ubyte.gz" in str(caught.value)


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("executed",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (pickle.dumps(Evil()), "refuses to build builtins.print"),
        (pickle.dumps([1, 2]), "not a CIFAR batch"),
        (b"garbage", "not a CIFAR batch"),
        (pickle.dumps({"data": np.zeros((2, 5), np.uint8), "fine_labels": [0, 1]}), "3072 pixels"),
        (pickle.dumps({"data": np.zeros((2, 3072), np.uint8)}), "with fine_labels"),
    ],
)
def test_damaged_or_hostile_cifar(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, words: str
) -> None:
    path = hundred(tmp_path / "data") / "cifar-100-python" / "test"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        read_source("cifar100", data_dir=tmp_path / "data")
    assert str(path) in str(caught.value)
    assert "executed" not in capsys.readouterr().out


def test_missing_class_and_wrong_labels(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "a", pixels(18), TEN[:18], pixels(10), np.arange(10))
    with pytest.raises(DataError, match=r"no training image of class 9 \(truck\)"):
        read_source("cifar10", data_dir=tmp_path / "a")
    write_cifar10(tmp_path / "b", pixels(20), np.where(TEN == 3, 10, TEN), pixels(9), np.arange(10))
    with pytest.raises(DataError) as caught:
        read_source("cifar10", data_dir=tmp_path / "b")
    assert "training row 6 has label 10" in str(caught.value)
    assert "9 test images but 10 labels" in str(caught.value)


def test_corrupt_parquet_image_names_file_and_row(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    payloads = [encode(image) for image in pixels(20)]
    payloads[7] = payloads[7][:-40]
    folder = write_parquet(tmp_path / "data", pixels(20), TEN, pixels(10), np.arange(10))
    pq.write_table(pa.table({"img": payloads, "label": TEN}), folder / "train-00000-of-00001.parquet")
    with pytest.raises(DataError, match=r"train-00000-of-00001\.parquet row 7 is not a readable image"):
        read_source("cifar10", data_dir=folder)
