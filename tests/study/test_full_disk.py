"""A disk that fills up ends a run with a message, and what was written before stays whole."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedrela_bench.errors import StoreError
from fedrela_bench.study.cell import run_cell
from fedrela_bench.study.lineage import curve_of
from fedrela_bench.study.trunk import run_trunk
from fedrela_bench.tracking.journal import Journal
from fedrela_bench.tracking.mlflow_sink import Sink, sync
from tests.study.fakes import FakeDataset, FakeRun, config, runtime
from tests.tracking.test_mlflow import ROUNDS, Study

DATA = FakeDataset("data-1")
CELL = config(relabel__tau=0.1, relabel__start=0.6)


class Quota:
    """The n-th forced write of this process and all after it find the disk full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, allowed: int) -> None:
        self.allowed, self.real = allowed, os.fsync
        monkeypatch.setattr(os, "fsync", self.fsync)

    def fsync(self, descriptor: int) -> None:
        if self.allowed <= 0:
            raise OSError(28, "No space left on device")
        self.allowed -= 1
        self.real(descriptor)


@pytest.mark.parametrize("allowed", range(0, 24, 3))
def test_a_full_disk_in_the_store_loses_only_what_did_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    environment = runtime(tmp_path)
    quota = Quota(monkeypatch, allowed)
    with contextlib.suppress(StoreError):
        run_trunk(CELL, DATA, environment, [6])
        run_cell(CELL, DATA, environment)
    quota.allowed = 10**6
    run_cell(CELL, DATA, environment)
    lines = curve_of(environment.lineage(CELL, "data-1"))
    expected = [result.metrics["val/tail"] for result in FakeRun(CELL, environment.engine)]  # type: ignore[arg-type]
    assert [line["result"]["metrics"]["val/tail"] for line in lines] == expected
    assert not list(tmp_path.rglob("*.tmp"))
    assert environment.store.damaged == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes, where this process may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("no right to mount a small disk here; the test with injected faults covers the same code")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_journal_on_a_really_full_disk_keeps_its_whole_lines(small_disk: Path) -> None:
    journal, written = Journal(small_disk / "rounds.jsonl"), 0
    while shutil.disk_usage(small_disk).free > 20_000:
        journal.append({"round": written + 1, "text": "x" * 10_000})
        written += 1
    with pytest.raises(StoreError, match="No space left on device; free space and repeat"):
        journal.append({"round": written + 1, "text": "x" * 40_000})
    assert len(journal.rounds(1)) == written > 100
    (small_disk / "rounds.jsonl").rename(small_disk / "old.jsonl")
    (small_disk / "old.jsonl").unlink()
    journal.append({"round": 1})
    assert journal.lines() == [{"round": 1}]


def test_a_full_disk_at_mlflow_is_an_outage_that_sync_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedrela_bench.tracking.backend import Backend

    (tmp_path / "empty.db").touch()
    study = Study(tmp_path, tmp_path / "empty.db")
    study.write("t1", 1, ROUNDS)
    study.finish("t1")
    upload = Backend.upload

    def full(self: Any, *arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Backend, "upload", full)
    warnings: list[str] = []
    assert not Sink(study.out, study.uri, warnings.append).close("FINISHED")
    assert len(warnings) == 1 and "No space left on device" in warnings[0]
    monkeypatch.setattr(Backend, "upload", upload)
    sync(study.out)
    assert study.runs()["t1"].info.status == "FINISHED"
    assert len(study.points("t1")) == ROUNDS
    assert json.loads((study.out / "study.json").read_text())["study"] == "abc"
