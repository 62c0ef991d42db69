"""Runs of several studies as if they were one, each run once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from fedrela_bench.errors import ConfigError, StoreError
from fedrela_bench.nested import digest
from fedrela_bench.reporting.artifacts import JoinedArtifacts
from fedrela_bench.reporting.source import StudyRuns, read_study, runs_frame

RECORD = "study.json"


def no_runs() -> StudyRuns:
    """What there is without any study."""
    frame = runs_frame([])
    frame["run_id"], frame["run_status"] = "", ""
    return StudyRuns("", frame, lambda run_id, metric: pd.Series(dtype=float))


def study_folders(folder: Path) -> list[Path]:
    """The studies of a folder: itself, or the folders in it, such as `report --run` makes them.

    Raises:
        ConfigError: there is none.
    """
    if (folder / RECORD).is_file():
        return [folder]
    found = sorted(path.parent for path in folder.glob(f"*/{RECORD}"))
    if not found:
        raise ConfigError(
            f"{folder} is not a study folder (no {RECORD} in it or one level below); give the folder that `tune --out` "
            "or `report --run --out` wrote"
        )
    return found


def read_studies(folders: Sequence[Path], uri: str | None = None) -> StudyRuns:
    """The runs of one or several studies; of several, those that MLflow has no run of yet are passed over.

    Args:
        folders: studies, or folders of studies.
        uri: the MLflow store, where it is not the recorded one.

    Raises:
        ConfigError: a folder without a study.
        StoreError: the MLflow store cannot be read, or has no run of any.
    """
    listed = list(dict.fromkeys(path for folder in folders for path in study_folders(folder)))
    studies: list[StudyRuns] = []
    failed: list[StoreError] = []
    for path in listed:
        try:
            studies.append(read_study(path, uri))
        except StoreError as error:
            failed.append(error)
    if not studies and failed:
        raise failed[0]
    return merged(studies)


def merged(studies: Sequence[StudyRuns]) -> StudyRuns:
    """One frame of the runs of several studies; what two of them list stands in it once, finished if it is in one.

    A configuration is then known by its fields, since the studies name it by their own seeds.
    """
    if len(studies) == 1:
        return studies[0]
    frame = pd.concat([study.frame for study in studies], ignore_index=True)
    readers = {str(run_id): study for study in studies for run_id in study.frame["run_id"]}
    frame["config_key"] = list(_configurations(frame))
    order = frame["run_status"].map(lambda status: status != "FINISHED").sort_values(kind="stable").index
    once = frame.loc[order].drop_duplicates(["kind", "key"])
    rows = runs_frame(once.to_dict("records"))  # type: ignore[arg-type]
    objectives = {study.objectives for study in studies}
    return replace(
        studies[0],
        dataset=" and ".join(sorted({study.dataset for study in studies})),
        frame=rows,
        load_history=lambda run_id, metric: readers[run_id].load_history(run_id, metric),
        data_notes=tuple(dict.fromkeys(note for study in studies for note in study.data_notes)),
        artifacts=JoinedArtifacts({run_id: study.artifacts for run_id, study in readers.items()}),
        objectives=objectives.pop() if len(objectives) == 1 else ("overall",),
        _seen={},
    )


def _configurations(frame: pd.DataFrame) -> Iterable[str]:
    names = sorted(name for name in frame.columns if name.startswith("param:") and name != "param:seed")
    for values in frame[["kind", "algorithm", *names]].astype(object).to_dict("records"):
        yield digest({str(name): str(value) for name, value in values.items() if not pd.isna(value)})
