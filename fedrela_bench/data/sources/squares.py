"""Blocks of image files decoded to squares, in this process or in others."""

from __future__ import annotations

import hashlib
import math
import multiprocessing
import os
import signal
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from fedrela_bench.data.sources.decode import grey_or_rgb

CHANNELS = 3


@dataclass(frozen=True)
class Task:
    """A block of images and where its pixels go."""

    images: tuple[tuple[str, str], ...]
    """Name for messages, and file."""
    target: Path
    """The array's file, which is there in its full size."""
    offset: int
    """Bytes before the block in it."""
    side: int


@dataclass(frozen=True)
class Done:
    """What became of a block."""

    digest: str = ""
    """Of its pixels."""
    source_bytes: int = 0
    """Of its files."""
    faults: tuple[str, ...] = ()
    """Images that cannot be decoded; then nothing is written."""


def decode_block(task: Task) -> Done:
    """Decode a block, write it to its place and have the disk take it.

    Raises:
        OSError: the block cannot be written.
    """
    pixels = np.empty((len(task.images), task.side, task.side, CHANNELS), dtype=np.uint8)
    faults, size = [], 0
    for row, (name, path) in enumerate(task.images):
        try:
            size += Path(path).stat().st_size
            pixels[row] = square(path, task.side)
        except Exception as error:  # Pillow's plugins raise many kinds
            reason = "of no known format" if isinstance(error, UnidentifiedImageError) else str(error) or "damaged"
            faults.append(f"{path} ({name}) is not a readable image ({reason})")
    if faults:
        return Done(faults=tuple(faults))
    with task.target.open("r+b") as file:
        file.seek(task.offset)
        file.write(pixels.data)
        file.flush()
        os.fsync(file.fileno())
    return Done(pixels_hash(pixels), size)


def pixels_hash(pixels: np.ndarray) -> str:
    """32 hexadecimal digits over a block of images."""
    return hashlib.blake2b(np.ascontiguousarray(pixels).data, digest_size=16).hexdigest()


def square(path: str | Path, side: int) -> np.ndarray:
    """(side, side, 3) uint8: the centre square of the shorter side, scaled bilinearly; grey has three equal channels.

    Raises:
        Exception: whatever Pillow finds wrong.
    """
    with warnings.catch_warnings():
        # About metadata; pixels that cannot be read are errors.
        warnings.simplefilter("ignore")
        with Image.open(path) as opened:
            # A JPEG may be decoded at a fraction of its size, as long as there are still two pixels for each of ours.
            width, height = opened.size
            scale = 2 * side / min(width, height)
            opened.draft(None, (math.ceil(width * scale), math.ceil(height * scale)))
            image = grey_or_rgb(opened)
            width, height = image.size
            short = min(width, height)
            left, top = (width - short) / 2, (height - short) / 2
            box = (left, top, left + short, top + short)
            return np.asarray(image.resize((side, side), Image.Resampling.BILINEAR, box=box).convert("RGB"))


def start_worker() -> None:
    """Leave interrupts to the parent, and end when it is gone: a killed one can end nobody."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
