"""What every reader is asked and returns, and the checks that apply to all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedrela_bench.errors import DataError


@dataclass(frozen=True)
class Reading:
    """What decides how a source is read, besides its files; fields are those of `config.DataConfig`."""

    image_size: int | None = None
    natural: bool = False
    """Whether the clients that the source names are wanted: data.partition = natural."""
    label_column: str | None = None
    client_column: str | None = None
    drop_columns: tuple[str, ...] = ()
    categorical_columns: tuple[str, ...] = ()
    impute: Literal["none", "mean"] = "none"
    test_fraction: float = 0.2
    test_seed: int = 0


Tell = Callable[[str], None]


@dataclass(frozen=True)
class Effort:
    """How the work of reading a source is done; decides no number."""

    workers: int | None = None
    """Processes that decode images; None: as many as there are processors for this one."""
    tell: Tell | None = None
    """Takes lines about the progress; None: standard error."""
    thorough: bool = False
    """Whether all that is cached is read and checked, not only a part of what is very large."""


DEFAULT = Effort()


@dataclass(frozen=True)
class Column:
    """A feature of a table as its file has it: numbers, or one of some categories."""

    name: str
    categories: tuple[str, ...] | None = None
    """None: numbers. A category is stored as its place in this list, -1 for a missing one."""

    def text(self) -> str:
        """For people."""
        return f"{self.name} ({'number' if self.categories is None else f'{len(self.categories)} categories'})"


@dataclass(frozen=True)
class RawData:
    """A whole source as arrays: (N, H, W, C) uint8 images and (N,) int64 labels of both splits.

    A table's rows are (N, 1, F, 1) float64, one value per column of `columns`, before anything is standardised.
    """

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    class_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    stated: tuple[str, ...] = ()
    """What a reader of any number must know about the data; reports repeat it."""
    train_clients: np.ndarray | None = None
    """(N,) int64 places in `client_names`, where the source names clients and they were asked for."""
    client_names: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    """Of a table; empty for images."""
    key: str = ""
    """Names files and reading: equal keys, equal arrays."""
    pixels: str = ""
    """A digest of all images in order, where reading them anew would take long."""

    @property
    def unit(self) -> str:
        """What one sample is called."""
        return "row" if self.columns else "image"


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
        faults += single_class(raw.class_names)
        for labels, split in ((raw.train_labels, "training"), (raw.test_labels, "test")):
            absent = np.flatnonzero(np.bincount(labels, minlength=len(raw.class_names)) == 0)
            if len(absent):
                names = [(int(c), raw.class_names[c]) for c in absent[:10]]
                shown = ", ".join(f"{c} ({name}{meant(name, raw.class_names)})" for c, name in names)
                faults.append(f"no {split} {raw.unit} of class {shown}; classes are numbered 0 to C-1 without gaps")
    if faults:
        raise DataError(f"{where}: {'; '.join(faults)}")
    return raw


def single_class(names: Sequence[str]) -> Iterator[str]:
    """The fault of data in which all is of one class; none where there are several."""
    if len(names) == 1:
        yield f"{names[0]} is the only class; with a single class there is nothing to tell apart: give at least two"


def alike(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Groups of names that differ only in case or spaces, as slips of the pen do."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault("".join(name.split()).casefold(), []).append(name)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def meant(name: str, names: Sequence[str]) -> str:
    """A question with the names that differ from this one only in case or spaces; empty without such names."""
    others = [other for group in alike(names) if name in group for other in group if other != name]
    return f", did you mean {' or '.join(others)}?" if others else ""


def _split_faults(images: np.ndarray, labels: np.ndarray, split: str, raw: RawData) -> list[str]:
    faults = []
    if images.ndim != 4 or images.dtype != (np.float64 if raw.columns else np.uint8):
        faults.append(f"{split} images are {images.dtype} {images.shape}, expected uint8 (N, H, W, C)")
    if len(images) != len(labels):
        faults.append(f"{len(images)} {split} {raw.unit}s but {len(labels)} labels")
    if not len(labels):
        faults.append(f"there are no {split} {raw.unit}s")
    elif labels.min() < 0 or labels.max() >= len(raw.class_names):
        row = int(np.flatnonzero((labels < 0) | (labels >= len(raw.class_names)))[0])
        faults.append(f"{split} row {row} has label {labels[row]}; labels run from 0 to {len(raw.class_names) - 1}")
    return faults
