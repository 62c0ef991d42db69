"""Ray on a busy machine: its start is tried again, and one that fails is a sentence, not a traceback."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from fedrela_bench.errors import ConfigError, RunError
from fedrela_bench.study import connection
from fedrela_bench.study.cluster import Capacity
from fedrela_bench.study.interrupt import handlers_kept

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


def test_what_another_try_does_not_mend_is_not_tried_again() -> None:
    tries: list[int] = []

    def start() -> None:
        tries.append(1)
        raise ValueError("no such folder")

    with pytest.raises(ValueError, match="no such folder"):
        connection.patiently(start)
    assert tries == [1]


def test_a_ray_that_does_not_start_is_said_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "init", failing(Exception(LATE)))
    with pytest.raises(RunError) as caught:
        connection._start(Capacity(((2.0, 0.0),)), tmp_path)
    assert str(caught.value).startswith("Ray did not start (The current node timed out during startup. This")
    assert "repeat the command" in str(caught.value) and "logs" not in str(caught.value)


def test_a_cluster_that_cannot_be_joined_names_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "init", failing(RuntimeError("Version mismatch: 2.60 and 2.44\nmore")))
    with pytest.raises(ConfigError, match=r"^cannot join .* at h:1 \(Version mismatch: 2.60 and 2.44\); check --ray-"):
        connection._connect("h:1", 1)


def test_ray_does_not_change_what_signals_do() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with handlers_kept():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGTERM) is before
