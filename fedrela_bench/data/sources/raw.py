"""What every reader returns, and the checks that apply to all of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedrela_bench.errors import DataError


@dataclass(frozen=True)
class RawData:
    """A whole source as arrays: (N, H, W, C) uint8 images and (N,) int64 labels of both splits."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    class_names: tuple[str, ...]
    notes: tuple[str, ...] = ()


ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")


def checked(raw: RawData, where: str) -> RawData:
    """Return `raw` if shapes and labels fit together.

    Args:
        raw: as a reader made it.
        where: the source, for messages.

    Raises:
        DataError: every fault in one message.
    """
    faults = [*_split_faults(raw.train_images, raw.train_labels, "training", raw)]
    faults += _split_faults(raw.test_images, raw.test_labels, "test", raw)
    if raw.train_images.shape[1:] != raw.test_images.shape[1:]:
        faults.append(f"training images are {raw.train_images.shape[1:]}, test images {raw.test_images.shape[1:]}")
    if not faults:
        for labels, split in ((raw.train_labels, "training"), (raw.test_labels, "test")):
            absent = np.flatnonzero(np.bincount(labels, minlength=len(raw.class_names)) == 0)
            if len(absent):
                shown = ", ".join(f"{c} ({raw.class_names[c]})" for c in absent[:10])
                faults.append(f"no {split} image of class {shown}; classes are numbered 0 to C-1 without gaps")
    if faults:
        raise DataError(f"{where}: {'; '.join(faults)}")
    return raw


def _split_faults(images: np.ndarray, labels: np.ndarray, split: str, raw: RawData) -> list[str]:
    faults = []
    if images.dtype != np.uint8 or images.ndim != 4:
        faults.append(f"{split} images are {images.dtype} {images.shape}, expected uint8 (N, H, W, C)")
    if len(images) != len(labels):
        faults.append(f"{len(images)} {split} images but {len(labels)} labels")
    if not len(labels):
        faults.append(f"there are no {split} images")
    elif labels.min() < 0 or labels.max() >= len(raw.class_names):
        row = int(np.flatnonzero((labels < 0) | (labels >= len(raw.class_names)))[0])
        faults.append(f"{split} row {row} has label {labels[row]}; labels run from 0 to {len(raw.class_names) - 1}")
    return faults
