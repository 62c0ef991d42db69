"""How much of a study MLflow has: a cache beside the study, one entry for each tracking URI."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedrela_bench.tracking.manifest import Manifest
from fedrela_bench.tracking.ui import database_of

STATE = "tracking.json"


@dataclass
class RunState:
    """How far a run is tracked."""

    run_id: str
    last_round: int = 0
    params: bool = False
    """Its parameters are logged."""
    prefix: bool = False
    ended: str = ""
    """Terminal status that MLflow was told; a run without a result may be reopened."""
    done: bool = False
    """The result is in MLflow; nothing is left to do."""


@dataclass
class State:
    """What MLflow at one URI already has; a cache that may be lost."""

    parent: str = ""
    parent_status: str = ""
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
    return State(known["parent"], known["parent_status"], runs)


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def is_complete(study_dir: Path, uri: str) -> bool:
    """Whether MLflow already has every run of the study, ended."""
    state = load_state(study_dir, uri)
    manifest = Manifest(study_dir)
    ended = {name for name, run in state.runs.items() if run.done}
    ended |= {name for name in manifest.stopped() if name in state.runs and state.runs[name].ended}
    logged = all(record.id in ended for record in manifest.read()[0])
    return state.parent_status == "FINISHED" and logged
