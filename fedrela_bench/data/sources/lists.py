"""The split lists of ImageNet-LT: one line ``relative/path.JPEG label`` per image.

Source: Liu et al., Large-Scale Long-Tailed Recognition in an Open World, arXiv 1904.05160. The training list is
long-tailed (115,846 images of 1000 classes, 1280 to 5 each), the test list is balanced (50 each).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from fedrela_bench.errors import DataError

PUBLISHED_CLASSES = 1000
PUBLISHED_IMAGES = 115_846
SHOWN = 10


@dataclass(frozen=True)
class Split:
    """A list of images."""

    file: Path
    names: tuple[str, ...]
    """Paths as they stand in the list, relative to the image root."""
    labels: np.ndarray
    """(N,) int64."""
    lines: np.ndarray
    """(N,) int64 line numbers from 1."""

    def where(self, row: int) -> str:
        """A row's list and line, for messages."""
        return f"{self.file.name}, line {self.lines[row]}"


@dataclass(frozen=True)
class SplitLists:
    """The training and the test list, which fit together."""

    train: Split
    test: Split

    @property
    def num_classes(self) -> int:
        """C; labels are 0 to C - 1."""
        return int(self.train.labels.max()) + 1

    @property
    def folders(self) -> tuple[str, ...]:
        """(C,) the folder of each class's training images, such as n01440764; empty where they have no common one."""
        found: list[set[str]] = [set() for _ in range(self.num_classes)]
        for name, label in zip(self.train.names, self.train.labels, strict=True):
            found[label].add(PurePosixPath(name).parent.name)
        return tuple(next(iter(names)) if len(names) == 1 else "" for names in found)

    @property
    def class_names(self) -> tuple[str, ...]:
        """(C,) the folders, where every class has one of its own; otherwise numbers."""
        folders = self.folders
        if all(folders) and len(set(folders)) == len(folders):
            return folders
        return tuple(str(label) for label in range(self.num_classes))


def read_lists(train: Path, test: Path) -> SplitLists:
    """Read and check both lists.

    Raises:
        DataError: no list, lines that are no path and label, labels out of range or with gaps, images listed twice or
            in both, or lists that look swapped; every fault in one message.
    """
    faults: list[str] = []
    splits = [_read(path, faults) for path in (train, test)]
    known = [split for split in splits if split is not None]
    for split in known:
        faults += _twice(split)
    if not faults:
        lists = SplitLists(*known)
        faults += _joint_faults(lists)
    if faults:
        raise DataError(f"{train.parent.absolute()}: {'; '.join(faults)}")
    return lists


def shown(texts: list[str]) -> str:
    """The first of many texts, and how many more there are."""
    more = f" and {len(texts) - SHOWN:,} more" if len(texts) > SHOWN else ""
    return f"{', '.join(texts[:SHOWN])}{more}"


def _read(path: Path, faults: list[str]) -> Split | None:
    """The list, or faults where there is none."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        faults.append(f"{path.name} is not text (byte {error.start} is not UTF-8); download the list again")
        return None
    except OSError as error:
        faults.append(f"{path.name} cannot be read ({error.strerror}); check its rights")
        return None
    if text.lstrip()[:1] == "<":
        faults.append(f"{path.name} is a web page, not a list; download the file itself (its raw form)")
        return None
    rows = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not rows:
        faults.append(f"{path.name} is empty; download the list again")
        return None
    parsed = [(number, _parse(line), line) for number, line in rows]
    bad = [f"line {number} ({line[:60]!r})" for number, found, line in parsed if found is None]
    if bad:
        faults.append(
            f"{path.name}: {len(bad):,} lines are not a relative path and a label from 0 to {PUBLISHED_CLASSES - 1}: "
            f"{shown(bad)}; download the list again"
        )
        return None
    good = [(number, *found) for number, found, _ in parsed if found is not None]
    numbers, names, labels = zip(*good, strict=True)
    return Split(path, tuple(names), np.array(labels, dtype=np.int64), np.array(numbers, dtype=np.int64))


def _parse(line: str) -> tuple[str, int] | None:
    name, *label = line.rsplit(maxsplit=1)
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or len(label) != 1 or not (label[0].isascii() and label[0].isdigit()):
        return None
    return (str(path), int(label[0])) if int(label[0]) < PUBLISHED_CLASSES else None


def _twice(split: Split) -> Iterator[str]:
    first: dict[str, int] = {}
    again = [
        f"{name} in lines {split.lines[first[name]]} and {split.lines[row]}"
        for row, name in enumerate(split.names)
        if first.setdefault(name, row) != row
    ]
    if again:
        yield f"{split.file.name} lists {len(again):,} images twice: {shown(again)}; download the list again"


def _joint_faults(lists: SplitLists) -> Iterator[str]:
    train, test = lists.train, lists.test
    if _swapped(train, test):
        yield (
            f"{train.file.name} is balanced and {test.file.name} is not: the two look swapped; rename them, or "
            "download them again"
        )
        return
    both = sorted(set(train.names) & set(test.names))
    if both:
        yield f"{len(both):,} images are in both lists: {shown(both)}; download the lists again"
    counts = np.bincount(train.labels)
    gaps = [str(label) for label in np.flatnonzero(counts == 0)]
    if gaps:
        yield f"{train.file.name} has no image of class {shown(gaps)}; labels run from 0 to C - 1 without gaps"
    beyond = np.flatnonzero(test.labels >= len(counts))
    if len(beyond):
        row = int(beyond[0])
        yield (
            f"{test.where(row)}: label {test.labels[row]}, but the training list's labels end at {len(counts) - 1} "
            f"({len(beyond):,} such lines); download the lists again"
        )
    untested = [str(label) for label in np.flatnonzero(np.bincount(test.labels, minlength=len(counts)) == 0)]
    if untested:
        yield f"{test.file.name} has no image of class {shown(untested)}; every class is tested"


def _swapped(train: Split, test: Split) -> bool:
    def even(split: Split) -> bool:
        counts = np.bincount(split.labels)
        return bool(counts.min() == counts.max()) and len(counts) > 1

    return even(train) and not even(test)


def notes(lists: SplitLists, val: Path | None) -> Iterator[str]:
    """What every number from these lists is to be read with."""
    counts, tested = np.bincount(lists.train.labels), np.bincount(lists.test.labels)
    yield (
        f"the training list is long-tailed as it is: {len(lists.train.names):,} images, {counts.max():,} to "
        f"{counts.min():,} a class (factor {counts.max() / counts.min():.4g}); nothing is thinned, and "
        "data.imbalance_factor is not used"
    )
    if len(counts) != PUBLISHED_CLASSES or len(lists.train.names) != PUBLISHED_IMAGES:
        yield (
            f"these are not the published lists, which have {PUBLISHED_IMAGES:,} training images of "
            f"{PUBLISHED_CLASSES} classes: {len(lists.train.names):,} of {len(counts)}"
        )
    if tested.min() != tested.max():
        yield f"the test list is not balanced: {tested.min():,} to {tested.max():,} images a class"
    if val is not None:
        yield f"{val.name} is not used: it neither trains nor selects"
