"""Own images: folders and parquet files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fedrela_bench.data import load_dataset
from fedrela_bench.data.sources import Reading, limits, read_source
from fedrela_bench.data.sources.decode import Decoder
from fedrela_bench.errors import DataError
from tests.data.makers import config, encode, pixels, write_federation, write_folder, write_parquet

LABELS = np.array([0, 1, 2, 0, 1, 2])


def test_folder(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "set", {"dog": 3, "ant": 2})
    raw = read_source(f"folder:{root}")
    assert raw.class_names == ("ant", "dog")
    assert raw.train_labels.tolist() == [0, 0, 1, 1, 1]
    np.testing.assert_array_equal(raw.train_images[2:], pixels(3, 8, 3, 0))
    np.testing.assert_array_equal(raw.train_images[:2], pixels(2, 8, 3, 1))
    assert raw.test_images.shape == (4, 8, 8, 3)


def test_relative_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "set", {"a": 2, "b": 2})
    monkeypatch.chdir(tmp_path)
    assert read_source("folder:set").train_labels.tolist() == [0, 0, 1, 1]


def test_grey_folder_has_one_channel_and_mixed_has_three(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "set", {"a": 2, "b": 2}, channels=1)
    grey = read_source(f"folder:{root}")
    assert grey.train_images.shape == (4, 8, 8, 1)
    (root / "test" / "b" / "001.png").write_bytes(encode(pixels(1, 8)[0]))
    mixed = read_source(f"folder:{root}")
    assert mixed.train_images.shape == (4, 8, 8, 3)
    np.testing.assert_array_equal(mixed.train_images, np.repeat(grey.train_images, 3, axis=3))


def test_other_files_are_left_out_with_a_note(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "set", {"a": 2, "b": 2})
    (root / "train" / "a" / "readme.txt").write_text("x")
    (root / "train" / "a" / ".hidden.png").write_text("x")
    for _ in range(2):
        raw = read_source(f"folder:{root}")
        assert len(raw.train_labels) == 4
        assert raw.notes == ("1 files are no images and were left out: train/a/readme.txt",)


def test_sizes_must_agree_or_are_made_to(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "set", {"a": 2, "b": 2})
    (root / "test" / "a" / "001.png").write_bytes(encode(pixels(1, 10)[0]))
    with pytest.raises(DataError) as caught:
        read_source(f"folder:{root}")
    assert "is 8x8" in str(caught.value)
    assert str(Path("test/a/001.png")) + " is 10x10" in str(caught.value)
    assert "data.image_size" in str(caught.value)
    assert read_source(f"folder:{root}", Reading(image_size=6)).train_images.shape == (4, 6, 6, 3)


def test_corrupt_image_in_folder(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "set", {"a": 2, "b": 2})
    path = root / "train" / "b" / "001.png"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DataError) as caught:
        read_source(f"folder:{root}")
    assert f"{path} is not a readable image" in str(caught.value)


def test_an_image_that_says_it_is_enormous_is_refused_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_folder(tmp_path / "set", {"a": 2, "b": 2})
    (root / "train" / "b" / "001.png").write_bytes(encode(pixels(1, 64)[0]))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)
    with pytest.raises(DataError) as caught:
        read_source(f"folder:{root}", Reading(image_size=8))
    assert f"{root / 'train' / 'b' / '001.png'} is not a readable image" in str(caught.value)
    assert "decompression bomb" in str(caught.value)


def test_more_images_than_memory_are_refused_before_there_is_room_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_folder(tmp_path / "set", {"a": 5, "b": 5})
    columns = write_parquet(tmp_path / "p", pixels(8, 8), np.arange(8) % 2, pixels(6, 8), np.arange(6) % 2)
    federation = write_federation(tmp_path / "f", {"x": {"a": 7, "b": 7}})
    # 14 images of 8x8 with three channels, of both splits together.
    monkeypatch.setattr(limits, "memory_bytes", lambda: round(14 * 192 / limits.SHARE) - 1)
    monkeypatch.setattr(np, "empty", lambda shape, **_: pytest.fail(f"room for {shape}"))
    for source, first in (
        (f"folder:{root}", root / "train" / "a" / "000.png"),
        (f"parquet:{columns}", f"{columns / 'train-00000-of-00001.parquet'} row 0"),
        (f"folder:{federation}", federation / "clients" / "x" / "a" / "000.png"),
    ):
        with pytest.raises(DataError) as caught:
            read_source(source, Reading(natural=str(federation) in source))
        words = f"{first}: a set of 14 such images of 8x8 takes 0.0 GiB to read"
        assert words in str(caught.value) and "set data.image_size to make them smaller" in str(caught.value)
    monkeypatch.undo()
    monkeypatch.setattr(limits, "memory_bytes", lambda: round(14 * 192 / limits.SHARE) + 1)
    assert len(read_source(f"folder:{root}").train_labels) == 10


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda root: (root / "train" / "c").mkdir(), ["class c is in train/ but not in test/", "holds no image"]),
        (lambda root: (root / "train").rename(root / "training"), ["has no train/"]),
        (lambda root: [path.unlink() for path in (root / "test" / "a").iterdir()], ["test/a/ holds no image"]),
        (lambda root: root.rename(root.with_name("moved")), ["not a folder"]),
    ],
)
def test_wrong_trees(tmp_path: Path, change: object, words: list[str]) -> None:
    root = write_folder(tmp_path / "set", {"a": 2, "b": 2})
    change(root)  # type: ignore[operator]
    with pytest.raises(DataError) as caught:
        read_source(f"folder:{root}")
    assert all(word in str(caught.value) for word in words)


def test_empty_tree(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "test").mkdir()
    with pytest.raises(DataError, match="no class folders"):
        read_source(f"folder:{tmp_path}")


@pytest.mark.parametrize("mode", ["1", "L", "LA", "I;16", "P", "RGBA", "CMYK", "F"])
def test_pixel_modes(tmp_path: Path, mode: str) -> None:
    ramp = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
    path = tmp_path / "x.tif"
    image = Image.fromarray(ramp.astype(np.uint16) * 256) if mode == "I;16" else Image.fromarray(ramp).convert(mode)
    image.save(path)
    decoder = Decoder()
    if mode == "F":
        with pytest.raises(DataError, match="floating-point"):
            decoder.decode([("x", path)], 1)
        return
    decoded = decoder.decode([("x", path)], 1)
    assert decoder.colour == (mode in ("P", "RGBA", "CMYK"))
    if mode in ("L", "LA", "I;16", "P", "RGBA"):
        np.testing.assert_array_equal(decoded[0, ..., 0], ramp)


def test_formats_may_be_mixed_and_large_images_use_threads(tmp_path: Path) -> None:
    big = pixels(300, 130, 3)
    items: list[tuple[str, bytes | Path]] = []
    for i, image in enumerate(big):
        items.append((str(i), encode(image, "PNG" if i % 2 else "BMP")))
    np.testing.assert_array_equal(Decoder().decode(items, len(items)), big)


@pytest.mark.parametrize("struct_image", [True, False])
def test_parquet(tmp_path: Path, struct_image: bool) -> None:
    root = write_parquet(
        tmp_path, pixels(6), LABELS, pixels(3), np.arange(3), ["x", "y", "z"], struct_image=struct_image
    )
    raw = read_source(f"parquet:{root}")
    assert raw.class_names == ("x", "y", "z")
    np.testing.assert_array_equal(raw.train_images, pixels(6))
    np.testing.assert_array_equal(raw.train_labels, LABELS)


def test_parquet_by_files_pattern_and_data_folder(tmp_path: Path) -> None:
    root = write_parquet(tmp_path / "p" / "data", pixels(6), LABELS, pixels(3), np.arange(3))
    files = ",".join(str(path) for path in root.iterdir())
    for text in (str(tmp_path / "p"), f"{root}/*.parquet", files):
        assert read_source(f"parquet:{text}").class_names == ("0", "1", "2")


def test_label_column_choice(tmp_path: Path) -> None:
    for label, extra in (("label", "id"), ("fine_label", "coarse_label")):
        root = write_parquet(
            tmp_path / label, pixels(6), LABELS, pixels(3), np.arange(3), label=label, extra={extra: np.array([7])}
        )
        np.testing.assert_array_equal(read_source(f"parquet:{root}").train_labels, LABELS)
    root = write_parquet(
        tmp_path / "c", pixels(6), LABELS, pixels(3), np.arange(3), label="kind", extra={"id": np.array([7])}
    )
    with pytest.raises(DataError, match="kind, id"):
        read_source(f"parquet:{root}")
    root = write_parquet(
        tmp_path / "d", pixels(6), LABELS, pixels(3), np.arange(3), ["x", "y", "z"], "kind", extra={"id": np.array([7])}
    )
    assert read_source(f"parquet:{root}").class_names == ("x", "y", "z")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"label": [0, 1]}, "no image"),
        ({"img": [b"x", b"y"]}, "no integer label column"),
        ({"a": [b"x", b"y"], "b": [b"x", b"y"], "label": [0, 1]}, "several columns.*a, b"),
        ({"img": [b"x", b"y"], "label": [0, None]}, "row 1 has no label"),
        ({"img": [None, b"y"], "label": [0, 1]}, "row 0 holds no image bytes"),
        ({"img": [b"x", b"y"], "label": [0, 1]}, r"row 0 is not a readable image \(unknown format\)"),
    ],
)
def test_wrong_parquet_columns(tmp_path: Path, columns: dict[str, list[object]], words: str) -> None:
    for split in ("train", "test"):
        kinds = {name: pa.int64() if name == "label" else pa.binary() for name in columns}
        pq.write_table(
            pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()}),
            tmp_path / f"{split}.parquet",
        )
    with pytest.raises(DataError, match=words):
        read_source(f"parquet:{tmp_path}")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.array([1, 2, 3, 1, 2, 3]), "no training image of class 0"),
        (np.array([2, 0, 1, 2, 0, -1]), r"train-00000-of-00001\.parquet row 5 has label -1; labels run from 0 to C-1"),
        (
            np.array([0, 2**64 - 1, 1, 2, 0, 1], np.uint64),
            r"\.parquet row 1 has label 18446744073709551615; labels run",
        ),
        (np.zeros(6, int), "0 is the only class; with a single class there is nothing to tell apart"),
    ],
)
def test_wrong_parquet_labels(tmp_path: Path, labels: np.ndarray, words: str) -> None:
    test = np.array([1, 2, 2]) if labels.any() else np.zeros(3, int)
    root = write_parquet(tmp_path, pixels(6), labels, pixels(3), test)
    with pytest.raises(DataError, match=words):
        read_source(f"parquet:{root}")


def test_wrong_labels_are_told_for_every_file_by_its_own_rows(tmp_path: Path) -> None:
    root = write_parquet(tmp_path, pixels(6), LABELS, pixels(3), np.array([0, 1, 7]), ["x", "y", "z"])
    train = root / "train-00000-of-00001.parquet"
    whole = pq.read_table(train)
    for name, label in (("train-2.parquet", 3), ("train-3.parquet", -1)):
        wrong = pa.array([0, 1, 2, 0, label, 2])
        pq.write_table(whole.set_column(1, "label", wrong), root / name)
    with pytest.raises(DataError) as caught:
        read_source(f"parquet:{root}")
    assert str(caught.value) == "; ".join(
        f"{root / name} row {row} has label {label}; labels run from 0 to 2"
        for name, row, label in (
            ("train-2.parquet", 4, 3),
            ("train-3.parquet", 4, -1),
            ("test-00000-of-00001.parquet", 2, 7),
        )
    )


def test_damaged_or_missing_parquet(tmp_path: Path) -> None:
    root = write_parquet(tmp_path / "a", pixels(6), LABELS, pixels(3), np.arange(3))
    train = root / "train-00000-of-00001.parquet"
    train.write_bytes(train.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"train-00000-of-00001\.parquet is not a readable parquet file"):
        read_source(f"parquet:{root}")
    with pytest.raises(DataError, match="nothing at"):
        read_source(f"parquet:{tmp_path / 'absent'}")
    train.unlink()
    with pytest.raises(DataError, match=r"no train\*\.parquet"):
        read_source(f"parquet:{root}")


def test_several_files_are_read_in_order(tmp_path: Path) -> None:
    root = write_parquet(tmp_path, pixels(6), LABELS, pixels(3), np.arange(3))
    whole = pq.read_table(root / "train-00000-of-00001.parquet")
    (root / "train-00000-of-00001.parquet").unlink()
    pq.write_table(whole.slice(0, 2), root / "train-00000-of-00002.parquet")
    pq.write_table(whole.slice(2), root / "train-00001-of-00002.parquet")
    np.testing.assert_array_equal(read_source(f"parquet:{root}").train_images, pixels(6))


def test_own_statistics_of_the_kept_images(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "set", {"a": 9, "b": 9, "c": 9})
    dataset = load_dataset(config(f"folder:{root}", imbalance_factor=9))
    kept = dataset.train_images[dataset.subset].astype(np.float64) / 255
    assert dataset.class_counts.tolist() == [9, 3, 1]
    assert dataset.normalization is not None
    np.testing.assert_allclose(dataset.normalization, [kept.mean((0, 1, 2)), kept.std((0, 1, 2))], rtol=1e-12)
    assert (dataset.augment, dataset.name) == ("none", "folder_set_lt")


def test_constant_images_do_not_divide_by_zero(tmp_path: Path) -> None:
    images = np.full((6, 8, 8, 3), 51, np.uint8)
    root = write_parquet(tmp_path, images, LABELS, images[:3], np.arange(3))
    dataset = load_dataset(config(f"parquet:{root}", profile="balanced"))
    assert dataset.normalization == ((0.2, 0.2, 0.2), (1.0, 1.0, 1.0))
