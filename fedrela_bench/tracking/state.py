"""How much of a study MLflow has: a cache beside the study, one entry for each tracking URI."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedrela_bench.tracking.manifest import Manifest
from fedrela_bench.tracking.ui import database_of, tracking_uri
from fedrela_bench.tracking.view import address

STATE = "tracking.json"


@dataclass
class RunState:
    """How far a run is tracked."""

    run_id: str
    last_round: int = 0
    params: bool = False
    """Its parameters are logged."""
    prefix: bool = False
    model: str = ""
    """MLflow's id of its logged model."""
    best: str = ""
    """What it is the best configuration for, as its tag says."""
    ended: str = ""
    """Terminal status that MLflow was told; a run without a result may be reopened."""
    done: bool = False
    """The result is in MLflow; nothing is left to do."""


@dataclass
class State:
    """What MLflow at one URI already has; a cache that may be lost."""

    parent: str = ""
    parent_status: str = ""
    experiment: str = ""
    """MLflow's id of the experiment."""
    report: str = ""
    """Digest of the report that the parent has."""
    runs: dict[str, RunState] = field(default_factory=dict)


def save_state(study_dir: Path, uri: str, state: State) -> None:
    """Write what MLflow at this URI has; what is known of others stays."""
    path = study_dir / STATE
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps({**_read(path), uri: asdict(state)}), encoding="utf-8")
    temporary.replace(path)


def load_state(study_dir: Path, uri: str) -> State:
    """What MLflow at this URI is known to have; nothing when its database is gone."""
    known = _read(study_dir / STATE).get(uri)
    database = database_of(uri)
    if known is None or (database is not None and not database.exists()):
        return State()
    runs = {name: RunState(**values) for name, values in known["runs"].items()}
    return State(**{**known, "runs": runs})


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def ui_address(study_dir: Path, uri: str | None = None, port: int = 5000) -> str:
    """Where `ui_command`'s server shows a study."""
    return address(port, load_state(study_dir, uri if uri is not None else tracking_uri(study_dir)).experiment)


def is_complete(study_dir: Path, uri: str) -> bool:
    """Whether MLflow already has every run of the study, ended."""
    state = load_state(study_dir, uri)
    manifest = Manifest(study_dir)
    ended = {name for name, run in state.runs.items() if run.done}
    ended |= {name for name in manifest.stopped() if name in state.runs and state.runs[name].ended}
    logged = all(record.id in ended for record in manifest.read()[0])
    return state.parent_status == "FINISHED" and logged and _best_is_known(study_dir, state)


def _best_is_known(study_dir: Path, state: State) -> bool:
    """Whether the best configurations' runs say so, and their models are logged where that is wanted."""
    study = _read(study_dir / "study.json")
    best = best_names(study)
    said = {name: run.best for name, run in state.runs.items() if run.best}
    modelled = study.get("log_models") != "best" or all(state.runs[name].model for name in best if name in state.runs)
    return said == best and modelled


def best_names(study: Mapping[str, Any]) -> dict[str, str]:
    """What a run is best for, such as ``overall, balanced``, by its id."""
    names: dict[str, list[str]] = {}
    for choice, run in study.get("best", {}).items():
        names.setdefault(run, []).append(choice)
    return {run: ", ".join(choices) for run, choices in names.items()}
