"""Ray on a busy machine: its start is tried again, and one that fails is a sentence, not a traceback."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from fedrela_bench import host, leases
from fedrela_bench.errors import ConfigError, RunError
from fedrela_bench.study import connection, room
from fedrela_bench.study.cluster import Capacity
from fedrela_bench.study.interrupt import handlers_kept
from fedrela_bench.study.runner import preflight, tune
from tests.study.fakes import request

ray = pytest.importorskip("ray")


def failing(error: Exception) -> Any:
    def init(**settings: Any) -> None:
        raise error

    return init


LATE = "The current node timed out during startup. This could happen because some of the raylet failed\nSee logs"


@pytest.mark.parametrize(("failures", "started"), [(0, True), (3, True), (4, False)])
def test_a_start_that_comes_too_late_on_a_busy_machine_is_tried_again(failures: int, started: bool) -> None:
    left = [Exception(LATE)] * failures

    def start() -> str:
        if left:
            raise left.pop()
        return "up"

    if started:
        assert connection.patiently(start) == "up"
    else:
        with pytest.raises(Exception, match="timed out during startup"):
            connection.patiently(start)
    assert not left


def test_a_failed_start_leaves_no_process_behind() -> None:
    helper = [sys.executable, "-c", "import time; time.sleep(600)"]
    older = subprocess.Popen([*helper, str(Path(ray.__file__).parent / "older")])
    mine = subprocess.Popen(helper)
    started: list[subprocess.Popen[bytes]] = []

    def start() -> str:
        started.append(subprocess.Popen([*helper, str(Path(ray.__file__).parent / "raylet")]))
        if len(started) == 1:
            raise Exception(LATE)
        return "up"

    try:
        assert connection.patiently(start) == "up"
        assert started[0].poll() is not None
        assert [process.poll() for process in (older, mine, started[1])] == [None] * 3
    finally:
        for process in (older, mine, *started):
            process.kill()
            process.wait()


COLLECTION = """
import gc, threading
import ray
from ray._private.worker import global_worker
from fedrela_bench.study.connection import leave, patiently


class Core:
    def __init__(self, core):
        self.core = core

    def __getattr__(self, name):
        return getattr(self.core, name)

    def shutdown_driver(self):
        self.core.shutdown_driver()
        # What the interpreter does at some allocation of any thread, unless it is told not to.
        thread = threading.Thread(target=lambda: gc.isenabled() and gc.collect())
        thread.start()
        thread.join()


settings = {"include_dashboard": False, "log_to_driver": False, "object_store_memory": 80 * 2**20}
patiently(lambda: ray.init("local", num_cpus=1, **settings))
cycle = [ray.put(1)]
cycle.append(cycle)
gc.collect()
del cycle
global_worker.core_worker = Core(global_worker.core_worker)
leave()
print("left", ray.is_initialized(), gc.isenabled())
"""


@pytest.mark.cluster
def test_a_collection_while_ray_is_left_does_not_end_the_process() -> None:
    """Ray's core ends a process whose other threads free references meanwhile; with ray.shutdown() this one exits 1."""
    done = subprocess.run([sys.executable, "-c", COLLECTION], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "left False True\n"), done.stderr


def test_what_another_try_does_not_mend_is_not_tried_again() -> None:
    tries: list[int] = []

    def start() -> None:
        tries.append(1)
        raise ValueError("no such folder")

    with pytest.raises(ValueError, match="no such folder"):
        connection.patiently(start)
    assert tries == [1]


SOCKET = "validate_socket_filename failed: AF_UNIX path length cannot exceed 107 bytes: /x/plasma_store"
OBJECT_STORE = "After taking into account object store and redis memory usage, the amount of memory is less than 5%"


@pytest.mark.parametrize(
    ("error", "fact", "remedy"),
    [
        (
            Exception(LATE),
            "(The current node timed out during startup. This",
            "it was tried 4 times: the machine is too",
        ),
        (OSError(SOCKET), "AF_UNIX path length cannot exceed 107", "set TMPDIR to one, such as /tmp"),
        (NotADirectoryError(20, "Not a directory", "/a/r"), "Not a directory", "set TMPDIR to a folder that can be"),
        (ValueError(OBJECT_STORE), "the amount of memory is less than 5%", "give the container more memory"),
        (
            RuntimeError("Failed to bind 0.0.0.0:6379"),
            "bind 0.0.0.0:6379",
            "end Ray nodes that are left over (`ray stop`)",
        ),
        (RuntimeError("bad luck\nline 2"), "(bad luck)", "`fedrela-bench doctor` shows"),
        (AssertionError(), "(AssertionError)", "repeat the command"),
    ],
)
def test_a_ray_that_does_not_start_is_said_in_a_sentence_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, fact: str, remedy: str
) -> None:
    monkeypatch.setattr(ray, "init", failing(error))
    monkeypatch.setattr(connection, "lacking", lambda temp: iter(()))
    monkeypatch.setattr(room, "lacking", lambda temp: iter(()))
    with pytest.raises(RunError) as caught:
        connection._start(Capacity(((2.0, 0.0),)), tmp_path)
    text = str(caught.value)
    assert text.startswith("Ray did not start (") and fact in text and remedy in text and "\n" not in text


def test_a_disk_or_memory_that_is_too_small_is_said_before_ray_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "init", failing(AssertionError("must not be called")))
    monkeypatch.setattr(room, "free_memory", lambda: 10**12)
    monkeypatch.setattr(host, "free_disk", lambda path: 3 * 2**20)
    with pytest.raises(RunError, match=r"^Ray cannot start: .* has 3 MiB left .*; free space there, or set TMPDIR"):
        connection._start(Capacity(((2.0, 0.0),)), tmp_path)
    monkeypatch.setattr(host, "free_disk", lambda path: None)
    monkeypatch.setattr(room, "free_memory", lambda: 100 * 2**20)
    with pytest.raises(RunError, match=r"^Ray cannot start: 100 MiB of memory are free, .*; end other programs"):
        connection._start(Capacity(((2.0, 0.0),)), tmp_path)


def test_a_disk_that_fills_up_while_ray_starts_is_named_and_not_tried_four_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, tries = [10**12, 0, 0], list[int]()

    def init(**settings: Any) -> None:
        tries.append(1)
        raise Exception(LATE)

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(room, "free_memory", lambda: None)
    monkeypatch.setattr(host, "free_disk", lambda path: free.pop(0))
    with pytest.raises(RunError, match=r"^Ray did not start: .* has 0 MiB left for Ray's sockets and logs"):
        connection._start(Capacity(((2.0, 0.0),)), tmp_path)
    assert tries == [1]


def test_what_this_machine_has_left_is_known(tmp_path: Path) -> None:
    memory, disk = room.free_memory(), host.free_disk(tmp_path / "not" / "there")
    assert memory is not None and memory > 2**20 and disk is not None and disk > 0


def test_a_containers_limit_counts_without_its_caches(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("900\n")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 150\nactive_file 50\n")
    assert room._container_memory(tmp_path) is None
    (tmp_path / "memory.max").write_text("1000\n")
    assert room._container_memory(tmp_path) == 300


def test_a_folder_for_sockets_that_cannot_be_made_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    out = tmp_path / ("long" * 10)
    out.mkdir()
    said = r"can be made .*Not a directory.*; free space there, or set TMPDIR"
    with pytest.raises(RunError, match=said), connection._temp_dir(out):
        pass
    assert not list(out.iterdir())


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            RuntimeError("Version mismatch: 2.60 and 2.44\nmore"),
            r"\(Version mismatch: 2.60 and 2.44\); install the versions",
        ),
        (
            ConnectionError("Could not find any running Ray instance."),
            r"instance.\); check --ray-address, and `ray status`",
        ),
        (ImportError("Ray Client requires pip package `ray[client]`."), r"head node without ray://, such as HOST:6379"),
        (TimeoutError("GCS did not answer"), r"\(GCS did not answer\); check --ray-address"),
        (
            Exception("Can't find a `node_ip_address.json` file"),
            r"start `tune` on a node of the cluster, or `ray start",
        ),
    ],
)
def test_a_cluster_that_cannot_be_joined_names_the_option(
    monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    monkeypatch.setattr(ray, "init", failing(error))
    with pytest.raises(ConfigError, match=f"^cannot join the Ray cluster at h:1 .*{said}"):
        connection._connect("h:1", 1)


def test_a_study_whose_ray_does_not_start_says_so_and_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "init", failing(OSError(SOCKET)))
    out = tmp_path / "study"
    with pytest.raises(RunError, match="Ray did not start") as caught:
        tune(request(out, {"algorithm": "fedavg"}))
    assert caught.value.exit_code == 1
    assert json.loads((out / "study.json").read_text())["status"] == "failed"
    assert not (out / ".ray_dir").exists() and leases.holder(out / ".lock") is None
    assert not list(out.glob("store/*/*/*.json"))
    preflight(request(out, {"algorithm": "fedavg"}))


def test_ray_does_not_change_what_signals_do() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with handlers_kept():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGTERM) is before
