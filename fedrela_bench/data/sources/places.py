"""Where named datasets can lie on a disk, and in which layouts."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedrela_bench.data.sources.raw import RawData
from fedrela_bench.errors import DataError

DATA_VARIABLE = "FEDRELA_DATA"
CACHE_VARIABLE = "FEDRELA_CACHE"
SYSTEM_FOLDERS = {"fashion_mnist": (Path("/usr/share/datasets/fashion-mnist"),)}


@dataclass(frozen=True)
class Layout:
    """A named set: its files, the folders they may lie in (relative to a place), names a parquet folder may have."""

    files: tuple[str, ...]
    folders: tuple[str, ...]
    aliases: tuple[str, ...]
    classes: int
    gzipped: bool = False


LAYOUTS = {
    "fashion_mnist": Layout(
        ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
        ("FashionMNIST/raw", ".", "raw", "fashion-mnist", "fashion_mnist"),
        ("fashion_mnist", "fashion-mnist"),
        10,
        gzipped=True,
    ),
    "cifar10": Layout(
        (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"),
        ("cifar-10-batches-py", "."),
        ("cifar10", "cifar-10"),
        10,
    ),
    "cifar100": Layout(("train", "test", "meta"), ("cifar-100-python", "."), ("cifar100", "cifar-100"), 100),
}


@dataclass(frozen=True)
class Place:
    """A folder to search and how the user knows it."""

    label: str
    path: Path

    def __str__(self) -> str:
        return f"{self.label} {self.path}"


@dataclass(frozen=True)
class Found:
    """Files of a named set: by name for torchvision's formats, or parquet splits."""

    place: Place
    folder: Path
    files: dict[str, Path] | None = None
    splits: dict[str, list[Path]] | None = None

    def paths(self) -> list[tuple[str, Path]]:
        """All files under names that do not depend on where they lie."""
        if self.files is not None:
            return [(path.name, path) for path in self.files.values()]
        return [(path.name, path) for group in (self.splits or {}).values() for path in group]

    def reader(self, source: str) -> Callable[[], RawData]:
        """The function that reads these files."""
        from fedrela_bench.data.sources import idx

        if self.splits is not None:
            splits = self.splits
            return lambda: _canonical(source, splits)
        files = self.files or {}
        readers = {"fashion_mnist": idx.read_fashion_mnist, "cifar10": idx.read_cifar10, "cifar100": idx.read_cifar100}
        return lambda: readers[source](files)


def default_cache_dir() -> Path:
    """FEDRELA_CACHE, or fedrela-bench in the user's cache directory."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(base) if base else Path.home() / ".cache") / "fedrela-bench"


def places(source: str, data_dir: Path | None, cache_dir: Path) -> list[Place]:
    """The folders to search for a named set, in order.

    Raises:
        DataError: `data_dir` is given and does not exist.
    """
    listed = []
    if data_dir is not None:
        if not data_dir.is_dir():
            raise DataError(
                f"data_dir {data_dir.absolute()} does not exist or is no folder; correct it or leave it out"
            )
        listed.append(Place("data_dir", data_dir.absolute()))
    variable = os.environ.get(DATA_VARIABLE)
    if variable:
        listed.append(Place(DATA_VARIABLE, Path(variable).expanduser().absolute()))
    listed.append(Place("cache", cache_dir.absolute()))
    return listed + [Place("system", folder) for folder in SYSTEM_FOLDERS.get(source, ())]


def search(source: str, listed: list[Place]) -> tuple[Found | None, list[str]]:
    """Look for a named set in every place.

    Returns:
        The first complete one, and for each place searched in vain a line that says what was expected or is missing.
    """
    reasons: list[str] = []
    for place in listed:
        found, reason = _search_imagenet(place) if source == "imagenet" else _search_place(LAYOUTS[source], place)
        if found:
            return found, reasons
        reasons.append(f"{place}: {reason}")
    return None, reasons


def expected(source: str) -> str:
    """What would be accepted in a place, in words."""
    layout = LAYOUTS[source]
    suffix = "[.gz]" if layout.gzipped else ""
    folder = layout.folders[0]
    return (
        f"{folder}/{layout.files[0]}{suffix} ..., or train-*.parquet and test-*.parquet here or in {layout.aliases[0]}/"
    )


def _search_imagenet(place: Place) -> tuple[Found | None, str]:
    from fedrela_bench.data.sources.imagenet import find_lists

    return find_lists(place)


def _search_place(layout: Layout, place: Place) -> tuple[Found | None, str]:
    if not place.path.is_dir():
        return None, "no such folder"
    reasons: list[str] = []
    for name in layout.folders:
        folder = place.path / name
        files = {file: path for file in layout.files if (path := _existing(folder / file, layout.gzipped))}
        if len(files) == len(layout.files):
            return Found(place, folder, files=files), ""
        if files and (name != "." or len(files) > 1):
            missing = [file for file in layout.files if file not in files]
            reasons.append(f"{'it' if name == '.' else name} is incomplete and lacks {', '.join(missing)}")
    for name in (".", *layout.aliases):
        found, reason = _parquet(layout, place, place.path / name)
        if found:
            return found, ""
        reasons += [reason] if reason else []
    return None, "; ".join(reasons) or "nothing of the set"


def _existing(path: Path, gzipped: bool) -> Path | None:
    options = [path, path.with_name(path.name + ".gz")] if gzipped else [path]
    return next((option for option in options if option.is_file()), None)


def _parquet(layout: Layout, place: Place, folder: Path) -> tuple[Found | None, str]:
    if not any(folder.glob("*.parquet")):
        return None, ""
    from fedrela_bench.data.sources.parquet import SPLITS, count_classes, find_splits

    splits = find_splits(folder)
    missing = [f"{split}*.parquet" for split in SPLITS if split not in splits]
    if missing:
        return None, f"parquet files but no {', '.join(missing)}"
    classes = count_classes(splits)
    if classes != layout.classes:
        return None, f"parquet files with {classes} classes, not {layout.classes}"
    return Found(place, folder, splits=splits), ""


def _canonical(source: str, splits: dict[str, list[Path]]) -> RawData:
    from dataclasses import replace

    from fedrela_bench.data.sources.idx import CIFAR10_CLASSES, FASHION_CLASSES
    from fedrela_bench.data.sources.parquet import read_parquet

    names = {"cifar10": CIFAR10_CLASSES, "fashion_mnist": FASHION_CLASSES}
    raw = read_parquet(splits)
    return replace(raw, class_names=names.get(source, raw.class_names))
