"""Trees of image files: train/<class>/ and test/<class>/."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedrela_bench.data.sources.decode import Decoder, Item, squeeze_grey
from fedrela_bench.data.sources.raw import RawData
from fedrela_bench.errors import DataError

SPLITS = ("train", "test")
Listing = dict[str, dict[str, list[Path]]]
"""Per split and class the image files in order."""


def list_folder(root: Path) -> tuple[Listing, tuple[str, ...]]:
    """Find the images of a tree.

    Class folders may hold folders of their own; hidden files and files that Pillow has no format for are left out.

    Returns:
        The files per split and class, and a note if files were left out.

    Raises:
        DataError: a split is missing, or the classes of the two splits differ, or a class has no images.
    """
    missing = [f"{split}/" for split in SPLITS if not (root / split).is_dir()]
    if missing:
        raise DataError(
            f"{root.absolute()} has no {' and no '.join(missing)}; folder: expects train/<class>/ and test/<class>/"
        )
    listing: Listing = {}
    ignored: list[Path] = []
    for split in SPLITS:
        listing[split] = {}
        for folder in sorted(path for path in (root / split).iterdir() if path.is_dir() and path.name[0] != "."):
            listing[split][folder.name], others = _images(folder)
            ignored += others
    _check(root, listing)
    shown = ", ".join(str(path.relative_to(root)) for path in ignored[:3])
    return listing, (f"{len(ignored)} files are no images and were left out: {shown}",) if ignored else ()


def files_of(listing: Listing) -> list[Path]:
    """All files in reading order."""
    return [path for split in SPLITS for paths in listing[split].values() for path in paths]


def read_folder(root: Path, listing: Listing, image_size: int | None) -> RawData:
    """Decode a listed tree; classes are numbered in the order of their sorted names.

    Raises:
        DataError: unreadable or differently sized images.
    """
    decoder = Decoder(image_size)
    images: dict[str, np.ndarray] = {}
    labels: dict[str, np.ndarray] = {}
    for split in SPLITS:
        items: list[Item] = [(str(path.relative_to(root)), path) for group in listing[split].values() for path in group]
        images[split] = decoder.decode(items, len(items))
        sizes = [len(group) for group in listing[split].values()]
        labels[split] = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
    train, test = (squeeze_grey(images[split], decoder.colour) for split in SPLITS)
    return RawData(train, labels["train"], test, labels["test"], tuple(listing["train"]))


def _images(folder: Path) -> tuple[list[Path], list[Path]]:
    from PIL import Image

    known = Image.registered_extensions()
    files = [path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."]
    files.sort(key=lambda path: path.relative_to(folder).as_posix())
    images = [path for path in files if path.suffix.lower() in known]
    return images, [path for path in files if path.suffix.lower() not in known]


def _check(root: Path, listing: Listing) -> None:
    train, test = set(listing["train"]), set(listing["test"])
    faults = [f"class {name} is in train/ but not in test/" for name in sorted(train - test)]
    faults += [f"class {name} is in test/ but not in train/" for name in sorted(test - train)]
    faults += [
        f"{split}/{name}/ holds no image" for split in SPLITS for name, files in listing[split].items() if not files
    ]
    if not train and not test:
        faults.append("train/ and test/ hold no class folders")
    if faults:
        more = f"; and {len(faults) - 10} more" if len(faults) > 10 else ""
        raise DataError(f"{root.absolute()}: {'; '.join(faults[:10])}{more}")
