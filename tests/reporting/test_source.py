"""A study's MLflow store becomes a frame, and a report of it repeats byte for byte."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fedrela_bench.errors import ConfigError, StoreError
from fedrela_bench.reporting.report import render_report
from fedrela_bench.reporting.source import read_study
from tests.reporting.fakes import ROUNDS, rows, study

EXPERIMENT = "fedrela-bench/digits_lt"


def _log(client: Any, experiment: str, values: dict[str, Any], study: str) -> None:
    from mlflow.entities import Metric, Param, RunTag

    run = client.create_run(experiment, start_time=0)
    tags = {name: value for name, value in values.items() if ":" not in name and name not in ("run_id", "run_status")}
    final = values["metric:final/test/overall"]
    names = ("test/overall", "test/tail")
    points = [Metric(name, final + 0.005 * (at - 8), 0, at) for name in names for at in range(1, ROUNDS + 1)]
    points += [
        Metric(name.removeprefix("metric:"), value, 0, ROUNDS) for name, value in values.items() if "final/" in name
    ]
    params = [Param(name.removeprefix("param:"), value) for name, value in values.items() if name.startswith("param:")]
    client.log_batch(run.info.run_id, points, params, [RunTag(k, str(v)) for k, v in {**tags, "study": study}.items()])
    client.set_terminated(run.info.run_id, "FINISHED", end_time=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study folder whose MLflow holds the fake study and a run of another one."""
    from mlflow.tracking import MlflowClient

    path = tmp_path_factory.mktemp("study")
    uri = f"sqlite:///{path / 'mlflow.db'}"
    client = MlflowClient(tracking_uri=uri)
    experiment = client.create_experiment(EXPERIMENT, artifact_location=str(path / "artifacts"))
    for values in rows():
        _log(client, experiment, values, "s1")
    _log(client, experiment, {**rows()[0], "algorithm": "stranger"}, "s2")
    record = {
        "study": "s1",
        "dataset": "digits_lt",
        "experiment": EXPERIMENT,
        "tracking_uri": uri,
        "identity": {"objectives": ["val/overall", "val/tail"]},
    }
    (path / "study.json").write_text(json.dumps(record))
    return path


def test_runs_of_this_study_only(folder: Path) -> None:
    runs = read_study(folder)
    assert len(runs.frame) == 9
    assert set(runs.frame["algorithm"]) == {"fedavg"}
    assert runs.frame["seed"].tolist()[:3] == [1, 2, 3]
    assert runs.objectives == ("overall", "tail")
    trunk = str(runs.frame["run_id"][0])
    assert runs.latest(trunk, "final/test/overall") == 0.6
    assert runs.history(trunk, "test/overall").index.tolist() == list(range(1, ROUNDS + 1))
    assert runs.history(trunk, "test/medium").empty


def test_a_report_twice_is_byte_for_byte_the_same(folder: Path, tmp_path: Path) -> None:
    first, second = (render_report(folder, out=tmp_path / name) for name in ("a", "b"))
    assert [path.name for path in first.files] == [
        "study.md",
        "study.csv",
        "study.tex",
        "study_overall.png",
        "study_tail.png",
        "study_pareto.png",
    ]
    assert [path.read_bytes() for path in first.files] == [path.read_bytes() for path in second.files]
    text = first.files[0].read_text()
    assert re.search(r"\| fedavg \(baseline\) +\| 62\.00 ± 2\.00 \|", text)
    assert re.findall(r"!\[.*\]\((.*)\)", text) == [path.name for path in first.files[3:]]
    assert "+3.00 [+0.52, +5.48]" in text


def test_the_report_goes_into_the_study_by_default(folder: Path) -> None:
    made = render_report(folder, formats=["csv"])
    assert made.files[0] == folder / "report" / "study.csv"


def test_what_is_not_a_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no study\.json"):
        read_study(tmp_path)
    (tmp_path / "study.json").write_text("{}")
    with pytest.raises(ConfigError, match="damaged"):
        read_study(tmp_path)


def test_a_store_that_is_gone_or_empty_is_told(folder: Path, tmp_path: Path) -> None:
    record = json.loads((folder / "study.json").read_text())
    (tmp_path / "study.json").write_text(json.dumps({**record, "study": "s3"}))
    with pytest.raises(StoreError, match="holds no run of this study yet"):
        read_study(tmp_path)
    with pytest.raises(StoreError, match="no such MLflow database"):
        read_study(tmp_path, f"sqlite:///{tmp_path / 'gone.db'}")


@pytest.mark.parametrize("given", ["FAILED", "RUNNING"])
def test_a_study_without_a_finished_run_says_how_to_go_on(given: str, tmp_path: Path, monkeypatch: Any) -> None:
    unfinished = study([{**item, "run_status": given, "status": ""} for item in rows()])
    monkeypatch.setattr("fedrela_bench.reporting.report.read_study", lambda *_: unfinished)
    folder = tmp_path / "st udy"
    folder.mkdir()
    record = {"study": "s", "dataset": "digits_lt", "experiment": "e", "identity": {"objectives": []}}
    (folder / "study.json").write_text(json.dumps(record))
    with pytest.raises(ConfigError) as caught:
        render_report(folder)
    assert f"no finished run yet (9 {given.lower()}); continue with: " in str(caught.value)
    assert f"tune --dataset digits_lt --out '{folder}'" in str(caught.value)
    assert not (folder / "report").exists()
