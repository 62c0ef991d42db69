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

from fedrela_bench import leases
from fedrela_bench.cli import main
from fedrela_bench.errors import StoreError
from fedrela_bench.files import full_disk
from fedrela_bench.study.cell import run_cell
from fedrela_bench.study.lineage import curve_of
from fedrela_bench.study.runner import tune
from fedrela_bench.study.trunk import run_trunk
from fedrela_bench.tracking.journal import Journal
from fedrela_bench.tracking.mlflow_sink import Sink, sync
from tests.study.fakes import FakeDataset, FakeRun, config, request, runtime
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


class WrappedError(Exception):
    """What a library makes of another one's error."""


def wrapped() -> Exception:
    try:
        try:
            raise OSError(28, "No space left on device", "/a/journal")
        except OSError as error:
            raise WrappedError("the search failed") from error
    except WrappedError as error:
        return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device", "/a/b"), "[Errno 28] No space left on device: '/a/b'"),
        (wrapped(), "[Errno 28] No space left on device: '/a/journal'"),
        (
            WrappedError("ray::f()\n  OSError: [Errno 28] No space left on device\nmore"),
            "OSError: [Errno 28] No space left on device",
        ),
        (
            WrappedError("(sqlite3.OperationalError) database or disk is full"),
            "(sqlite3.OperationalError) database or disk is full",
        ),
        (OSError(122, "Disk quota exceeded"), "[Errno 122] Disk quota exceeded"),
        (OSError(13, "Permission denied"), None),
        (ValueError("full of hope"), None),
    ],
)
def test_a_full_disk_is_recognised_through_what_libraries_make_of_it(error: Exception, said: str | None) -> None:
    assert full_disk(error) == said


def test_an_error_that_is_its_own_cause_ends() -> None:
    error = ValueError("round")
    error.__context__ = other = ValueError("and round")
    other.__context__ = error
    assert full_disk(error) is None


def test_a_study_whose_disk_fills_up_under_ray_or_optuna_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that is tried on the way out hides why, and the same command goes on."""

    def full(*arguments: Any) -> None:
        raise wrapped()

    def still_full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedrela_bench.study.work.Work.compute", full)
    monkeypatch.setattr("fedrela_bench.study.ledger.Ledger.release", still_full)
    with pytest.raises(
        StoreError, match=r"no space is left on a disk \(.*/a/journal.*\); free some, .*fedrela-bench tune"
    ):
        tune(request(tmp_path / "study", {"algorithm": "fedavg"}))
    assert json.loads((tmp_path / "study" / "study.json").read_text())["status"] == "failed"
    assert leases.holder(tmp_path / "study" / ".lock") is None


def test_any_verb_says_that_a_disk_is_full(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(*arguments: Any, **named: Any) -> int:
        raise OSError(28, "No space left on device", "/a/b")

    monkeypatch.setattr("fedrela_bench.cli.app", full)
    assert main(["run"]) == 1
    told = "no space is left on a disk ([Errno 28] No space left on device: '/a/b'); free some and repeat the command"
    assert capsys.readouterr().err == f"error: {told}\n"
