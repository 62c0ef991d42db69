"""Decoding many image files by several processes into arrays on disk, with progress, resumed where it stopped."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from filelock import FileLock, Timeout

from fedrela_bench.data.sources.blocks import Blocks, Line
from fedrela_bench.data.sources.lists import shown
from fedrela_bench.data.sources.raw import DEFAULT, Effort, Tell
from fedrela_bench.data.sources.squares import Done, Task, decode_block, start_worker
from fedrela_bench.errors import DataError
from fedrela_bench.host import usable_cores
from fedrela_bench.words import counted

Images = Mapping[str, Sequence[tuple[str, str]]]
"""By split, of every image its name for messages and its file."""
Place = tuple[str, int]

FEW = 4
"""So many blocks are decoded sooner than processes start."""
AHEAD = 2
"""Blocks given out per process."""
TELL_SECONDS = 10.0
LOCK_SECONDS = 5.0


def tell_stderr(line: str) -> None:
    """Where nobody else wants the progress."""
    print(line, file=sys.stderr, flush=True)


def processors() -> int:
    """Processors that this process may use; fewer where OMP_NUM_THREADS says how many were asked for."""
    here = usable_cores()
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return max(1, min(here, int(asked))) if asked.isdigit() else here


def build(
    blocks: Blocks,
    current: Callable[[], list[Line] | None],
    images: Callable[[], Images],
    label: str,
    effort: Effort = DEFAULT,
) -> list[Line]:
    """The finished blocks, decoded where they are not there yet; of several processes one works, the others wait.

    Args:
        blocks: where they go.
        current: the finished blocks, if they are there and of these images.
        images: finds the files; only called where something is to be decoded.
        label: of the data set, for messages.
        effort: processes, and who hears of the progress.

    Raises:
        DataError: images that cannot be decoded (all of them, once the others are done), or no space.
    """
    try:
        blocks.entry.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(f"{blocks.entry}.lock")
        _acquire(lock, label, effort.tell or tell_stderr)
        try:
            return current() or _build(blocks, images(), label, effort)
        finally:
            lock.release()
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or str(error) or "files cannot be locked there"
        raise DataError(
            f"{label} cannot be decoded into {blocks.entry.parent} ({reason}); set FEDRELA_CACHE to a "
            "folder with space that can be written; what is decoded is kept"
        ) from error


def _acquire(lock: FileLock, label: str, tell: Tell) -> None:
    told = False
    while True:
        try:
            lock.acquire(timeout=LOCK_SECONDS)
            return
        except Timeout:
            if not told:
                tell(f"{label}: another process decodes the images; waiting for it")
            told = True


def _build(blocks: Blocks, images: Images, label: str, effort: Effort) -> list[Line]:
    tell = effort.tell or tell_stderr
    done = blocks.begin(lambda line: _source_bytes(blocks, images, line.place) == line.source_bytes)
    left = [place for place in blocks.places() if place not in done]
    total = sum(blocks.counts.values())
    kept = total - sum(len(blocks.rows(*place)) for place in left)
    workers = _workers(effort.workers, len(left))
    tell(
        f"{label}: decoding {total - kept:,} images to {blocks.side}x{blocks.side} with {counted(workers, 'worker')}, "
        f"{_amount(blocks.total_bytes())} in {blocks.entry.parent}{f'; {kept:,} are there' if kept else ''}"
    )
    progress, faults = _Progress(label, total, kept, tell), list[str]()
    for place, result in _results(_tasks(blocks, images, left), workers):
        faults += result.faults
        if result.faults:
            tell(f"{label}: {result.faults[0]}")
        else:
            done[place] = Line(*place, result.digest, result.source_bytes)
            blocks.note(done[place])
        progress.add(len(blocks.rows(*place)))
    if faults:
        raise DataError(
            f"{label}: {len(faults):,} images cannot be decoded: {shown(sorted(faults))}; replace them by undamaged "
            "copies and run the same command again: all blocks without such an image are kept"
        )
    blocks.finish(done)
    return [done[place] for place in blocks.places()]


def _amount(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"


def _source_bytes(blocks: Blocks, images: Images, place: Place) -> int:
    """Of the files of a block as they are now."""
    rows = blocks.rows(*place)
    return sum(Path(path).stat().st_size for _, path in images[place[0]][rows.start : rows.stop])


def _tasks(blocks: Blocks, images: Images, places: Sequence[Place]) -> list[tuple[Place, Task]]:
    tasks = []
    for split, block in places:
        rows = blocks.rows(split, block)
        tasks.append(((split, block), blocks.task(split, block, tuple(images[split][rows.start : rows.stop]))))
    return tasks


def _workers(asked: int | None, blocks: int) -> int:
    # A daemonic process may not start others.
    alone = multiprocessing.current_process().daemon or (asked is None and blocks <= FEW)
    return 1 if alone else max(1, min(asked or processors(), blocks))


def _results(tasks: Sequence[tuple[Place, Task]], count: int) -> Iterator[tuple[Place, Done]]:
    """Results as they come."""
    if count == 1:
        yield from ((place, decode_block(task)) for place, task in tasks)
        return
    try:
        yield from _side_by_side(tasks, count)
    except BrokenProcessPool as error:
        raise DataError(
            "a process that decodes images ended by itself; it may have been out of memory (OMP_NUM_THREADS=1 decodes "
            'in this one), or a script starts its work outside `if __name__ == "__main__":`; what is decoded is kept, '
            "run the same command again"
        ) from error


def _side_by_side(tasks: Sequence[tuple[Place, Task]], count: int) -> Iterator[tuple[Place, Done]]:
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), initializer=start_worker)
    waiting, running = list(reversed(tasks)), dict[Future[Done], Place]()
    try:
        while waiting or running:
            while waiting and len(running) < AHEAD * count:
                place, task = waiting.pop()
                running[pool.submit(decode_block, task)] = place
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class _Progress:
    """Says every few seconds how far it is and how long it will take at the pace so far."""

    def __init__(self, label: str, total: int, kept: int, tell: Tell) -> None:
        self.label, self.total, self.kept, self.tell = label, total, kept, tell
        self.images, self.started, self.told = kept, time.monotonic(), time.monotonic()

    def add(self, images: int) -> None:
        """So many more are done."""
        self.images += images
        now = time.monotonic()
        if now - self.told < TELL_SECONDS and self.images < self.total:
            return
        self.told = now
        pace = (self.images - self.kept) / max(now - self.started, 1e-9)
        left = (self.total - self.images) / max(pace, 1e-9) / 60
        ahead = f", about {left:,.0f} min left" if self.images < self.total else ""
        self.tell(f"{self.label}: {self.images:,} of {self.total:,} images, {pace:,.0f} a second{ahead}")
