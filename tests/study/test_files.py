"""Files that several threads or processes write at once are each of their versions, whole, and nothing else stays."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedrela_bench.files import write_atomically
from fedrela_bench.study.gc import LITTER_SECONDS, find_litter
from tests.study.test_gc import make_study

WRITERS = 4


def test_threads_that_write_one_file_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(WRITERS, timeout=60)
    fsync = os.fsync

    def meet(descriptor: int) -> None:
        fsync(descriptor)
        together.wait()

    monkeypatch.setattr(os, "fsync", meet)
    versions = [bytes([65 + writer]) * 5000 for writer in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS) as threads:
        list(threads.map(lambda data: write_atomically(tmp_path / "file", data), versions))
    assert (tmp_path / "file").read_bytes() in versions
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


KILLED = """
import os, sys
from pathlib import Path
from fedrela_bench.files import write_atomically
os.fsync = lambda descriptor: os.kill(os.getpid(), 9)
write_atomically(Path(sys.argv[1]), b"new")
"""


def test_what_a_killed_writer_left_is_litter_once_it_is_old(tmp_path: Path) -> None:
    make_study(tmp_path / "a", tmp_path / "store", "c1", name="a")
    target = tmp_path / "store" / "cells" / "c1" / "config.json"
    before = target.read_bytes()
    assert subprocess.run([sys.executable, "-c", KILLED, str(target)], check=False).returncode == -9
    assert target.read_bytes() == before
    (left,) = target.parent.glob(".config.json.*.tmp")
    assert find_litter(tmp_path / "store").temporary == [], "its writer may still be at work"
    os.utime(left, (left.stat().st_mtime - 2 * LITTER_SECONDS,) * 2)
    assert find_litter(tmp_path / "store").temporary == [left]
