"""What a failed baseline tells its user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedrela_bench.errors import ConfigError, DataError, RunError
from fedrela_bench.study.failures import Failure, answer_of, describe, refuse

ray = pytest.importorskip("ray")
TEXT = "\x1b[36mray::run_trunk_task()\x1b[39m (pid=1, ip=1.2.3.4)\n  File x\n\x1b[31mOSError\x1b[0m: no luck\n\n"


def answer(error: Exception, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    def get(call: Any) -> Any:
        raise error

    monkeypatch.setattr(ray, "get", get)
    return answer_of(None, folder, "abc")


def test_the_cause_is_told_and_the_whole_text_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = ray.exceptions.RayTaskError("f", TEXT, OSError("no luck"))
    assert answer(error, tmp_path, monkeypatch)["error"] == "OSError: no luck (details in errors/abc.txt)"
    kept = (tmp_path / "errors" / "abc.txt").read_text()
    assert "File x" in kept and "\x1b" not in kept


def test_without_a_cause_the_last_line_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = ray.exceptions.RayTaskError("f", TEXT, None)
    assert answer(error, tmp_path, monkeypatch)["error"] == "OSError: no luck (details in errors/abc.txt)"
    dead = answer(ray.exceptions.WorkerCrashedError(), tmp_path, monkeypatch)["error"]
    assert dead.startswith("its process ended: The worker died unexpectedly")


def test_a_message_for_users_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = ray.exceptions.RayTaskError("f", TEXT, ConfigError("bad lr; use 0.1"))
    told = answer(error, tmp_path, monkeypatch)
    assert (told["error"], told["kind"]) == ("bad lr; use 0.1", "ConfigError")
    assert describe(DataError("no images"), tmp_path, "k")["kind"] == "DataError"
    assert describe(RunError("odd"), tmp_path, "k") == {"status": "failed", "error": "odd", "kind": ""}
    assert "ValueError: x (details in errors/k.txt)" in describe(ValueError("x"), tmp_path, "k")["error"]


def test_wrong_input_ends_with_its_own_message_and_exit_code(tmp_path: Path) -> None:
    bad = [Failure(f"fedavg baseline seed {seed}", "bad lr; use 0.1", "ConfigError") for seed in (1, 2)]
    with pytest.raises(ConfigError, match=r"^bad lr; use 0.1$"):
        refuse(bad)
    with pytest.raises(DataError, match="no images"):
        refuse([*bad, Failure("b", "no images", "DataError")])
    with pytest.raises(RunError, match=r"fedavg baseline seed 1 failed: bad lr.*\nb failed: odd"):
        refuse([*bad[:1], Failure("b", "odd")])
    refuse([])


def test_a_failure_is_told_even_where_its_text_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "errors").touch()
    error = ray.exceptions.RayTaskError("f", TEXT, OSError("no luck"))
    told = answer(error, tmp_path, monkeypatch)["error"]
    assert told.startswith("OSError: no luck (details in no file, since none could be written: ")
