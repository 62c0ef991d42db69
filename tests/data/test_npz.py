"""Archives with MedMNIST's names: shapes, types, damage, and that nothing is unpickled."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedrela_bench.data import load_dataset
from fedrela_bench.data.sources import RawData, Reading, limits, read_source
from fedrela_bench.errors import DataError
from tests.data.makers import config, pixels, write_npz

GREY = pixels(12, 8, 1)[..., 0]


def read(path: Path, **reading: Any) -> RawData:
    return read_source(f"npz:{path}", Reading(**reading))


def refusal(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        read(path)
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize("channels", [0, 1, 3])
@pytest.mark.parametrize("column", [True, False])
def test_grey_and_colour_with_labels_as_rows_or_a_column(tmp_path: Path, channels: int, column: bool) -> None:
    train, test = pixels(12, 9, channels or 1), pixels(6, 9, channels or 1, 1)
    labels = np.arange(12) % 3
    path = write_npz(
        tmp_path / "x.npz",
        train_images=train if channels else train[..., 0],
        test_images=test if channels else test[..., 0],
        train_labels=labels[:, None] if column else labels,
        test_labels=(labels[:6, None] if column else labels[:6]).astype(np.uint8),
    )
    raw = read(path)
    np.testing.assert_array_equal(raw.train_images, train)
    np.testing.assert_array_equal(raw.test_images, test)
    np.testing.assert_array_equal(raw.train_labels, labels)
    assert isinstance(raw.train_images, np.memmap)
    assert (raw.class_names, raw.notes, raw.stated) == (("0", "1", "2"), (), ())


@pytest.mark.parametrize("profile", ["lt", "step", "balanced", "natural"])
def test_every_profile(tmp_path: Path, profile: str) -> None:
    path = write_npz(tmp_path / "x.npz")
    dataset = load_dataset(config(f"npz:{path}", profile=profile, imbalance_factor=4, minority="last"))
    counts = {"lt": [4, 2, 1], "step": [4, 4, 1]}.get(profile, [4, 4, 4])
    assert (dataset.name, dataset.class_counts.tolist()) == (f"npz_x_{profile}", counts)
    assert dataset.input_shape == (1, 8, 8)
    assert dataset.normalization is not None


def test_validation_images_are_left_out_and_that_is_stated(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "x.npz", val_images=pixels(5, 8, 1)[..., 0], val_labels=np.zeros(5), extra=np.zeros(2))
    dataset = load_dataset(config(f"npz:{path}", profile="balanced"))
    assert len(dataset.labels) == 12
    assert dataset.stated == (
        "x.npz: the 5 validation images are left out, of training and of test",
        "x.npz: arrays of other names are left out: extra",
    )
    assert dataset.notes[:2] == dataset.stated


def test_resizing_is_pillows_and_is_stated(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "x.npz")
    raw = read(path, image_size=6)
    wanted = [np.asarray(Image.fromarray(image).resize((6, 6), Image.Resampling.BILINEAR)) for image in GREY]
    np.testing.assert_array_equal(raw.train_images[..., 0], wanted)
    assert raw.stated == ("images of 8x8 were resized to 6x6 (data.image_size)",)


@pytest.mark.parametrize(
    ("kind", "scale"), [("int64", 1), ("uint16", 1), ("float32", 1), ("float32", 255), ("float64", 255)]
)
def test_exact_conversions(tmp_path: Path, kind: str, scale: int) -> None:
    train, test = ((values / scale).astype(kind) for values in (GREY, pixels(6, 8, 1, 1)[..., 0]))
    raw = read(write_npz(tmp_path / "x.npz", train_images=train, test_images=test))
    np.testing.assert_array_equal(raw.train_images[..., 0], GREY)
    rule = "multiplied by 255" if scale == 255 else "taken as grey levels"
    assert raw.notes[0] == f"train_images is {kind}; its values were {rule}"


def test_a_dark_test_split_is_converted_as_the_training_split(tmp_path: Path) -> None:
    dark = np.ones((6, 8, 8), dtype=np.float32)
    raw = read(write_npz(tmp_path / "x.npz", train_images=GREY.astype(np.float32), test_images=dark))
    assert raw.test_images.max() == 1


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"test_images": None, "val_labels": np.zeros(1)}, ["has no test_images", "it has", "as in MedMNIST"]),
        ({"train_images": GREY.transpose(1, 2, 0)}, ["has 8 rows, train_labels 12"]),
        ({"train_images": pixels(12, 8, 3).transpose(0, 3, 1, 2)}, ["(12, 3, 8, 8)", "channels come last"]),
        ({"train_images": np.zeros((12, 8, 8, 8), np.uint8)}, ["the last axis is 1 (grey) or 3"]),
        ({"train_images": np.zeros((12, 64), np.uint8)}, ["expected (N, H, W) grey"]),
        ({"train_images": np.zeros((0, 8, 8), np.uint8), "train_labels": np.zeros(0, int)}, ["train_images is empty"]),
        ({"test_images": pixels(6, 9, 1)[..., 0]}, ["(8, 8)", "(9, 9)", "one size"]),
        ({"train_labels": np.zeros((12, 14), int)}, ["several labels for one image are not supported"]),
        (
            {"train_labels": np.zeros(12), "test_labels": np.array(["a"] * 6)},
            ["float64", "<U1", "save them as integers"],
        ),
        ({"train_labels": np.arange(12) % 3 - 1}, ["train_labels is -1 in row 0"]),
        ({"train_labels": np.where(np.arange(12) == 7, 10**9, np.arange(12) % 3)}, ["is 1000000000 in row 7 of 12"]),
        (
            {"train_labels": np.arange(12) % 3 * 2, "test_labels": np.arange(6) % 3 * 2},
            ["no training image of class 1"],
        ),
        ({"test_labels": np.array([0, 0, 1, 1, 0, 1])}, ["no test image of class 2"]),
        ({"train_labels": np.zeros(12, int), "test_labels": np.zeros(6, int)}, ["a single class"]),
        ({"train_images": GREY.astype(np.float32) / 3}, ["float32", "in row 0", "multiples of 1/255"]),
        ({"train_images": GREY.astype(np.int16) + 200}, ["int16", "0 to 255"]),
        ({"train_images": np.where(np.arange(12)[:, None, None] == 5, np.nan, GREY)}, ["holds nan in row 5"]),
        ({"train_images": GREY.astype(complex)}, ["complex128"]),
    ],
)
def test_wrong_content(tmp_path: Path, arrays: dict[str, Any], words: list[str]) -> None:
    message = refusal(write_npz(tmp_path / "x.npz", **arrays))
    assert "x.npz" in message
    assert all(word in message for word in words), message


class Bomb:
    """Unpickling leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_python_objects_are_never_unpickled(tmp_path: Path) -> None:
    went_off = tmp_path / "bang"
    objects = np.empty(12, dtype=object)
    objects[:] = [Bomb(went_off)] * 12
    np.savez(tmp_path / "x.npz", train_images=objects, train_labels=np.zeros(12), test_images=1, test_labels=1)
    assert "never unpickled" in refusal(tmp_path / "x.npz")
    (tmp_path / "y.npz").write_bytes(pickle.dumps(Bomb(went_off)))
    assert "not a readable .npz archive" in refusal(tmp_path / "y.npz")
    assert not went_off.exists()


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9, 0.99])
def test_truncated_archives(tmp_path: Path, kept: float) -> None:
    path = write_npz(tmp_path / "x.npz")
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    assert "may be truncated" in refusal(path)


def test_flipped_bits_and_web_pages(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "x.npz")
    content = bytearray(path.read_bytes())
    content[400] ^= 1
    path.write_bytes(content)
    assert "train_images cannot be read" in refusal(path)
    path.write_bytes(b"<!DOCTYPE html><html>404</html>")
    assert "a web page saved by mistake" in refusal(path)
    path.unlink()
    assert "is not a file" in refusal(path)


def archive_of(path: Path, shape: tuple[int, ...]) -> Path:
    """Says that train_images has a shape, and holds a few bytes."""
    write_npz(path)
    with zipfile.ZipFile(path) as old:
        parts = {item: old.read(item) for item in old.namelist()}
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    parts["train_images.npy"] = header.getvalue() + bytes(100)
    with zipfile.ZipFile(path, "w") as new:
        for item, content in parts.items():
            new.writestr(item, content)
    return path


def test_a_header_that_promises_more_than_the_file_holds(tmp_path: Path) -> None:
    assert "but holds" in refusal(archive_of(tmp_path / "x.npz", (10**9, 28, 28)))


def test_more_than_the_machines_memory_is_refused_by_its_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "memory_bytes", lambda: 1000)
    message = refusal(write_npz(tmp_path / "x.npz"))
    assert "GiB of memory; give fewer rows or smaller images" in message
    monkeypatch.setattr(limits, "memory_bytes", lambda: None)
    assert len(read(tmp_path / "x.npz").train_labels) == 12
