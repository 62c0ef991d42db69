"""Readers of the two formats torchvision leaves on disk: IDX (Fashion-MNIST) and CIFAR's Python batches."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedrela_bench.data.sources.raw import RawData
from fedrela_bench.errors import DataError

FASHION_CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

SAFE_PICKLE = {
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


def read_idx(path: Path) -> np.ndarray:
    """The uint8 array of an IDX file, plain or gzipped.

    Raises:
        DataError: not an IDX file of bytes, or truncated.
    """
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}); replace it with an intact copy") from error
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise DataError(f"{path} is not an IDX file of bytes; replace it with an intact copy")
    rank = content[3]
    start = 4 + 4 * rank
    if len(content) < start:
        raise DataError(f"{path} ends inside its header; replace it with an intact copy")
    shape = struct.unpack(f">{rank}I", content[4:start])
    expected = int(np.prod(shape, dtype=np.int64))
    if len(content) - start != expected:
        raise DataError(f"{path} holds {len(content) - start} values, its header says {expected}; replace it")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def read_fashion_mnist(files: Mapping[str, Path]) -> RawData:
    """Fashion-MNIST from its four IDX files, by the names they carry without ``.gz``."""
    parts = {}
    for split, stem in (("train", "train"), ("test", "t10k")):
        path = files[f"{stem}-images-idx3-ubyte"]
        images = read_idx(path)
        if images.ndim != 3:
            raise DataError(f"{path} holds an array of {images.ndim} dimensions, images have 3; replace it")
        parts[split] = images[..., None], read_idx(files[f"{stem}-labels-idx1-ubyte"]).astype(np.int64)
    return RawData(*parts["train"], *parts["test"], FASHION_CLASSES)


def read_cifar10(files: Mapping[str, Path]) -> RawData:
    """CIFAR-10 from its six Python batches."""
    batches = [_batch(files[f"data_batch_{i}"], "labels") for i in range(1, 6)]
    train = np.concatenate([images for images, _ in batches]), np.concatenate([labels for _, labels in batches])
    return RawData(*train, *_batch(files["test_batch"], "labels"), CIFAR10_CLASSES)


def read_cifar100(files: Mapping[str, Path]) -> RawData:
    """CIFAR-100 with its fine labels from `train`, `test` and `meta`."""
    names = _unpickle(files["meta"]).get("fine_label_names")
    if not isinstance(names, list):
        raise DataError(f"{files['meta']} holds no fine_label_names; replace it with an intact copy")
    train, test = _batch(files["train"], "fine_labels"), _batch(files["test"], "fine_labels")
    return RawData(*train, *test, tuple(str(name) for name in names))


class _ArrayUnpickler(pickle.Unpickler):
    """Builds numpy arrays and builtin containers and nothing else."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        module = module_name.replace("numpy.core", "numpy._core")
        if (module, global_name) not in SAFE_PICKLE:
            raise pickle.UnpicklingError(f"refuses to build {module_name}.{global_name}")
        return super().find_class(module, global_name)


def _unpickle(path: Path) -> dict[str, Any]:
    try:
        content = _ArrayUnpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except Exception as error:  # a damaged pickle can raise anything
        raise DataError(f"{path} is not a CIFAR batch ({error}); replace it with an intact copy") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} is not a CIFAR batch; replace it with an intact copy")
    return content


def _batch(path: Path, label_key: str) -> tuple[np.ndarray, np.ndarray]:
    content = _unpickle(path)
    pixels, labels = content.get("data"), content.get(label_key)
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != 3072 or labels is None:
        raise DataError(f"{path} holds no rows of 3072 pixels with {label_key}; replace it with an intact copy")
    images = pixels.astype(np.uint8, copy=False).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), np.asarray(labels, dtype=np.int64)
