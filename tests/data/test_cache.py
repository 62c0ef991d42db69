"""The cache of decoded arrays: hits, damage, kills, unwritable places."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedrela_bench.data.sources.cache import load_or_build
from fedrela_bench.data.sources.raw import ARRAYS, RawData
from fedrela_bench.errors import DataError
from tests.data.makers import pixels


class Builder:
    """Counts how often the arrays are built."""

    def __init__(self) -> None:
        self.built = 0

    def __call__(self) -> RawData:
        self.built += 1
        return RawData(pixels(6), np.arange(6), pixels(3, start=1), np.arange(3), ("a", "b"), ("a note",))


@pytest.fixture
def source(tmp_path: Path) -> list[tuple[str, Path]]:
    path = tmp_path / "source.bin"
    path.write_bytes(b"content")
    return [("source.bin", path)]


def entry_of(cache: Path) -> Path:
    return next(path for path in (cache / "arrays").iterdir() if path.is_dir())


def same(first: RawData, second: RawData) -> bool:
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in ARRAYS)


def test_built_once_and_memory_mapped(cache: Path, source: list[tuple[str, Path]]) -> None:
    build = Builder()
    first = load_or_build(cache, "x", source, {}, build)
    second = load_or_build(cache, "x", source, {}, build)
    assert build.built == 1
    assert isinstance(second.train_images, np.memmap)
    assert not second.train_images.flags.writeable
    assert same(first, second)
    assert same(first, Builder()())
    assert (second.class_names, second.notes) == (("a", "b"), ("a note",))
    assert not list((cache / "arrays").glob("*.tmp"))


def test_keyed_by_content_name_and_parameters_not_by_place(
    tmp_path: Path, cache: Path, source: list[tuple[str, Path]]
) -> None:
    build = Builder()
    load_or_build(cache, "x", source, {"size": None}, build)
    moved = tmp_path / "elsewhere" / "source.bin"
    moved.parent.mkdir()
    moved.write_bytes(b"content")
    load_or_build(cache, "x", [("source.bin", moved)], {"size": None}, build)
    assert build.built == 1
    load_or_build(cache, "x", source, {"size": 8}, build)
    load_or_build(cache, "x", [("other.bin", moved)], {"size": None}, build)
    source[0][1].write_bytes(b"CONTENT")
    load_or_build(cache, "x", source, {"size": None}, build)
    assert build.built == 4


@pytest.mark.parametrize("damage", ["truncate", "flip", "missing array", "missing meta", "bad meta", "edited meta"])
def test_damage_is_rebuilt(cache: Path, source: list[tuple[str, Path]], damage: str) -> None:
    build = Builder()
    load_or_build(cache, "x", source, {}, build)
    images, meta = entry_of(cache) / "train_images.npy", entry_of(cache) / "meta.json"
    if damage == "truncate":
        images.write_bytes(images.read_bytes()[:-10])
    elif damage == "flip":
        content = bytearray(images.read_bytes())
        content[500] ^= 1
        images.write_bytes(content)
    elif damage == "missing array":
        images.unlink()
    elif damage == "missing meta":
        meta.unlink()
    else:
        text = meta.read_text()
        meta.write_text(text[:20] if damage == "bad meta" else text.replace('"b"', '"c"'))
    again = load_or_build(cache, "x", source, {}, build)
    assert build.built == 2
    assert same(again, Builder()())
    assert again.class_names == ("a", "b")
    load_or_build(cache, "x", source, {}, build)
    assert build.built == 2


def test_killed_while_writing(tmp_path: Path, cache: Path, source: list[tuple[str, Path]]) -> None:
    ready = tmp_path / "ready"
    code = (
        "import sys, time, pathlib, numpy as np\n"
        "from fedrela_bench.data.sources import cache as module\n"
        "from fedrela_bench.data.sources.raw import ARRAYS, RawData\n"
        "save = np.save\n"
        "def slow(file, array):\n"
        "    save(file, array); file.flush()\n"
        "    pathlib.Path(sys.argv[3]).touch(); time.sleep(60)\n"
        "np.save = slow\n"
        "a = np.zeros((4, 2, 2, 1), np.uint8)\n"
        "build = lambda: RawData(a, np.arange(4), a, np.arange(4), ('a',))\n"
        "module.load_or_build(pathlib.Path(sys.argv[1]), 'x', [('source.bin', pathlib.Path(sys.argv[2]))], {}, build)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", code, cache, source[0][1], ready], env=environment)
    deadline = time.monotonic() + 60
    while not ready.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list((cache / "arrays").glob("*.tmp"))
    build = Builder()
    assert same(load_or_build(cache, "x", source, {}, build), Builder()())
    assert build.built == 1
    assert not list((cache / "arrays").glob("*.tmp"))


def test_full_disk_keeps_arrays_in_memory(
    cache: Path, source: list[tuple[str, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: object, array: np.ndarray) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("numpy.save", full)
    raw = load_or_build(cache, "x", source, {}, Builder())
    assert same(raw, Builder()())
    assert "No space left on device" in raw.notes[-1]
    assert "FEDRELA_CACHE" in raw.notes[-1]
    assert not [path for path in (cache / "arrays").iterdir() if path.suffix != ".lock"]


def test_cache_that_cannot_be_made(tmp_path: Path, source: list[tuple[str, Path]]) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    raw = load_or_build(blocker / "cache", "x", source, {}, Builder())
    assert same(raw, Builder()())
    assert "kept in memory" in raw.notes[-1]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="rights do not bind this user")
def test_read_only_cache(cache: Path, source: list[tuple[str, Path]]) -> None:
    build = Builder()
    load_or_build(cache, "x", source, {}, build)
    (cache / "arrays").chmod(0o500)
    try:
        assert load_or_build(cache, "x", source, {}, build).notes == ("a note",)
        assert "kept in memory" in load_or_build(cache, "y", source, {}, build).notes[-1]
    finally:
        (cache / "arrays").chmod(0o700)


def test_failing_build_leaves_nothing(cache: Path, source: list[tuple[str, Path]]) -> None:
    def fail() -> RawData:
        raise DataError("row 3 is damaged")

    with pytest.raises(DataError, match="row 3"):
        load_or_build(cache, "x", source, {}, fail)
    assert load_or_build(cache, "x", source, {}, Builder()).class_names == ("a", "b")


def test_missing_source_file(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.bin cannot be read"):
        load_or_build(cache, "x", [("gone.bin", tmp_path / "gone.bin")], {}, Builder())


def test_notes_do_not_grow(cache: Path, source: list[tuple[str, Path]]) -> None:
    build = Builder()
    for _ in range(3):
        assert load_or_build(cache, "x", source, {}, build).notes == ("a note",)
    assert replace(build(), notes=()).notes == ()
