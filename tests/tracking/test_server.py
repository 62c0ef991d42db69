"""A real MLflow server that dies, comes back, or never comes: the study ends well and MLflow has all of it, once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedrela_bench.study.results import StudyResult
from fedrela_bench.study.runner import tune
from fedrela_bench.tracking import mlflow_sink
from fedrela_bench.tracking.mlflow_sink import Sink, sync
from tests.study.drive import local_ray
from tests.study.fakes import FakeEngine, request
from tests.tracking.server import PATIENT, Server, differences, everything

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(3600)]
SPACE: dict[str, Any] = {
    "algorithm": "fedavg",
    "parameters": {"relabel.tau": {"choice": [0.05, 0.1]}, "relabel.start": {"choice": [0.5, 0.7]}},
}
TRIALS, HALF, LATE = 4, 5, 9
OF_THE_STUDY = {"study", "created", "command", "out"}
"""Tags that are different in every study."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One Ray for the module."""
    with local_ray():
        yield


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One database for the module; each test says when a server answers."""
    made = Server(tmp_path_factory.mktemp("mlflow") / "server")
    yield made
    made.kill()


@pytest.fixture(autouse=True)
def patient_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server on a busy machine is no outage, and one that is back is noticed soon."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "120")
    monkeypatch.setattr(mlflow_sink, "POLL_SECONDS", 0.2)
    monkeypatch.setattr(mlflow_sink, "RETRY_SECONDS", 0.5)


def study(out: Path, uri: str | None, gates: dict[int, Path] | None = None) -> StudyResult:
    """Four runs and their baseline, which wait for a file after some rounds."""
    engine = FakeEngine(gates=gates or {})
    return tune(request(out, SPACE, engine=engine, sampler="grid", trials=TRIALS, tracking_uri=uri))


def tracked(out: Path, uri: str) -> dict[str, Any]:
    return everything(uri, json.loads((out / "study.json").read_text())["study"])


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory, cluster: None) -> dict[str, Any]:
    """What MLflow has of a study that nothing disturbed."""
    out = tmp_path_factory.mktemp("calm") / "study"
    result = study(out, None)
    found = tracked(out, f"sqlite:///{out / 'mlflow.db'}")
    assert result.exit_code == 0 and len(found) == TRIALS + 2
    assert {run["status"] for run in found.values()} == {"FINISHED"}
    assert all(len(run["curves"]["val/tail"]) == 10 for key, run in found.items() if key != "study")
    return found


def aside(work: Any, *gates: Path) -> threading.Thread:
    """Work in a thread, after which nothing waits any more, even if it failed."""

    def run() -> None:
        try:
            work()
        finally:
            for gate in gates:
                gate.touch()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def until(what: Any) -> None:
    deadline = time.monotonic() + PATIENT
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def points(out: Path, uri: str) -> int:
    """How much of a baseline's curve MLflow has."""
    runs = tracked(out, uri) if (out / "study.json").exists() else {}
    return max((len(run["curves"].get("val/tail", ())) for run in runs.values()), default=0)


def outages(result: StudyResult) -> list[str]:
    return [text for text in result.warnings if text.startswith("MLflow at http")]


def test_a_server_that_is_killed_in_mid_study_costs_one_warning_and_a_sync(
    tmp_path: Path, cluster: None, server: Server, calm: dict[str, Any]
) -> None:
    out, gate = tmp_path / "study", tmp_path / "gate"
    server.start()

    def crash() -> None:
        until(lambda: points(out, server.url) == HALF)
        server.kill()

    thread = aside(crash, gate)
    result = study(out, server.url, {HALF: gate})
    thread.join(PATIENT)
    assert (result.status, result.exit_code, len(result.trials)) == ("finished", 0, TRIALS)
    (warning,) = outages(result)
    assert "the study goes on" in warning and f"`fedrela-bench sync {out}` completes the curves later" in warning
    server.start()
    assert differences(tracked(out, server.url), calm, OF_THE_STUDY), "there was nothing to complete"
    assert sync(out)["runs"] == TRIALS + 1
    assert differences(tracked(out, server.url), calm, OF_THE_STUDY) == []
    before = tracked(out, server.url)
    assert sync(out)["points"] == 0 and tracked(out, server.url) == before


def test_a_server_that_comes_back_is_caught_up_with_while_the_study_runs(
    tmp_path: Path, cluster: None, server: Server, calm: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, first, second = tmp_path / "study", tmp_path / "first", tmp_path / "second"
    noticed, report = threading.Event(), Sink._report
    monkeypatch.setattr(Sink, "_report", lambda sink, reason: (report(sink, reason), noticed.set()))
    caught_up: list[int] = []
    server.kill()
    server.start()

    def crash() -> None:
        until(lambda: points(out, server.url) == HALF)
        server.kill()
        first.touch()
        assert noticed.wait(PATIENT)
        server.start()
        until(lambda: points(out, server.url) == LATE)
        caught_up.append(LATE)

    thread = aside(crash, first, second)
    result = study(out, server.url, {HALF: first, LATE: second})
    thread.join(PATIENT)
    assert result.exit_code == 0 and caught_up, "its own thread completes what was missed"
    assert len(outages(result)) == 1
    assert differences(tracked(out, server.url), calm, OF_THE_STUDY) == []


def test_a_server_that_never_comes_costs_a_hint(
    tmp_path: Path, cluster: None, server: Server, calm: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "study"
    server.kill()
    result = study(out, server.url)
    assert (result.status, result.exit_code, len(result.trials)) == ("finished", 0, TRIALS)
    (warning,) = outages(result)
    assert f"`fedrela-bench sync {out}`" in warning
    assert not [record for record in caplog.records if record.name.startswith("urllib3")], "one sentence is enough"
    server.start()
    sync(out)
    assert differences(tracked(out, server.url), calm, OF_THE_STUDY) == []


def test_a_slow_mlflow_is_waited_for_and_one_that_hangs_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "study.json").write_text("{}")
    warnings, hung = list[str](), threading.Event()

    def slow(sink: Sink) -> None:
        for _ in range(8):
            time.sleep(0.1)
            sink._save_state()

    monkeypatch.setattr(Sink, "_finish", lambda sink, status: None)
    for drain, complete in ((slow, True), (lambda sink: hung.wait(PATIENT), False)):
        monkeypatch.setattr(Sink, "drain", drain)
        sink = Sink(tmp_path, f"sqlite:///{tmp_path / 'm.db'}", warnings.append)
        sink.start()
        assert sink.close("FINISHED", patience=0.5) is complete
    hung.set()
    assert len(warnings) == 1 and "MLflow does not answer in time" in warnings[0]
