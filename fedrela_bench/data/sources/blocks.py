"""Arrays of decoded images that grow block by block on disk: what is decoded once stays, whatever ends the process.

A folder under construction holds the arrays in their full size and a journal with a line per finished block, written
after the block's pixels are on the disk. The finished folder holds the journal's digests under a seal.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedrela_bench.data.sources.squares import CHANNELS, Task, pixels_hash
from fedrela_bench.errors import DataError
from fedrela_bench.files import write_atomically
from fedrela_bench.host import free_disk
from fedrela_bench.nested import digest

FORMAT = 1
BLOCK = 64
"""Images a block: what a process holds at once, and what a kill can lose of its work."""
JOURNAL, META = "blocks.jsonl", "meta.json"
PROBES = 4
"""Blocks of each array that are read to check a finished folder."""
SPARE = 0.01
"""Share of the arrays' size that is left free beside them."""


@dataclass(frozen=True)
class Line:
    """A finished block."""

    split: str
    block: int
    digest: str
    """Of its pixels."""
    source_bytes: int
    """Of the files it was decoded from."""

    @property
    def place(self) -> tuple[str, int]:
        """Which block it is."""
        return self.split, self.block


@dataclass(frozen=True)
class Blocks:
    """The decoded images of one data set.

    Args:
        entry: the finished folder; beside it lies the one under construction.
        counts: images by split, in the order of the digest.
        side: pixels.
    """

    entry: Path
    counts: dict[str, int]
    side: int

    @property
    def staging(self) -> Path:
        """The folder under construction."""
        return self.entry.with_name(f"{self.entry.name}.part")

    @property
    def image_bytes(self) -> int:
        """Of one image."""
        return self.side * self.side * CHANNELS

    def total_bytes(self) -> int:
        """Of all arrays."""
        return sum(self.counts.values()) * self.image_bytes

    def places(self) -> Iterator[tuple[str, int]]:
        """All blocks in order."""
        for split, count in self.counts.items():
            yield from ((split, block) for block in range(-(-count // BLOCK)))

    def rows(self, split: str, block: int) -> range:
        """Images of a block."""
        return range(block * BLOCK, min((block + 1) * BLOCK, self.counts[split]))

    def array(self, folder: Path, split: str) -> np.ndarray:
        """(N, side, side, 3) uint8, mapped read-only.

        Raises:
            OSError: not there.
            ValueError: not such an array.
        """
        array: np.ndarray = np.load(folder / f"{split}_images.npy", mmap_mode="r")
        if array.shape != self._shape(split) or array.dtype != np.uint8:
            raise ValueError(f"{folder}: {split} is {array.dtype} {array.shape}")
        return array

    def begin(self, current: Callable[[Line], bool]) -> dict[tuple[str, int], Line]:
        """Make the folder under construction, or find what an earlier process left there.

        Args:
            current: whether a block's files are still those that it was decoded from.

        Returns:
            The finished blocks.

        Raises:
            DataError: there is not enough space for the rest.
            OSError: the folder cannot be written.
        """
        done = {line.place: line for line in self._done() if current(line)} if self.staging.exists() else {}
        missing = self.total_bytes() - sum(len(self.rows(*place)) for place in done) * self.image_bytes
        self._check_space(missing)
        if not done:
            shutil.rmtree(self.staging, ignore_errors=True)
            self.staging.mkdir(parents=True)
            for split in self.counts:
                path = self.staging / f"{split}_images.npy"
                np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=self._shape(split))
        self._rewrite(done)
        return done

    def task(self, split: str, block: int, images: tuple[tuple[str, str], ...]) -> Task:
        """What decodes a block into its place."""
        target = self.staging / f"{split}_images.npy"
        header = target.stat().st_size - self.counts[split] * self.image_bytes
        return Task(images, target, header + block * BLOCK * self.image_bytes, self.side)

    def note(self, line: Line) -> None:
        """Write into the journal that a block is finished."""
        with (self.staging / JOURNAL).open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(line)) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def finish(self, done: dict[tuple[str, int], Line]) -> None:
        """Seal the folder and put it in its place."""
        lines = [asdict(done[place]) for place in self.places()]
        body = {"format": FORMAT, "counts": self.counts, "side": self.side, "blocks": lines}
        write_atomically(self.staging / META, json.dumps({**body, "seal": digest(body)}).encode())
        shutil.rmtree(self.entry, ignore_errors=True)
        self.staging.replace(self.entry)

    def finished(self, thorough: bool = False) -> list[Line] | None:
        """The blocks of a finished and undamaged folder in order; None where there is none.

        Args:
            thorough: read every block, not only some of each array.
        """
        try:
            meta: dict[str, Any] = json.loads((self.entry / META).read_text(encoding="utf-8"))
            seal = meta.pop("seal")
            if meta["format"] != FORMAT or seal != digest(meta) or meta["counts"] != self.counts:
                return None
            lines = [Line(**line) for line in meta["blocks"]]
            chosen = lines if thorough else probes(lines)
            whole = all(self._digest_of(self.entry, line) == line.digest for line in chosen)
            return lines if whole else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _done(self) -> list[Line]:
        """Blocks of the journal whose pixels are on the disk."""
        done = []
        try:
            for text in (self.staging / JOURNAL).read_text(encoding="utf-8").splitlines():
                line = Line(**json.loads(text))
                if self._digest_of(self.staging, line) == line.digest:
                    done.append(line)
        except (OSError, ValueError, TypeError, KeyError):
            pass  # The last line may be cut; what is behind it is decoded again.
        return done

    def _rewrite(self, done: dict[tuple[str, int], Line]) -> None:
        """A journal without a cut line, to which lines can be added."""
        text = "".join(json.dumps(asdict(line)) + "\n" for line in done.values())
        write_atomically(self.staging / JOURNAL, text.encode())

    def _digest_of(self, folder: Path, line: Line) -> str:
        rows = self.rows(*line.place)
        pixels = self.array(folder, line.split)[rows.start : rows.stop]
        return pixels_hash(pixels)

    def _shape(self, split: str) -> tuple[int, int, int, int]:
        return self.counts[split], self.side, self.side, CHANNELS

    def _check_space(self, missing: int) -> None:
        free, needed = free_disk(self.entry.parent) or 0, int(missing * (1 + SPARE))
        if free < needed:
            raise DataError(
                f"decoded images of {self.side}x{self.side} pixels need {needed / 1e9:,.1f} GB in {self.entry.parent}, "
                f"which has {free / 1e9:,.1f} GB free; free space, set FEDRELA_CACHE to a folder of a larger disk, or "
                "lower data.image_size"
            )


def probes(lines: list[Line]) -> list[Line]:
    """Some blocks of every array, evenly spread, the first and the last among them."""
    chosen = []
    for split in dict.fromkeys(line.split for line in lines):
        mine = [line for line in lines if line.split == split]
        places = np.unique(np.linspace(0, len(mine) - 1, PROBES).round().astype(int))
        chosen += [mine[place] for place in places]
    return chosen


def pixels_digest(lines: list[Line]) -> str:
    """One digest over all pixels: of the blocks' digests in order."""
    return digest([[line.split, line.block, line.digest] for line in lines])
