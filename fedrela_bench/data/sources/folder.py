"""Trees of image files: train/<class>/ and test/<class>/, or clients/<client>/<class>/ in a natural federation."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedrela_bench.data.sources.decode import Decoder, Item, squeeze_grey
from fedrela_bench.data.sources.raw import RawData, Reading, single_class
from fedrela_bench.data.sources.split import draw_test
from fedrela_bench.errors import DataError

SPLITS = ("train", "test")
CLIENTS = "clients"
Listing = dict[str, dict[str, list[Path]]]
"""Per split and class the image files in order."""
ClientListing = dict[str, dict[str, list[Path]]]
"""Per client and class the image files in order; test images under the client ``""``."""


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
        named = f"; it has {CLIENTS}/: set data.partition to natural" if (root / CLIENTS).is_dir() else ""
        raise DataError(
            f"{root.absolute()} has no {' and no '.join(missing)}; folder: expects train/<class>/ and test/<class>/"
            f"{named}"
        )
    listing: Listing = {}
    ignored: list[Path] = []
    for split in SPLITS:
        listing[split] = {}
        for folder in _folders(root / split):
            listing[split][folder.name], others = _images(folder)
            ignored += others
    _check(root, listing)
    return listing, _ignored_note(root, ignored)


def list_clients(root: Path) -> tuple[ClientListing, tuple[str, ...]]:
    """Find the images of a natural federation: clients/<client>/<class>/, and test/<class>/ where it is there.

    A client may lack classes. Returns as `list_folder`; with test images under the client ``""``.

    Raises:
        DataError: no clients/, a client or class folder without images, or test/ has other classes.
    """
    if not (root / CLIENTS).is_dir():
        raise DataError(
            f"{root.absolute()} has no {CLIENTS}/; a natural federation of images is {CLIENTS}/<client>/<class>/, with "
            "test/<class>/ beside it or without; or set data.partition to dirichlet"
        )
    listing: ClientListing = {}
    ignored: list[Path] = []
    groups = [(client.name, client) for client in _folders(root / CLIENTS)]
    for name, place in [*groups, *([("", root / "test")] if (root / "test").is_dir() else [])]:
        listing[name] = {}
        for folder in _folders(place):
            listing[name][folder.name], others = _images(folder)
            ignored += others
    _check_clients(root, listing)
    return listing, _ignored_note(root, ignored)


def read_clients(root: Path, listing: ClientListing, reading: Reading) -> RawData:
    """Decode a listed federation; classes and clients are numbered in the order of their sorted names.

    Raises:
        DataError: unreadable or differently sized images, or a class too small for a test split.
    """
    classes = sorted({name for client in listing.values() for name in client})
    names = tuple(name for name in listing if name)
    everyone = [*names, *(name for name in listing if not name)]
    found = [
        (number, label, path)
        for number, name in enumerate(everyone)
        for label, kind in enumerate(classes)
        for path in listing[name].get(kind, ())
    ]
    decoder = Decoder(reading.image_size)
    images = decoder.decode([(str(path), path) for _, _, path in found], len(found))
    images = squeeze_grey(images, decoder.colour)
    owners, labels = (np.array([row[place] for row in found], dtype=np.int64) for place in (0, 1))
    held = owners < len(names)
    raw = RawData(
        images[held],
        labels[held],
        images[~held],
        labels[~held],
        tuple(classes),
        train_clients=owners[held],
        client_names=names,
    )
    return raw if len(everyone) > len(names) else draw_test(raw, reading, lambda row: str(found[row][2]))


def files_of(listing: Listing) -> list[Path]:
    """All files in reading order."""
    return [path for group in listing.values() for paths in group.values() for path in paths]


def read_folder(root: Path, listing: Listing, reading: Reading) -> RawData:
    """Decode a listed tree; classes are numbered in the order of their sorted names.

    Raises:
        DataError: unreadable or differently sized images.
    """
    decoder = Decoder(reading.image_size, len(files_of(listing)))
    images: dict[str, np.ndarray] = {}
    labels: dict[str, np.ndarray] = {}
    for split in SPLITS:
        items: list[Item] = [(str(path), path) for group in listing[split].values() for path in group]
        images[split] = decoder.decode(items, len(items))
        sizes = [len(group) for group in listing[split].values()]
        labels[split] = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
    train, test = (squeeze_grey(images[split], decoder.colour) for split in SPLITS)
    return RawData(train, labels["train"], test, labels["test"], tuple(listing["train"]))


def _folders(place: Path) -> list[Path]:
    return sorted(path for path in place.iterdir() if path.is_dir() and path.name[0] != ".")


def _ignored_note(root: Path, ignored: list[Path]) -> tuple[str, ...]:
    shown = ", ".join(str(path.relative_to(root)) for path in ignored[:3])
    return (f"{len(ignored)} files are no images and were left out: {shown}",) if ignored else ()


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
    faults += single_class(sorted(train | test))
    _refuse(root, faults)


def _check_clients(root: Path, listing: ClientListing) -> None:
    held = {name for client, classes in listing.items() if client for name in classes}
    test = set(listing.get("", held))
    faults = [f"class {name} is in test/ but no client has it" for name in sorted(test - held)]
    faults += [f"class {name} is with clients but not in test/" for name in sorted(held - test)]
    for client, classes in listing.items():
        place = f"{CLIENTS}/{client}/" if client else "test/"
        if not classes:
            faults.append(f"{place} holds no class folders; remove it or add <class>/ folders of images")
        faults += [f"{place}{name}/ holds no image" for name, files in classes.items() if not files]
    if not held:
        faults.append(f"{CLIENTS}/ holds no <client>/<class>/ folders")
    faults += single_class(sorted(held | test))
    _refuse(root, faults)


def _refuse(root: Path, faults: list[str]) -> None:
    if faults:
        more = f"; and {len(faults) - 10} more" if len(faults) > 10 else ""
        raise DataError(f"{root.absolute()}: {'; '.join(faults[:10])}{more}")
