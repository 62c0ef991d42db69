"""A study's MLflow runs as one pandas frame."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedrela_bench.errors import ConfigError, StoreError
from fedrela_bench.reporting.artifacts import Artifacts, MlflowArtifacts, NoArtifacts, parse_arrays
from fedrela_bench.reporting.baselines import baselines_of
from fedrela_bench.reporting.database import Run, child_runs, is_database, unreadable
from fedrela_bench.reporting.histories import Histories
from fedrela_bench.reporting.otherheads import OTHER_HEAD, other_head
from fedrela_bench.yaml_io import parse_yaml

TAGS = (
    "kind",
    "algorithm",
    "seed",
    "trial",
    "arm",
    "relabeler",
    "config_key",
    "key",
    "trunk_key",
    "fork_round",
    "status",
    "dataset",
    "profile",
    "data_digest",
    "device",
    "selection",
    "round_rule",
    "version.fedrela_bench",
    "version.torch",
    "simulation_version",
    "cost.down",
    "cost.up",
    "cost.total_down",
    "cost.total_up",
    "privacy.guarantee",
)
"""Tags that become columns of `StudyRuns.frame` under their own names."""


@dataclass(frozen=True)
class StudyRuns:
    """The trunk and cell runs of a study.

    Attributes:
        dataset: the name shown, such as ``cifar100_lt``.
        frame: one row per run, ordered by kind, algorithm, configuration and seed: `run_id`, the columns of `TAGS`,
            `last_round` (completed rounds), ``param:<dotted name>`` (text) and ``metric:<key>`` (value at the last
            step).
        load_history: (run id, metric) to values by completed rounds.
        objectives: what the study searched for, such as ``("overall", "tail")``.
        data_notes: what belongs to every number: how the test set was made, what was left out.
        artifacts: the files of runs.
    """

    dataset: str
    frame: pd.DataFrame
    load_history: Callable[[str, str], pd.Series[float]]
    objectives: tuple[str, ...] = ("overall", "tail")
    data_notes: tuple[str, ...] = ()
    artifacts: Artifacts = field(default_factory=NoArtifacts, compare=False)
    _seen: dict[tuple[str, str], pd.Series[float]] = field(default_factory=dict, compare=False)

    def history(self, run_id: str, metric: str) -> pd.Series[float]:
        """Values by completed rounds, read once."""
        if (run_id, metric) not in self._seen:
            known = other_head(self.artifacts, run_id, metric) if OTHER_HEAD in metric else None
            self._seen[run_id, metric] = self.load_history(run_id, metric) if known is None else known
        return self._seen[run_id, metric]

    def latest(self, run_id: str, metric: str) -> float:
        """The value at the last step; NaN where the run does not have the metric."""
        column = f"metric:{metric}"
        if column not in self.frame:
            return math.nan
        if column not in self._columns:
            self._columns[column] = self.frame[column].to_numpy(dtype=float, na_value=math.nan)
        return float(self._columns[column][self._places[run_id]])

    @cached_property
    def baselines(self) -> dict[str, tuple[str | None, str]]:
        """Run id to (run id of its baseline, why they must not be compared), see `baselines.baselines_of`."""
        return baselines_of(self.frame)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {str(run_id): place for place, run_id in enumerate(self.frame["run_id"])}

    @cached_property
    def _columns(self) -> dict[str, np.ndarray]:
        return {}

    def arrays(self, run_id: str, name: str) -> dict[str, np.ndarray] | None:
        """The arrays of an npz artifact of a run, such as ``curves.npz``; None where the run has no such file.

        Raises:
            StoreError: the store cannot be read, or the file is damaged.
        """
        if name not in self.artifacts.names(run_id):
            return None
        return parse_arrays(self.artifacts.read(run_id, name), name)

    def configuration(self, run_id: str) -> dict[str, Any] | None:
        """The nested configuration that a run recorded; None where it has none.

        Raises:
            StoreError: the store cannot be read, or the file is damaged.
        """
        if "config.yaml" not in self.artifacts.names(run_id):
            return None
        try:
            values = parse_yaml(self.artifacts.read(run_id, "config.yaml").decode(), "config.yaml")
        except (ConfigError, UnicodeDecodeError) as error:
            raise StoreError(f"the configuration in MLflow run {run_id} is damaged ({error})") from None
        return dict(values) if isinstance(values, dict) else None


def read_study(study: Path, uri: str | None = None) -> StudyRuns:
    """All finished and unfinished child runs of the study in a folder.

    Args:
        study: the folder that `tune` wrote.
        uri: the MLflow store, where it is not the recorded one.

    Raises:
        ConfigError: not a study folder.
        StoreError: the MLflow store cannot be read or has no run of this study.
    """
    record = study_record(study)
    store = uri or str(record.get("tracking_uri") or f"sqlite:///{study / 'mlflow.db'}")
    client = _client(store)
    experiment = _experiment(client, str(record["experiment"]))
    listed = () if experiment is None else _runs(client, store, experiment, str(record["study"]))
    found = [_flat(run, record["identity"]) for run in listed]
    if not found:
        raise StoreError(
            f"{study}: MLflow holds no run of this study yet; fetch what is computed with fedrela-bench sync "
            f"{shlex.quote(str(study))}, or continue with: {continue_command(study)}"
        )
    objectives = tuple(str(name).rpartition("/")[2] for name in record["identity"]["objectives"])
    histories = Histories(client, store, str(experiment))
    notes = tuple(str(note) for note in record.get("data_notes", ()))
    artifacts = MlflowArtifacts(client)
    return StudyRuns(str(record["dataset"]), runs_frame(found), histories, objectives, notes, artifacts)


def study_record(study: Path) -> dict[str, Any]:
    """The contents of a study folder's study.json.

    Raises:
        ConfigError: the folder or the file is not there or not readable.
    """
    path = study / "study.json"
    if not path.is_file():
        raise ConfigError(f"{study} is not a study folder (no study.json); give the folder that `tune --out` wrote")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        record["identity"]["objectives"], record["dataset"], record["study"], record["experiment"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is damaged ({error}); restore it or start the study again") from None
    return dict(record)


def continue_command(study: Path) -> str:
    """What to type to go on with a study."""
    record = study_record(study)
    plain = ["fedrela-bench", "tune", "--dataset", str(record["dataset"]), "--out", str(study)]
    return str(record.get("command") or shlex.join(plain))


def runs_frame(rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """The frame of `StudyRuns` from flat rows, in an order that depends on their contents only."""
    frame = pd.DataFrame(list(rows))
    for name in TAGS:
        if name not in frame:
            frame[name] = ""
    frame["seed"] = frame["seed"].astype(int)
    text = [name for name in frame.columns if name in TAGS and name != "seed"]
    frame[text] = frame[text].fillna("").astype(str)
    # Single values are read by the thousand, which compact columns of text make slow.
    frame = frame.astype(dict.fromkeys(frame.select_dtypes(exclude="number"), object))
    frame["last_round"] = frame["last_round"].astype(float) if "last_round" in frame else math.nan
    order = ["kind", "algorithm", "config_key", "seed", "key"]
    return frame.sort_values(order, kind="stable", ascending=[False, True, True, True, True]).reset_index(drop=True)


def _client(uri: str) -> Any:
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).is_file():
        raise StoreError(
            f"{uri.removeprefix('sqlite:///')}: no such MLflow database; was the study moved? give --tracking-uri"
        )
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=uri)


def _experiment(client: Any, name: str) -> str | None:
    """The id of an experiment, if there is one."""
    from mlflow.exceptions import MlflowException

    try:
        found = client.get_experiment_by_name(name)
    except MlflowException as error:
        raise unreadable(error) from None
    return None if found is None else str(found.experiment_id)


def _runs(client: Any, uri: str, experiment: str, study: str) -> Iterator[Run]:
    return child_runs(uri, experiment, study) if is_database(uri) else served_runs(client, experiment, study)


def served_runs(client: Any, experiment: str, study: str) -> Iterator[Run]:
    """A study's runs without its parent, through MLflow's client.

    Args:
        client: MLflow's.
        experiment: id.
        study: the value of the tag `study`.

    Raises:
        StoreError: the store cannot be read.
    """
    from mlflow.exceptions import MlflowException

    token, wanted = None, f"tags.study = '{study}' and tags.kind != 'study'"
    try:
        while True:
            page = client.search_runs([experiment], filter_string=wanted, max_results=1000, page_token=token)
            for run in page:
                last = max((float(metric.step) for metric in run.data.to_proto().metrics), default=math.nan)
                yield Run(run.info.run_id, run.info.status, run.data.tags, run.data.params, run.data.metrics, last)
            token = page.token
            if not token:
                return
    except MlflowException as error:
        raise unreadable(error) from None


def _flat(run: Run, identity: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"run_id": run.run_id, "run_status": run.status, "last_round": run.last_round}
    row |= {name: run.tags.get(name, str(identity.get(name, ""))) for name in TAGS}
    row |= {f"param:{name}": run.params[name] for name in sorted(run.params)}
    return row | {f"metric:{name}": run.metrics[name] for name in sorted(run.metrics)}
