"""Archives of arrays with the names that MedMNIST gives them: train_images, train_labels, test_images, test_labels."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from fedrela_bench.data.sources.limits import refuse_huge
from fedrela_bench.data.sources.raw import ARRAYS, RawData
from fedrela_bench.errors import DataError

VALIDATION = ("val_images", "val_labels")
MAX_HEADER = 10_000
CHUNK = 1024
EXACT = 1e-3
"""Largest distance, in grey levels, at which a float in [0, 1] is one of the 256 levels."""


@dataclass(frozen=True)
class Header:
    """What the archive says about one array before its values."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        """Size of the values."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize if self.shape else self.dtype.itemsize


def read_npz(path: Path, image_size: int | None) -> RawData:
    """Read an archive; nothing in it is ever unpickled.

    Images are (N, H, W) or (N, H, W, 1) grey, or (N, H, W, 3) colour. uint8 is taken as it is, other whole numbers in
    0..255 as the same numbers, floats in [0, 1] that are multiples of 1/255 as 255 times that; anything else is
    refused. Labels are (N,) or (N, 1) whole numbers from 0 to C-1.

    Args:
        path: the file.
        image_size: images are resized to this side length; None: as they are.

    Raises:
        DataError: damaged or wrong content; every fault that the headers show in one message.
    """
    archive = _open(path)
    with archive:
        headers = dict(_headers(archive, path))
        _check_headers(headers, path)
        refuse_huge(str(path), sum(headers[name].nbytes for name in ARRAYS))
        arrays = {name: _values(archive, name, path) for name in ARRAYS}
    labels = {split: _labels(arrays[f"{split}_labels"], f"{split}_labels", path) for split in ("train", "test")}
    classes = max(int(values.max()) for values in labels.values()) + 1
    notes, images = [], {}
    unit = all(_within(arrays[f"{split}_images"], 1) for split in ("train", "test"))
    for split in ("train", "test"):
        pixels, note = to_uint8(arrays[f"{split}_images"], unit, f"{path}: {split}_images")
        images[split] = resized(pixels if pixels.ndim == 4 else pixels[..., None], image_size)
        notes += [note] if note else []
    names = tuple(str(c) for c in range(classes))
    stated = [*_left_out(headers, path.name), *_resize_note(headers["train_images"].shape, image_size)]
    return RawData(
        images["train"], labels["train"], images["test"], labels["test"], names, tuple(notes), stated=tuple(stated)
    )


def to_uint8(values: np.ndarray, unit: bool, where: str) -> tuple[np.ndarray, str]:
    """Pixels of any type as uint8, and a note where they were converted.

    Args:
        values: (N, ...).
        unit: floats are in [0, 1] everywhere, in both splits.
        where: for messages.

    Raises:
        DataError: values outside of the ranges of `read_npz`, with the first row that holds one.
    """
    if values.dtype == np.uint8:
        return values, ""
    if values.dtype.kind not in "iuf":
        raise DataError(f"{where} holds {values.dtype} values; save the pixels as uint8")
    unit = unit and values.dtype.kind == "f"
    converted = np.empty(values.shape, dtype=np.uint8)
    for start in range(0, len(values), CHUNK):
        piece = values[start : start + CHUNK].astype(np.float64) * (255 if unit else 1)
        levels = np.rint(np.nan_to_num(piece, nan=-1.0, posinf=-1.0, neginf=-1.0))
        wrong = (np.abs(piece - levels) > EXACT) | ~np.isfinite(piece) | (levels < 0) | (levels > 255)
        if wrong.any():
            row, *_ = (int(place[0]) for place in np.nonzero(wrong))
            value = values[start : start + CHUNK][wrong][0]
            raise DataError(
                f"{where} is {values.dtype} and holds {value} in row {start + row}; pixels are whole numbers from 0 to "
                "255, or floats in [0, 1] that are multiples of 1/255: rescale them and save them as uint8"
            )
        converted[start : start + CHUNK] = levels.astype(np.uint8)
    rule = "multiplied by 255" if unit else "taken as grey levels"
    return converted, f"{where.rpartition(': ')[2]} is {values.dtype}; its values were {rule}"


def _within(values: np.ndarray, most: int) -> bool:
    if values.dtype.kind != "f":
        return False
    pieces = (values[start : start + CHUNK] for start in range(0, len(values), CHUNK))
    return all(not len(piece) or (float(np.min(piece)) >= 0 and float(np.max(piece)) <= most) for piece in pieces)


def resized(images: np.ndarray, side: int | None) -> np.ndarray:
    """(N, H, W, C) uint8 images at this side length, by Pillow's bilinear filter; unchanged where they have it."""
    if side is None or images.shape[1:3] == (side, side):
        return images
    from PIL import Image

    made = np.empty((len(images), side, side, images.shape[-1]), dtype=np.uint8)
    for row, image in enumerate(images):
        picture = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
        pixels = np.asarray(picture.resize((side, side), Image.Resampling.BILINEAR))
        made[row] = pixels if pixels.ndim == 3 else pixels[..., None]
    return made


# the archive ---------------------------------------------------------------------------------------------------------


def _open(path: Path) -> zipfile.ZipFile:
    if not path.is_file():
        raise DataError(f"npz: nothing at {path.absolute()}; correct the path")
    try:
        return zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path} is not a readable .npz archive ({error}); it may be truncated or a web page saved by mistake: "
            "fetch it again"
        ) from error


def _headers(archive: zipfile.ZipFile, path: Path) -> Iterator[tuple[str, Header]]:
    for item in archive.infolist():
        name = item.filename.removesuffix(".npy")
        if name not in (*ARRAYS, *VALIDATION):
            yield name, Header((), np.dtype(np.uint8))
            continue
        try:
            with archive.open(item) as member:
                header = _header(member)
        except (OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError) as error:
            raise DataError(f"{path}: {name} cannot be read ({error}); fetch or save the file again") from error
        _check_size(header, item.file_size, f"{path}: {name}")
        yield name, header


def _header(member: IO[bytes]) -> Header:
    version = npy.read_magic(member)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(member, max_header_size=MAX_HEADER)
    return Header(tuple(int(size) for size in shape), dtype)


def _check_size(header: Header, size: int, where: str) -> None:
    if header.dtype.hasobject:
        raise DataError(f"{where} holds Python objects, which are never unpickled; save it as an array of numbers")
    if header.nbytes > size:
        raise DataError(f"{where} says {header.shape} {header.dtype} but holds {size:,} bytes; save the file again")


def _values(archive: zipfile.ZipFile, name: str, path: Path) -> np.ndarray:
    item = f"{name}.npy" if f"{name}.npy" in archive.namelist() else name
    try:
        with archive.open(item) as member:
            return np.asarray(npy.read_array(member, allow_pickle=False, max_header_size=MAX_HEADER))
    except (OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: {name} cannot be read ({error}); fetch or save the file again") from error


# its content ---------------------------------------------------------------------------------------------------------


def _check_headers(headers: dict[str, Header], path: Path) -> None:
    missing = [name for name in ARRAYS if name not in headers]
    if missing:
        raise DataError(
            f"{path} has no {' and no '.join(missing)}; it has {', '.join(sorted(headers)) or 'nothing'}. The arrays "
            f"are called {', '.join(ARRAYS)}, as in MedMNIST"
        )
    faults = []
    for split in ("train", "test"):
        images, labels = headers[f"{split}_images"].shape, headers[f"{split}_labels"].shape
        fault = _shape_fault(images)
        faults += [f"{split}_images is {images}: {fault}"] if fault else []
        if not (len(labels) == 1 or (len(labels) == 2 and labels[1] == 1)):
            many = "several labels for one image are not supported; " if len(labels) == 2 else ""
            faults.append(f"{split}_labels is {labels}: {many}give (N,) or (N, 1)")
        if headers[f"{split}_labels"].dtype.kind not in "iu":
            faults.append(
                f"{split}_labels is {headers[f'{split}_labels'].dtype}: labels are whole numbers from 0 to C-1; "
                "number the classes and save them as integers"
            )
        if images and labels and images[0] != labels[0]:
            faults.append(f"{split}_images has {images[0]} rows, {split}_labels {labels[0]}; they must agree")
        elif images and not images[0]:
            faults.append(f"{split}_images is empty; each split needs images of every class")
    train, test = headers["train_images"].shape, headers["test_images"].shape
    if not faults and (*train[1:], 1)[:3] != (*test[1:], 1)[:3]:
        faults.append(f"train_images are {train[1:]} but test_images {test[1:]}; they must have one size")
    if faults:
        raise DataError(f"{path}: {'; '.join(faults)}")


def _shape_fault(shape: tuple[int, ...]) -> str:
    if len(shape) == 4 and shape[3] not in (1, 3):
        first = shape[1] in (1, 3)
        return "channels come last; transpose them" if first else "the last axis is 1 (grey) or 3 (colour) channels"
    return "" if len(shape) in (3, 4) and all(shape[1:]) else "expected (N, H, W) grey or (N, H, W, 3) colour"


def _labels(values: np.ndarray, name: str, path: Path) -> np.ndarray:
    labels = values.reshape(-1)
    if labels.size and int(labels.min()) < 0:
        row = int(np.flatnonzero(labels < 0)[0])
        raise DataError(f"{path}: {name} is {labels[row]} in row {row}; classes are numbered from 0")
    highest = int(labels.max(initial=0))
    if highest >= len(labels):
        row = int(np.flatnonzero(labels == labels.max())[0])
        raise DataError(
            f"{path}: {name} is {highest} in row {row} of {len(labels)}; classes are numbered 0 to C-1 with images of "
            "each in both splits"
        )
    return labels.astype(np.int64)


def _left_out(headers: dict[str, Header], name: str) -> Iterator[str]:
    if "val_images" in headers:
        yield f"{name}: the {headers['val_images'].shape[0]:,} validation images are left out, of training and of test"
    others = sorted(set(headers) - {*ARRAYS, *VALIDATION})
    if others:
        yield f"{name}: arrays of other names are left out: {', '.join(others[:5])}"


def _resize_note(shape: tuple[int, ...], side: int | None) -> Iterator[str]:
    if side is not None and shape[1:3] != (side, side):
        yield f"images of {shape[1]}x{shape[2]} were resized to {side}x{side} (data.image_size)"
