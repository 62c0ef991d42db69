"""Decoding image files of any format Pillow reads into one uint8 array."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from fedrela_bench.data.sources.limits import refuse_huge
from fedrela_bench.errors import DataError

BLOCK = 128
THREADED_PIXELS = 128 * 128
"""Below this size Python's share of the work outweighs the decoding, and threads would only wait for each other."""

Item = tuple[str, bytes | Path]
"""Where the image is (for messages), and its bytes or its file."""


@dataclass
class Decoder:
    """Decodes splits that must agree in size; remembers whether any image had colour.

    Args:
        size: images are resized to this side length; None: all must have one size.
        total: images of all splits together, which must fit into memory.
    """

    size: int | None = None
    total: int = 0
    colour: bool = False
    first: tuple[str, tuple[int, int]] | None = None
    format: str | None = None

    def decode(self, items: Iterable[Item], count: int) -> np.ndarray:
        """Decode `count` images.

        Returns:
            (count, H, W, 3) uint8; grey images have three equal channels.

        Raises:
            DataError: an image is unreadable or has another size than the first one, or all do not fit into memory.
        """
        iterator = iter(items)
        head = next(iterator, None)
        if head is None:
            return np.empty((0, 0, 0, 3), dtype=np.uint8)
        shape = self._read(head).size[::-1]
        self.first = self.first or (head[0], shape)
        self._refuse_huge(head[0], max(count, self.total), self.first[1])
        images = np.empty((count, *self.first[1], 3), dtype=np.uint8)
        large = shape[0] * shape[1] >= THREADED_PIXELS
        workers = min(8, os.cpu_count() or 1) if large else 1
        start = 0
        with ThreadPoolExecutor(workers) as pool:
            for block in _blocks(chain([head], iterator), workers * BLOCK):
                parts = [(start + at, block[at : at + BLOCK]) for at in range(0, len(block), BLOCK)]
                self.colour |= any(list(pool.map(lambda part: self._fill(images, *part), parts)))
                start += len(block)
        return images

    def _fill(self, images: np.ndarray, start: int, items: list[Item]) -> bool:
        colour = False
        for row, item in enumerate(items, start):
            image = self._read(item)
            self._check_size(item[0], image.size[::-1])
            pixels = np.asarray(image)
            images[row] = pixels if pixels.ndim == 3 else pixels[..., None]
            colour |= pixels.ndim == 3
        return colour

    def _read(self, item: Item) -> Image.Image:
        where, payload = item
        try:
            with self._open(payload) as opened:
                image = grey_or_rgb(opened)
                image.load()
                self.format = opened.format
        except Exception as error:  # Pillow's plugins raise many kinds
            reason = "unknown format" if isinstance(error, UnidentifiedImageError) else str(error)
            raise DataError(f"{where} is not a readable image ({reason}); replace or remove it") from error
        return image if self.size is None else image.resize((self.size, self.size), Image.Resampling.BILINEAR)

    def _open(self, payload: bytes | Path) -> Image.Image:
        # Trying every known format costs more than decoding a small image; a set mostly has one.
        if self.format is not None:
            try:
                return Image.open(_stream(payload), formats=[self.format])
            except UnidentifiedImageError:
                pass
        return Image.open(_stream(payload))

    def _refuse_huge(self, where: str, count: int, shape: tuple[int, int]) -> None:
        what = f"{where}: a set of {count:,} such images of {_shown(shape)}"
        refuse_huge(what, count * shape[0] * shape[1] * 3, "set data.image_size to make them smaller, give fewer")

    def _check_size(self, where: str, shape: tuple[int, int]) -> None:
        assert self.first is not None
        if shape != self.first[1]:
            raise DataError(
                f"images differ in size: {self.first[0]} is {_shown(self.first[1])}, {where} is {_shown(shape)} "
                "(height x width); set data.image_size to resize all"
            )


def squeeze_grey(images: np.ndarray, colour: bool) -> np.ndarray:
    """One channel where no image has colour."""
    return images if colour else np.ascontiguousarray(images[..., :1])


def _stream(payload: bytes | Path) -> io.BytesIO | Path:
    return io.BytesIO(payload) if isinstance(payload, bytes) else payload


def grey_or_rgb(image: Image.Image) -> Image.Image:
    """The image with one or three channels of 8 bits.

    Raises:
        ValueError: its pixels have no known range.
    """
    if image.mode in ("RGB", "L"):
        return image
    if image.mode in ("1", "LA", "La"):
        return image.convert("L")
    if image.mode.startswith("I"):
        # 16-bit grey; Pillow's own conversion would clip at 255.
        wide = np.clip(np.asarray(image).astype(np.int64), 0, 65535)
        return Image.fromarray((wide >> 8).astype(np.uint8))
    if image.mode == "F":
        raise ValueError("floating-point pixels have no known range")
    return image.convert("RGB")


def _blocks(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    while block := list(islice(items, size)):
        yield block


def _shown(shape: tuple[int, int]) -> str:
    return f"{shape[0]}x{shape[1]}"
