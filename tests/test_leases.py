"""Leases: one writer at a time, and the dead hold nothing, whatever machine they died on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedrela_bench import leases
from fedrela_bench.errors import RunError, StoreError
from fedrela_bench.study.identity import study_lock

HOLD = """
import sys, time
from pathlib import Path
from fedrela_bench import leases
with leases.hold(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""
COUNT = """
import sys, time
from pathlib import Path
from fedrela_bench import leases
leases.POLL_SECONDS = 0.001, 0.01
folder = Path(sys.argv[1])
for _ in range(15):
    with leases.hold(folder / "lease"):
        count = int((folder / "count").read_text())
        time.sleep(0.002)
        (folder / "count").write_text(str(count + 1))
"""


def run(code: str, argument: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code, str(argument)], stdout=subprocess.PIPE, text=True)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another living process that holds ``tmp_path / "lease"``."""
    process = run(HOLD, tmp_path / "lease")
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def tried(path: Path) -> bool:
    with leases.hold(path, until=lambda: True) as held:
        return held


def forged(path: Path, **changes: Any) -> None:
    """A lease that this process seems to have made, with changes."""
    with leases.hold(path):
        values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, **changes}))


def test_what_a_living_process_holds_is_not_taken(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    assert not tried(tmp_path / "lease")
    owner = leases.holder(tmp_path / "lease")
    assert owner is not None and owner.pid == other.pid


def test_a_killed_process_holds_nothing(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    other.send_signal(signal.SIGKILL)
    began = time.monotonic()
    with leases.hold(tmp_path / "lease") as held:
        assert held
    assert time.monotonic() - began < 5
    assert not (tmp_path / "lease").exists()


def test_a_reused_process_id_inherits_nothing(tmp_path: Path) -> None:
    forged(tmp_path / "lease")
    assert not tried(tmp_path / "lease")
    forged(tmp_path / "other", started="1")
    assert tried(tmp_path / "other")


@pytest.mark.parametrize("changes", [{"host": "elsewhere"}, {"place": "another container of this host"}])
def test_on_another_machine_the_heartbeat_decides(tmp_path: Path, changes: dict[str, str]) -> None:
    path = tmp_path / "lease"
    forged(path, started="1", **changes)
    assert not tried(path)
    old = time.time() - leases.LIMIT_SECONDS - 5
    os.utime(path, (old, old))
    assert tried(path)


def test_a_heartbeat_keeps_a_lease_young(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    with leases.hold(path):
        os.utime(path, (1, 1))
        leases.beat()
        assert time.time() - path.stat().st_mtime < 10


def test_a_process_that_slept_too_long_stops_writing(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    with leases.hold(path):
        leases.require(path)
        values = json.loads(path.read_text())
        path.write_text(json.dumps({**values, "token": "new owner"}))
        leases.beat()
        with pytest.raises(RunError, match="taken over while this process did not answer"):
            leases.require(path)
    assert path.exists(), "the new owner's lease was removed"


def test_a_thread_may_hold_a_lease_again_and_other_threads_wait(tmp_path: Path) -> None:
    path, seen = tmp_path / "lease", list[bool]()
    with leases.hold(path), leases.hold(path):
        thread = threading.Thread(target=lambda: seen.append(tried(path)))
        thread.start()
        thread.join()
    assert seen == [False]
    assert tried(path)


def test_litter_is_no_lease(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    path.touch()
    assert not tried(path)
    os.utime(path, (1, 1))
    assert tried(path)


def test_only_one_of_many_takes_over_from_the_dead(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("0")
    forged(tmp_path / "lease", started="1")
    for process in [run(COUNT, tmp_path) for _ in range(4)]:
        assert process.wait(timeout=60) == 0
    assert (tmp_path / "count").read_text() == "60"


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StoreError, match="No space left on device; free space"), leases.hold(tmp_path / "lease"):
        pytest.fail("held without a file")
    assert not list(tmp_path.iterdir())


def test_a_second_driver_is_refused_by_name_and_takes_over_from_a_dead_one(tmp_path: Path) -> None:
    process = run(HOLD, tmp_path / ".lock")
    assert process.stdout is not None
    process.stdout.readline()
    with pytest.raises(StoreError, match=rf"process {process.pid} on .* runs the study"), study_lock(tmp_path):
        pytest.fail("two drivers")
    process.kill()
    process.wait()
    with study_lock(tmp_path):
        assert leases.holder(tmp_path / ".lock") is not None


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe\x00", b'{"host": "a"', b"[1]", b"null", b'{"host":1,"pid":"x","started":"","place":"","token":"t"}'],
)
def test_a_damaged_lease_is_litter_soon_whatever_the_clock_did(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lease"
    for days in (-1, 1):
        path.write_bytes(content)
        assert not tried(path)
        os.utime(path, (time.time() + days * 86400,) * 2)
        assert tried(path)


def test_a_damaged_lease_of_this_machine_names_no_living_process(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    forged(path, pid="x", started="")
    os.utime(path, (1, 1))
    assert tried(path)


def test_a_clock_that_was_set_back_keeps_no_dead_lease(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    forged(path, host="elsewhere", started="1")
    os.utime(path, (time.time() + leases.LIMIT_SECONDS / 2,) * 2)
    assert not tried(path)
    os.utime(path, (time.time() + 86400,) * 2)
    assert tried(path)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lease"
    forged(path, started="1")

    def refuse(*arguments: Any, **settings: Any) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuse)
        with pytest.raises(StoreError, match=r"cannot write .*Permission denied"), leases.hold(path):
            pass
    with leases.hold(path) as held:
        assert held
        # What was done under the lease is no failure because the folder is read-only on the way out.
        monkeypatch.setattr(Path, "unlink", refuse)
    monkeypatch.undo()
    assert leases.holder(path) is not None
