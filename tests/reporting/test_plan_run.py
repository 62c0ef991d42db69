"""`report SPEC --run` on Ray as a user runs it: two settings of real digits, again, extended, killed in the middle."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedrela_bench.cli import main
from fedrela_bench.study.connection import leave, patiently
from tests.study.drive import ROOT, mlflow_runs, wait_for

pytestmark = pytest.mark.cluster
Capture = pytest.CaptureFixture[str]
PROGRAM = [sys.executable, "-c", "import sys; from fedrela_bench.cli import main; sys.exit(main())"]
SPEC = """\
title: Digits over skew
settings:
  - {group: α = 0.3, dataset: digits_lt, config: {data.alpha: 0.3, data.imbalance_factor: 10}}
  - {group: α = 10, dataset: digits_lt, config: {data.alpha: 10, data.imbalance_factor: 10}}
metrics: [overall, tail, relabeled_per_client]
rows:
  - {name: FedAvg, runs: {kind: trunk, federation.algorithm: fedavg}}
  - name: FedAvg + FedReLa
    runs: {kind: cell, federation.algorithm: fedavg, relabel.tau: 0.2, relabel.start: 0.5}
runs:
  algorithms: [fedavg]
  config: {federation.rounds: 4, federation.clients: 3, training.batch_size: 64, training.model: digits}
  relabel: [{relabel.tau: 0.2, relabel.start: 0.5}]
  seeds: [1, 2]
"""


@pytest.fixture
def spec_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDRELA_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "skew.yaml"
    file.write_text(SPEC, encoding="utf-8")
    return file


@pytest.fixture
def cluster() -> Iterator[None]:
    """One Ray for the test; studies use a connection that is there."""
    import ray

    os.environ["RAY_CHDIR_TO_TRIAL_DIR"] = "0"
    settings = {"include_dashboard": False, "log_to_driver": False, "object_store_memory": 100 * 2**20}
    patiently(lambda: ray.init("local", num_cpus=2, **settings))
    yield
    leave()


def plan(file: Path, out: Path, capsys: Capture, *more: str) -> dict[str, Any]:
    assert main(["report", str(file), "--plan", "--json", "--out", str(out), *more]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_two_settings_from_nothing_to_a_table(spec_file: Path, tmp_path: Path, cluster: None, capsys: Capture) -> None:
    out = tmp_path / "out"
    assert plan(spec_file, out, capsys)["missing"] == 8
    assert main(["report", str(spec_file), "--run", "--out", str(out), "--format", "csv"]) == 0
    text = capsys.readouterr().out
    assert "setting 1 of 2, α = 0.3: 4 runs missing, 3.00 full runs" in text
    assert f"written: {out}/report/skew.csv" in text

    known = plan(spec_file, out, capsys)
    assert (known["missing"], known["full_runs"], known["hours"]) == (0, 0.0, 0.0)
    with (out / "report" / "skew.csv").open(encoding="utf-8", newline="") as file:
        base, ours = csv.DictReader(file)
    for group in ("alpha_0_3", "alpha_10"):
        assert float(base[f"{group}_overall"]) > 0 and float(ours[f"{group}_overall"]) > 0
        assert float(ours[f"{group}_overall_gain"]) == pytest.approx(
            float(ours[f"{group}_overall"]) - float(base[f"{group}_overall"])
        )
        assert float(base[f"{group}_relabeled_per_client"]) == 0 < float(ours[f"{group}_relabeled_per_client"])
    assert (base["n"], ours["n"]) == ("2", "2")
    assert base["split"] == "test (all test images)"
    for name in ("alpha_0_3", "alpha_10"):
        kinds = sorted(run.data.tags["kind"] for run in mlflow_runs(out / name))
        assert kinds == ["cell", "cell", "study", "trunk", "trunk"]


def test_finished_runs_answer_at_once_and_more_seeds_extend(
    spec_file: Path, tmp_path: Path, cluster: None, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, narrow = tmp_path / "out", ["--setting", "alpha 10", "--seeds", "1"]
    assert main(["report", str(spec_file), "--run", "--out", str(out), *narrow, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert [item["counts"]["cells_computed"] for item in first["settings"]] == [1]
    table = (out / "report" / "skew.md").read_text(encoding="utf-8")

    def started(*given: Any, **settings: Any) -> None:
        raise AssertionError("a finished study needs no driver")

    with monkeypatch.context() as patched:
        patched.setattr("fedrela_bench.study.runner.tune", started)
        assert main(["report", str(spec_file), "--run", "--out", str(out), *narrow, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert [item["status"] for item in again["settings"]] == ["finished"]
    assert (out / "report" / "skew.md").read_text(encoding="utf-8") == table

    assert main(["report", str(spec_file), "--run", "--out", str(out), "--setting", "alpha 10", "--json"]) == 0
    more = json.loads(capsys.readouterr().out)
    assert [item["counts"]["cells_computed"] for item in more["settings"]] == [1]
    assert "± " in (out / "report" / "skew.md").read_text(encoding="utf-8")
    assert plan(spec_file, out, capsys)["missing"] == 4


@pytest.mark.slow
def test_a_run_that_is_stopped_goes_on(spec_file: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    command = [*PROGRAM, "report", str(spec_file), "--run", "--out", str(out)]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    wait_for(process, "[1/2] fedavg baseline")
    process.send_signal(signal.SIGTERM)
    rest = process.communicate(timeout=600)[0]
    assert process.returncode == 143, rest
    results = {path: path.stat().st_mtime_ns for path in (out / "store").glob("*/*/result.json")}
    assert results and plan(spec_file, out, capsys)["missing"] == 8 - len(results)

    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(path.stat().st_mtime_ns == before for path, before in results.items())
    assert plan(spec_file, out, capsys)["missing"] == 0
    assert "FedAvg + FedReLa" in done.stdout
