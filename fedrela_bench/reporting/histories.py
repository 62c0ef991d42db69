"""Curves of a study's runs: of a database all runs of a metric at once, of a server run by run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from fedrela_bench.reporting.database import fetch, is_database


class Histories:
    """(run id, metric) to values by completed rounds; of points of one round the one logged last.

    A database is asked once per metric: a thousand runs are read as quickly as twenty run by run.

    Args:
        client: MLflow's, for stores behind a server.
        uri: of the store.
        experiment: id of the study's experiment.
    """

    def __init__(self, client: Any, uri: str, experiment: str) -> None:
        self._client, self._uri, self._experiment = client, uri, experiment
        self._known: dict[str, dict[str, tuple[Any, Any]]] = {}

    def __call__(self, run_id: str, metric: str) -> pd.Series[float]:
        """One curve; empty where the run does not have the metric."""
        if not is_database(self._uri):
            history = self._client.get_metric_history(run_id, metric)
            return _curve([point.step for point in history], [point.value for point in history])
        if metric not in self._known:
            self._known[metric] = dict(self._read(metric))
        return _curve(*self._known[metric].get(run_id, ((), ())))

    def _read(self, metric: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
        """Run ids with steps and values, in the order in which they were logged."""
        from mlflow.store.tracking.dbmodels.models import SqlMetric, SqlRun
        from sqlalchemy import select

        columns = (SqlMetric.run_uuid, SqlMetric.step, SqlMetric.value, SqlMetric.is_nan)
        # In MLflow's order of a history, so that the last point of a round is the same one.
        order = (SqlMetric.run_uuid, SqlMetric.timestamp, SqlMetric.step, SqlMetric.value)
        query = select(*columns).join(SqlRun, SqlRun.run_uuid == SqlMetric.run_uuid).order_by(*order)
        query = query.where(SqlMetric.key == metric, SqlRun.experiment_id == int(self._experiment))
        rows = fetch(self._uri, query)
        if not rows:
            return
        runs, steps, values, gaps = zip(*rows, strict=True)
        numbers = np.where(gaps, np.nan, np.asarray(values, dtype=float))
        first = [0, *(place for place in range(1, len(runs)) if runs[place] != runs[place - 1]), len(runs)]
        for start, end in pairwise(first):
            yield str(runs[start]), (steps[start:end], numbers[start:end])


def _curve(steps: Any, values: Any) -> pd.Series[float]:
    points = dict(zip(steps, values, strict=True))
    return pd.Series(points, dtype=float).sort_index()
