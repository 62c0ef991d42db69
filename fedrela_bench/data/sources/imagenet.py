"""ImageNet-LT: the public split lists, and the images of ILSVRC 2012 wherever they lie.

The training list decides which images train; nothing is drawn. Each image becomes the centre square of its shorter
side. Images are decoded once, into the cache; afterwards only the lists are needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from fedrela_bench.data.sources.blocks import FORMAT, Blocks, Line, pixels_digest, probes
from fedrela_bench.data.sources.decoding import Images, build
from fedrela_bench.data.sources.lists import Split, SplitLists, notes, read_lists, shown
from fedrela_bench.data.sources.places import Found, Place
from fedrela_bench.data.sources.raw import DEFAULT, Effort, RawData
from fedrela_bench.errors import DataError

NAME = "imagenet_lt"
SIDE = 224
"""Pixels that networks of ImageNet are published with."""
LISTS = {"train": "ImageNet_LT_train.txt", "test": "ImageNet_LT_test.txt", "val": "ImageNet_LT_val.txt"}
LIST_FOLDERS = (".", "ImageNet_LT", "ImageNet-LT", "imagenet_lt", "imagenet-lt", "imagenet", "ILSVRC2012")
ROOTS = (".", "ILSVRC2012", "ILSVRC/Data/CLS-LOC", "imagenet", "ImageNet", "images")
"""Where images may lie, seen from the lists or from the place."""
SAMPLE = 32


def find_lists(place: Place) -> tuple[Found | None, str]:
    """The split lists in a place, or what was missing there."""
    if not place.path.is_dir():
        return None, "no such folder"
    reasons: list[str] = []
    for name in LIST_FOLDERS:
        files = {split: path for split, file in LISTS.items() if (path := place.path / name / file).is_file()}
        if {"train", "test"} <= set(files):
            return Found(place, place.path / name, files=files), ""
        if files:
            reasons.append(f"{name}/ lacks {' and '.join(LISTS[s] for s in ('train', 'test') if s not in files)}")
    return None, "; ".join(reasons) or "none of the lists"


def not_found(reasons: Iterable[str]) -> str:
    """What to put where: the images may not be passed on, so that there is nothing to download."""
    looked = "\n".join(f"  {number}. {reason}" for number, reason in enumerate(reasons, 1))
    return (
        f"{NAME} is not on this machine, and cannot be downloaded: the images of ILSVRC 2012 are given by their makers "
        "to those who accept the terms of access (research, teaching), and may not be passed on. Put into one folder\n"
        f"  {LISTS['train']} and {LISTS['test']} (the split lists that the authors of ImageNet-LT publish), and beside "
        "them\n"
        "  train/n01440764/*.JPEG ... (ILSVRC2012_img_train, unpacked) and\n"
        "  val/*.JPEG or val/n01440764/*.JPEG ... (ILSVRC2012_img_val)\n"
        "or links to them, and point data_dir (--data-dir) or FEDRELA_DATA at the folder. Only what the "
        "lists name is read, once; the cache then holds 25 GB at 224 pixels a side, 2 GB at 64 (data.image_size). "
        f"Looked for the lists in:\n{looked}"
    )


@dataclass(frozen=True)
class Root:
    """Where the images lie."""

    folder: Path
    kinds: tuple[str, ...]
    """(C,) the folder of each class's training images."""

    def path(self, split: Split, row: int) -> str | None:
        """The file of an image, where the list says or in (not in) a folder of its class; None where it is not."""
        name, kind = PurePosixPath(split.names[row]), self.kinds[split.labels[row]]
        flat = name.parent.name == kind
        other = name.parent.parent / name.name if flat else name.parent / kind / name.name
        return next((str(path) for option in (name, other) if (path := self.folder / option).is_file()), None)


def find_root(found: Found, lists: SplitLists) -> Root:
    """The folder that the lists' paths start from.

    Raises:
        DataError: no folder has any of the images.
    """
    starts, kinds = dict.fromkeys((found.folder, found.place.path)), lists.folders
    folders = dict.fromkeys((start / name).resolve() for start in starts for name in ROOTS)
    rows = np.unique(np.linspace(0, len(lists.train.names) - 1, SAMPLE).astype(int))
    roots = [Root(folder, kinds) for folder in folders if folder.is_dir()]
    hits = [sum(root.path(lists.train, row) is not None for row in rows) for root in roots]
    if not any(hits):
        tried = ", ".join(str(root.folder) for root in roots)
        raise DataError(
            f"the lists are in {found.folder}, but no image is: none of {tried} has {lists.train.names[0]}; put (or "
            "link) train/ and val/ of ILSVRC 2012 beside the lists"
        )
    return roots[hits.index(max(hits))]


def files_of(root: Root, lists: SplitLists) -> Images:
    """Every image's list and line, and its file.

    Raises:
        DataError: images are missing; how many and the first of them.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    faults = []
    for name, split in (("train", lists.train), ("test", lists.test)):
        paths = [root.path(split, row) for row in range(len(split.names))]
        missing = [f"{split.names[row]} ({split.where(row)})" for row, path in enumerate(paths) if path is None]
        if missing:
            faults.append(
                f"{len(missing):,} of {len(paths):,} {name} images are missing in {root.folder}: {shown(missing)}"
            )
        found[name] = [(split.where(row), path) for row, path in enumerate(paths) if path is not None]
    if faults:
        raise DataError(f"{'; '.join(faults)}. Unpack ILSVRC2012_img_train and ILSVRC2012_img_val there completely")
    return found


def read_imagenet(found: Found, side: int | None, cache: Path, effort: Effort = DEFAULT) -> RawData:
    """Both splits, their pixels mapped from the cache, which is filled first where it is not.

    Args:
        found: the lists.
        side: pixels; None: `SIDE`.
        cache: of decoded images.
        effort: how they are decoded and checked.

    Raises:
        DataError: faulty lists, missing or damaged images, no space.
    """
    files = found.files or {}
    lists = read_lists(files["train"], files["test"])
    blocks = _blocks(lists, files, side or SIDE, cache)

    def current() -> list[Line] | None:
        lines = blocks.finished(effort.thorough)
        return lines if lines is not None and _same_images(blocks, lines, found, lists) else None

    def images() -> Images:
        return files_of(find_root(found, lists), lists)

    lines = current() or build(blocks, current, images, NAME, effort)
    return RawData(
        blocks.array(blocks.entry, "train"),
        lists.train.labels,
        blocks.array(blocks.entry, "test"),
        lists.test.labels,
        lists.class_names,
        stated=tuple(notes(lists, files.get("val"))),
        key=blocks.entry.name,
        pixels=pixels_digest(lines),
    )


def _blocks(lists: SplitLists, files: dict[str, Path], side: int, cache: Path) -> Blocks:
    state = hashlib.sha256(f"{FORMAT} {side}".encode())
    for split in ("train", "test"):
        state.update(files[split].read_bytes())
    counts = {"train": len(lists.train.names), "test": len(lists.test.names)}
    return Blocks(cache / "arrays" / f"{NAME}-{state.hexdigest()[:24]}", counts, side)


def _same_images(blocks: Blocks, lines: list[Line], found: Found, lists: SplitLists) -> bool:
    """Whether the images that lie there, if they do, are as large as those that were decoded, in some blocks."""
    try:
        root = find_root(found, lists)
    except DataError:
        return True
    splits = {"train": lists.train, "test": lists.test}
    for line in probes(lines):
        paths = [root.path(splits[line.split], row) for row in blocks.rows(line.split, line.block)]
        there = [path for path in paths if path is not None]
        if len(there) == len(paths) and sum(Path(path).stat().st_size for path in there) != line.source_bytes:
            return False
    return True
