"""The few things a study does with MLflow, on one client of its own; no global tracking state is touched."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrela_bench.tracking.datasets import CONTEXT, SOURCE_TYPE, DatasetEntry
from fedrela_bench.tracking.manifest import Record
from fedrela_bench.tracking.models import model_note, write_model
from fedrela_bench.tracking.notes import NOTE
from fedrela_bench.tracking.payload import LONG_PARAMS, cut, params_of, write_artifacts
from fedrela_bench.tracking.ui import SQLITE, check_uri, database_of

Point = tuple[str, float, int, int]
MOST_ITEMS = 1000
"""Metrics, parameters and tags that MLflow takes in one call."""
PARAM_BATCH = 100
UNFINISHED = ".tmp"
LITTER_SECONDS = 3600.0
"""Unfinished databases younger than this may be in the making."""
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_UV_AUTO_DETECT": "false",
}


class Backend:
    """MLflow at one URI, in one experiment.

    Args:
        uri: tracking URI.
        experiment: its name; made when absent.
    """

    def __init__(self, uri: str, experiment: str) -> None:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from mlflow.tracking import MlflowClient

        for logger in ("mlflow", "alembic", "urllib3.connectionpool"):
            # Errors are reported by the caller, in one line each.
            logging.getLogger(logger).setLevel(logging.CRITICAL)
        prepare_database(uri)
        self.client = MlflowClient(tracking_uri=check_uri(uri))
        found = self.client.get_experiment_by_name(experiment)
        self.experiment_id = found.experiment_id if found else self._create(experiment, uri)

    def _create(self, experiment: str, uri: str) -> str:
        # By default MLflow would put a database's artifacts into the working directory.
        database = database_of(uri)
        location = None if database is None else _artifacts_beside(database)
        return str(self.client.create_experiment(experiment, artifact_location=location))

    def find(self, study: str) -> dict[str, str]:
        """Run ids by record id (``study`` for the parent) of everything that was logged for a study."""
        runs: dict[str, str] = {}
        token: str | None = None
        while True:
            page = self.client.search_runs(
                [self.experiment_id], f"tags.study = '{study}'", max_results=1000, page_token=token
            )
            for run in page:
                tags = run.data.tags
                name = "study" if tags.get("kind") == "study" else f"{tags.get('kind')}:{tags.get('key')}"
                runs.setdefault(name, run.info.run_id)
            token = page.token
            if not token:
                return runs

    def create(self, tags: Mapping[str, str], created: float) -> str:
        """A new run, RUNNING."""
        run = self.client.create_run(self.experiment_id, start_time=int(created * 1000), tags=dict(tags))
        return str(run.info.run_id)

    def reopen(self, run_id: str) -> bool:
        """RUNNING again; False when there is no such run."""
        from mlflow.exceptions import MlflowException

        try:
            self.client.update_run(run_id, status="RUNNING")
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise
        return True

    def log(
        self,
        run_id: str,
        points: Sequence[Point] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Metrics with their stored times (the same ones again add nothing), parameters and tags, in few calls."""
        from mlflow.entities import Metric, Param, RunTag

        named = [Param(name, value) for name, value in (params or {}).items()]
        marks = [RunTag(name, value) for name, value in (tags or {}).items()]
        size = MOST_ITEMS - min(len(named), PARAM_BATCH) - len(marks)
        batches = max(-(-len(points) // size), -(-len(named) // PARAM_BATCH), 1 if marks else 0)
        for index in range(batches):
            part = points[index * size : (index + 1) * size]
            self.client.log_batch(
                run_id,
                metrics=[Metric(name, value, stamp, step) for name, value, stamp, step in part],
                params=named[index * PARAM_BATCH : (index + 1) * PARAM_BATCH],
                tags=marks if index == batches - 1 else [],
            )

    def params(self, run_id: str, record: Record) -> dict[str, str]:
        """The record's configuration as parameters; what is longer than one may be becomes an artifact."""
        params, whole = cut(params_of(record))
        if whole:
            self.client.log_dict(run_id, whole, LONG_PARAMS)
        return params

    def log_dataset(self, run_id: str, entry: DatasetEntry) -> None:
        """The run's dataset; the same one again adds nothing."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        texts = {"source": entry.source, "schema": entry.schema or None, "profile": entry.profile or None}
        dataset = Dataset(name=entry.name, digest=entry.digest, source_type=SOURCE_TYPE, **texts)
        self.client.log_inputs(run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", CONTEXT)])])

    def drop_tag(self, run_id: str, name: str) -> None:
        """Remove a tag, if it is there."""
        if name in self.client.get_run(run_id).data.tags:
            self.client.delete_tag(run_id, name)

    def describe(self, tags: Mapping[str, str]) -> None:
        """Tags of the experiment; those that are there already stay as they are."""
        known = self.client.get_experiment(self.experiment_id).tags
        for name, value in tags.items():
            if known.get(name) != value:
                self.client.set_experiment_tag(self.experiment_id, name, value)

    def log_model(self, run_id: str, record: Record, source: Path, facts: Mapping[str, Any]) -> str:
        """Log a run's scored model, once; gives its id."""
        from mlflow.entities import LoggedModelOutput

        mine = [m for m in self._models(run_id) if m.tags.get("key") == record.key]
        if any(model.status == "READY" for model in mine):
            return str(next(model.model_id for model in mine if model.status == "READY"))
        tags = {"key": record.key, "algorithm": record.algorithm, "seed": str(record.seed), NOTE: model_note(record)}
        name = f"{record.algorithm}-{record.key[:8]}"
        made = mine[0] if mine else self.client.create_logged_model(self.experiment_id, name, run_id, tags)
        ids = {"run_id": run_id, "model_id": str(made.model_id)}
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "model"
            write_model(source, folder, facts, record, ids)
            self.client.log_model_artifacts(made.model_id, str(folder))
        if made.model_id not in self._outputs(run_id):
            self.client.log_outputs(run_id, [LoggedModelOutput(made.model_id, step=0)])
        self.client.finalize_logged_model(made.model_id, "READY")
        return ids["model_id"]

    def _outputs(self, run_id: str) -> set[str]:
        outputs = self.client.get_run(run_id).outputs
        return {output.model_id for output in outputs.model_outputs} if outputs else set()

    def _models(self, run_id: str) -> list[Any]:
        mine = f"source_run_id = '{run_id}'"
        return list(self.client.search_logged_models([self.experiment_id], filter_string=mine))

    def upload(self, run_id: str, record: Record, folder: Path, names: Sequence[str] = ()) -> None:
        """The artifacts of a finished run; `names` are those of the classes."""
        with tempfile.TemporaryDirectory() as temporary:
            write_artifacts(record, folder, Path(temporary), names)
            self.client.log_artifacts(run_id, temporary)

    def upload_file(self, run_id: str, path: Path, folder: str | None = None) -> None:
        """One file."""
        self.client.log_artifact(run_id, str(path), folder)

    def end(self, run_id: str, status: str, when: float | None = None) -> None:
        """A terminal status: FINISHED, FAILED or KILLED."""
        self.client.set_terminated(run_id, status, int(when * 1000) if when is not None else None)


def prepare_database(uri: str) -> None:
    """Make a missing SQLite database whole, under another name first.

    MLflow sets up its tables in many steps; killed between two of them it refuses the file for ever.
    """
    path = database_of(uri)
    if path is None or path.exists():
        return
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{path.name}.*{UNFINISHED}"):
        if time.time() - left.stat().st_mtime > LITTER_SECONDS:
            left.unlink(missing_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}{UNFINISHED}")
    try:
        store = SqlAlchemyStore(f"{SQLITE}{temporary.resolve()}", _artifacts_beside(path))
        store.engine.dispose()
        _put_in_place(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _artifacts_beside(database: Path) -> str:
    return (database.resolve().parent / "artifacts").as_uri()


def _put_in_place(temporary: Path, path: Path) -> None:
    """Under its name, unless another process was faster: unlike a rename, a link replaces nothing."""
    try:
        os.link(temporary, path)
    except OSError:
        # Some file systems have no links.
        if not path.exists():
            temporary.replace(path)
