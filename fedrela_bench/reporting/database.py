"""MLflow stores that are databases, read by few statements however many runs there are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedrela_bench.errors import StoreError

DATABASES = ("sqlite", "postgresql", "mysql", "mssql")


@dataclass(frozen=True)
class Run:
    """What MLflow holds of a run.

    Attributes:
        run_id: MLflow's.
        status: such as FINISHED.
        tags, params: texts.
        metrics: values at the last step.
        last_round: the largest of the last steps; NaN without metrics.
    """

    run_id: str
    status: str
    tags: Mapping[str, str]
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    last_round: float


def is_database(uri: str) -> bool:
    """Whether a tracking URI names a database, such as ``sqlite:///mlflow.db``."""
    return uri.partition(":")[0].partition("+")[0] in DATABASES


def fetch(uri: str, query: Any) -> list[Any]:
    """The rows of a SQLAlchemy query.

    Raises:
        StoreError: the database cannot be read.
    """
    from sqlalchemy import create_engine
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.pool import NullPool

    try:
        with create_engine(uri, poolclass=NullPool).connect() as connection:
            return list(connection.execute(query).fetchall())
    except SQLAlchemyError as error:
        raise unreadable(error) from None


def unreadable(error: Exception) -> StoreError:
    """The error of a store that cannot be read."""
    return StoreError(f"the MLflow store cannot be read ({error}); check that it is there and reachable")


def child_runs(uri: str, experiment: str, study: str) -> Iterator[Run]:
    """A study's runs without its parent, by one statement for each table.

    MLflow's client makes an object of every parameter and metric, which takes seconds for a thousand runs.

    Args:
        uri: of a database.
        experiment: id.
        study: the value of the tag `study`.

    Raises:
        StoreError: the database cannot be read.
    """
    from mlflow.store.tracking.dbmodels.models import SqlLatestMetric, SqlParam, SqlRun, SqlTag
    from sqlalchemy import select

    named = select(SqlTag.run_uuid).where(SqlTag.key == "study", SqlTag.value == study)
    children = select(SqlTag.run_uuid).where(SqlTag.key == "kind", SqlTag.value != "study")
    wanted = [SqlRun.experiment_id == int(experiment), SqlRun.lifecycle_stage == "active"]
    wanted += [SqlRun.run_uuid.in_(named), SqlRun.run_uuid.in_(children)]
    ids = select(SqlRun.run_uuid).where(*wanted)

    def of_runs(table: Any, *columns: Any) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for run_id, key, *values in fetch(uri, select(table.run_uuid, *columns).where(table.run_uuid.in_(ids))):
            found.setdefault(run_id, {})[key] = values[0] if len(values) == 1 else tuple(values)
        return found

    tags = of_runs(SqlTag, SqlTag.key, SqlTag.value)
    params = of_runs(SqlParam, SqlParam.key, SqlParam.value)
    latest = SqlLatestMetric
    metrics = of_runs(latest, latest.key, latest.value, latest.is_nan, latest.step)
    for run_id, status in fetch(uri, select(SqlRun.run_uuid, SqlRun.status).where(*wanted)):
        points = metrics.get(run_id, {})
        values = {key: math.nan if is_nan else float(value) for key, (value, is_nan, _) in points.items()}
        last = max((float(step) for _, _, step in points.values()), default=math.nan)
        yield Run(str(run_id), str(status), tags.get(run_id, {}), params.get(run_id, {}), values, last)
