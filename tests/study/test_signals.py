"""Signals as they arrive: at the driver, at its whole process group, at every process, and while something hangs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from fedrela_bench.study.interrupt import Interrupts, signals_blocked
from tests.study.drive import PATIENT, mlflow_runs, optuna_states, soon, start, wait_for

LITTER = (".stop", ".ray", ".ray_dir", ".tune")


def left_over(out: Path) -> list[str]:
    return [name for name in LITTER if (out / name).exists()]


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize(
    ("signum", "code", "whom"),
    [(signal.SIGINT, 130, "driver"), (signal.SIGTERM, 143, "group"), (signal.SIGTERM, 143, "everyone")],
)
def test_a_signal_stops_cleanly(tmp_path: Path, signum: int, code: int, whom: str) -> None:
    process = start(tmp_path, bound=PATIENT)
    wait_for(process, "[1/6]")
    helpers = psutil.Process(process.pid).children(recursive=True)
    assert len(helpers) > 3
    if whom == "everyone":
        for helper in helpers:
            helper.send_signal(signum)
    if whom == "group":
        os.killpg(process.pid, signum)
    else:
        process.send_signal(signum)
    output, _ = process.communicate(timeout=PATIENT)
    assert process.returncode == code, output
    assert "stopping after the current rounds" in output
    assert "DONE interrupted" in output
    assert "RUNNING" not in optuna_states(tmp_path)
    runs = mlflow_runs(tmp_path)
    assert {run.info.status for run in runs} <= {"FINISHED", "KILLED"}
    assert next(run for run in runs if run.data.tags["kind"] == "study").info.status == "KILLED"
    assert json.loads((tmp_path / "study.json").read_text())["status"] == "interrupted"
    assert not left_over(tmp_path)
    assert not psutil.wait_procs(helpers, timeout=PATIENT)[1]


@pytest.mark.cluster
@pytest.mark.slow
def test_what_hangs_is_left_with_the_table_and_the_command(tmp_path: Path) -> None:
    process = start(tmp_path, bound=10.0, grace=600.0)
    wait_for(process, "[1/6]")
    helpers = psutil.Process(process.pid).children(recursive=True)
    agents = [helper for helper in helpers if helper.name().endswith("Agent")]
    for helper in helpers:
        if helper.name() == "gcs_server":
            helper.kill()
        elif helper.name().startswith("ray::") and helper not in agents:
            helper.suspend()
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=PATIENT)
    assert time.monotonic() - began < soon(40)
    assert process.returncode == 143, output
    assert f"continue: fedrela-bench tune --dataset digits_lt --out {tmp_path}" in output
    assert json.loads((tmp_path / "study.json").read_text())["status"] == "interrupted"
    assert (tmp_path / "trials.csv").exists()
    assert not left_over(tmp_path)
    assert not psutil.wait_procs([helper for helper in helpers if helper not in agents], timeout=300)[1]
    # These notice by themselves, in their own time, that their node is gone.
    for agent in psutil.wait_procs(agents, timeout=20)[1]:
        agent.kill()


def test_the_last_resort_comes_once_and_only_after_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes, calls, ended = list[int](), list[int](), threading.Event()
    monkeypatch.setattr(os, "_exit", lambda code: (codes.append(code), ended.set()))
    with Interrupts(tmp_path / "stop") as interrupts:
        interrupts.bound(0.05, lambda: calls.append(1))
        time.sleep(0.1)
        assert not calls
        os.kill(os.getpid(), signal.SIGTERM)
        assert ended.wait(PATIENT)
    assert (codes, calls) == ([143], [1])
    assert not (tmp_path / "stop").exists()


HANGS = """
import ctypes, sys
from pathlib import Path
from fedrela_bench.study.interrupt import Interrupts
libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
with Interrupts(Path(sys.argv[1]), lambda text: print(text, flush=True)) as interrupts:
    interrupts.bound(0.5, lambda: print("left", flush=True))
    libc.pthread_mutex_lock(mutex)
    print("hangs", flush=True)
    libc.pthread_mutex_lock(mutex)
"""


def test_a_native_call_that_never_returns_does_not_outlast_the_bound(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HANGS, str(tmp_path / "stop")], stdout=subprocess.PIPE, text=True)
    wait_for(process, "hangs")
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=PATIENT)
    assert process.returncode == 143
    assert output == "stopping after the current rounds; once more stops at once\nleft\n"
    assert not (tmp_path / "stop").exists()


def test_a_study_that_stops_in_time_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(os, "_exit", calls.append)
    with Interrupts(tmp_path / "stop") as interrupts:
        interrupts.bound(1.5, lambda: calls.append(1))
        os.kill(os.getpid(), signal.SIGINT)
    time.sleep(1.7)
    assert not calls


def test_a_signal_while_ray_starts_is_a_stop_request(tmp_path: Path) -> None:
    interrupts = Interrupts(tmp_path / "stop")
    assert not interrupts.adopt(SystemExit(1)) and not interrupts.adopt(KeyboardInterrupt())
    assert interrupts.adopt(SystemExit(int(signal.SIGTERM)))
    assert interrupts.exit_code == 143 and (tmp_path / "stop").exists()
    with Interrupts(tmp_path / "stop") as other:
        with signals_blocked():
            signal.raise_signal(signal.SIGTERM)
            assert not other.stopping
        assert other.stopping
