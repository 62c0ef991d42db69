"""An MLflow server as `fedrela-bench ui` starts it, which can be killed and started again on the same database."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

from fedrela_bench.tracking.backend import prepare_database
from fedrela_bench.tracking.ui import ui_command

PATIENT = 600


class Server:
    """A server of its own process group.

    Args:
        folder: of its database, artifacts and log; made.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        database = f"sqlite:///{folder / 'mlflow.db'}"
        prepare_database(database)
        self.folder, self.url = folder, f"http://127.0.0.1:{port}"
        self.command, self.environment = ui_command(folder, database, port)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns once it answers."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env={**os.environ, **self.environment},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + PATIENT
        while not self._answers():
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.1)

    def kill(self) -> None:
        """As a crash would."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def everything(uri: str, study: str) -> dict[str, Any]:
    """All that MLflow says of a study's runs, by key: state, parent, curves, final numbers, parameters, artifacts."""
    from mlflow.tracking import MlflowClient

    client, found = MlflowClient(tracking_uri=uri), dict[str, Any]()
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiments, f"tags.study = '{study}'")
    names = {run.info.run_id: run.data.tags.get("key", "study") for run in runs}
    assert len(set(names.values())) == len(runs), "a run was made twice"
    for run in runs:
        tags = {name: value for name, value in run.data.tags.items() if not name.startswith("mlflow.")}
        parent = names.get(run.data.tags.get("mlflow.parentRunId", ""))
        curves = {
            metric: [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, metric)]
            for metric in run.data.metrics
            if "seconds" not in metric
        }
        files = sorted(item.path for item in client.list_artifacts(run.info.run_id))
        state = {"status": run.info.status, "parent": parent, "curves": curves, "files": files}
        found[names[run.info.run_id]] = {**state, "params": dict(run.data.params), "tags": tags}
    return found


def differences(left: dict[str, Any], right: dict[str, Any], volatile: set[str]) -> list[str]:
    """Where two studies' runs differ, but for tags that name the study itself."""
    texts = [f"only one has {key}" for key in set(left) ^ set(right)]
    for key in set(left) & set(right):
        for part in left[key]:
            mine, theirs = left[key][part], right[key][part]
            if part == "tags":
                mine, theirs = ({n: v for n, v in tags.items() if n not in volatile} for tags in (mine, theirs))
            if mine != theirs:
                texts.append(f"{key} {part}: {mine} and {theirs}")
    return texts
