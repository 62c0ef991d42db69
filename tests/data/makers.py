"""Tiny datasets on disk, in every layout the readers know."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from fedrela_bench.config import TrialConfig, parse


def pixels(count: int, side: int = 32, channels: int = 3, start: int = 0) -> np.ndarray:
    """Different, repeatable uint8 images (count, side, side, channels)."""
    return np.random.default_rng(start).integers(0, 256, (count, side, side, channels), dtype=np.uint8)


def encode(image: np.ndarray, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(buffer, kind)
    return buffer.getvalue()


def config(source: str, seed: int = 1, clients: int = 3, **data: Any) -> TrialConfig:
    return parse({"data": {"source": source, **data}, "federation": {"clients": clients}, "seed": seed})


def write_folder(root: Path, per_class: dict[str, int], side: int = 8, channels: int = 3) -> Path:
    """train/ with the given numbers of images and test/ with two of each class."""
    start = 0
    for split in ("train", "test"):
        for name, count in per_class.items():
            folder = root / split / name
            folder.mkdir(parents=True)
            for i, image in enumerate(pixels(count if split == "train" else 2, side, channels, start)):
                (folder / f"{i:03d}.png").write_bytes(encode(image))
            start += 1
    return root


def write_parquet(
    root: Path,
    train: np.ndarray,
    train_labels: np.ndarray,
    test: np.ndarray,
    test_labels: np.ndarray,
    names: list[str] | None = None,
    label: str = "label",
    struct_image: bool = True,
    extra: dict[str, np.ndarray] | None = None,
) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for split, images, labels in (("train", train, train_labels), ("test", test, test_labels)):
        payloads = [encode(image) for image in images]
        column = [{"bytes": payload, "path": None} for payload in payloads] if struct_image else payloads
        columns = {"img": column, label: pa.array(labels)}
        columns |= {name: pa.array(np.resize(values, len(labels))) for name, values in (extra or {}).items()}
        table = pa.table(columns)
        if names is not None:
            features = {"img": {"_type": "Image"}, label: {"_type": "ClassLabel", "names": names}}
            table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        pq.write_table(table, root / f"{split}-00000-of-00001.parquet")
    return root


def write_cifar100(
    root: Path, train: np.ndarray, train_labels: np.ndarray, test: np.ndarray, labels: np.ndarray
) -> Path:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for name, images, fine in (("train", train, train_labels), ("test", test, labels)):
        rows = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
        (folder / name).write_bytes(pickle.dumps({"data": rows, "fine_labels": [int(c) for c in fine]}, protocol=2))
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": [f"c{c:02d}" for c in range(100)]}, protocol=2))
    return root


def write_cifar10(
    root: Path, train: np.ndarray, train_labels: np.ndarray, test: np.ndarray, labels: np.ndarray
) -> Path:
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    cuts = zip(np.array_split(train, 5), np.array_split(train_labels, 5), strict=True)
    batches = [(f"data_batch_{i}", images, classes) for i, (images, classes) in enumerate(cuts, 1)]
    for name, images, classes in [*batches, ("test_batch", test, labels)]:
        rows = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
        (folder / name).write_bytes(pickle.dumps({"data": rows, "labels": [int(c) for c in classes]}, protocol=2))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": []}, protocol=2))
    return root


def idx_bytes(values: np.ndarray) -> bytes:
    return struct.pack(f">I{values.ndim}I", 0x0800 | values.ndim, *values.shape) + values.astype(np.uint8).tobytes()


def write_fashion(
    folder: Path, train: np.ndarray, train_labels: np.ndarray, test: np.ndarray, labels: np.ndarray
) -> Path:
    """Four gzipped IDX files; images are (N, H, W)."""
    folder.mkdir(parents=True, exist_ok=True)
    for stem, images, classes in (("train", train, train_labels), ("t10k", test, labels)):
        (folder / f"{stem}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(images)))
        (folder / f"{stem}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx_bytes(classes)))
    return folder


def write_npz(path: Path, **arrays: np.ndarray) -> Path:
    """An archive with MedMNIST's names: 12 training and 6 test images of 3 classes, but for what is given."""
    made: dict[str, Any] = {
        "train_images": pixels(12, 8, 1)[..., 0],
        "train_labels": np.arange(12)[:, None] % 3,
        "test_images": pixels(6, 8, 1, 1)[..., 0],
        "test_labels": np.arange(6)[:, None] % 3,
    }
    np.savez(path, **{name: values for name, values in {**made, **arrays}.items() if values is not None})
    return path


def write_text(path: Path, columns: dict[str, list[Any]], separator: str = ",") -> Path:
    """A CSV file; values that hold the separator must be quoted already."""
    lines = [separator.join(columns), *(separator.join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def visits(count: int = 60, classes: int = 3, clients: int = 4, start: int = 0) -> dict[str, list[Any]]:
    """A small table with a number, a category, a client and a label that the number tells."""
    rng = np.random.default_rng(start)
    labels = np.arange(count) % classes
    return {
        "age": [round(float(value), 3) for value in 10 * labels + rng.normal(0, 1, count)],
        "kind": [("red", "green", "blue")[int(place)] for place in rng.integers(0, 3, count)],
        "client": [f"ward {int(place)}" for place in rng.integers(0, clients, count)],
        "label": [("cold", "flu", "none")[int(c) % 3] + ("" if c < 3 else str(c)) for c in labels],
    }


def write_federation(root: Path, held: dict[str, dict[str, int]], test: int = 0) -> Path:
    """clients/<client>/<class>/ with the given numbers of images, and test/ with so many of each class."""
    start, classes = 0, sorted({name for classes in held.values() for name in classes})
    groups = [(root / "clients" / client, counts) for client, counts in held.items()]
    groups += [(root / "test", dict.fromkeys(classes, test))] if test else []
    for place, counts in groups:
        for name, count in counts.items():
            (place / name).mkdir(parents=True)
            for i, image in enumerate(pixels(count, 8, 3, start)):
                (place / name / f"{i:03d}.png").write_bytes(encode(image))
            start += 1
    return root
