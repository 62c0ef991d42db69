"""A study folder with an MLflow store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.reporting.fakes import ROUNDS, rows

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


@pytest.fixture(scope="session")
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
