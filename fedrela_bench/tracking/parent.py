"""The parent run of a study: its description and files, and what is best in it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrela_bench.tracking.backend import Backend
from fedrela_bench.tracking.manifest import Manifest, Record
from fedrela_bench.tracking.models import model_file, serving_lines
from fedrela_bench.tracking.notes import NOTE, experiment_note, study_note
from fedrela_bench.tracking.state import RunState, State, best_names
from fedrela_bench.tracking.view import KIND, KIND_TAG, VIEW_TAG, saved_view

FILES = ("study.json", "trials.csv", "pareto.csv", "confirmed.csv")
REPORT = "report"
"""Folder of a study's report, and of its artifacts in the parent run."""
MOST_SPACE = 6000
"""Characters of a parameter."""


@dataclass(frozen=True)
class Parent:
    """A study's parent run at one MLflow."""

    study_dir: Path
    state: State
    backend: Backend
    save: Callable[[], None]
    """Writes `state`."""

    def introduce(self, study: Mapping[str, Any]) -> None:
        """What can be said before the end."""
        texts = {KIND_TAG: KIND, VIEW_TAG: saved_view(), NOTE: experiment_note(str(study["dataset"]))}
        self.backend.describe(texts)
        self.backend.log(self.state.parent, tags={NOTE: study_note(self.study_dir, study, self.link)})

    def conclude(self, study: Mapping[str, Any], status: str) -> None:
        """Tables, best configurations and their models, description and terminal status.

        Raises:
            Exception: a model could not be logged; everything else was.
        """
        self._mark_best(study)
        models, fault = self._log_models(study)
        # After an outage it is `sync` that logs the summary; with its stored time it is there once.
        stamp = int(study.get("summarised", time.time()) * 1000)
        points = [(name, value, stamp, 0) for name, value in study.get("summary", {}).items()]
        params = {"space": json.dumps(study["identity"]["space"])[:MOST_SPACE]}
        note = study_note(self.study_dir, study, self.link, status, serving_lines(models))
        self.backend.log(self.state.parent, points, params, {NOTE: note})
        self._upload()
        self.backend.end(self.state.parent, status)
        self.state.parent_status = status
        if fault is not None:
            raise fault

    def link(self, key: str) -> str:
        """Where the UI shows the run of a key; empty where it is not known."""
        states = (self.state.runs.get(f"{kind}:{key}") for kind in ("cell", "trunk"))
        run_id = next((state.run_id for state in states if state is not None), "")
        return f"#/experiments/{self.state.experiment}/runs/{run_id}" if run_id else ""

    def attach(self, files: Sequence[Path]) -> None:
        """A report's files, unless the parent has the same already."""
        hashed = hashlib.blake2b(digest_size=16)
        for path in files:
            hashed.update(path.name.encode() + path.read_bytes())
        if files and self.state.report != hashed.hexdigest():
            for path in files:
                self.backend.upload_file(self.state.parent, path, REPORT)
            self.state.report = hashed.hexdigest()
            self.save()

    def _mark_best(self, study: Mapping[str, Any]) -> None:
        """Tag the best configurations' runs, and no others."""
        wanted = best_names(study)
        for name, state in self.state.runs.items():
            best = wanted.get(name, "")
            if best and state.best != best:
                self.backend.log(state.run_id, tags={"best": best})
            elif state.best and not best:
                self.backend.drop_tag(state.run_id, "best")
            state.best = best
        self.save()

    def _log_models(self, study: Mapping[str, Any]) -> tuple[dict[str, str], Exception | None]:
        """Models of the best configurations: URIs by what they are best for, and what kept one from being logged."""
        manifest, models, fault = Manifest(self.study_dir), dict[str, str](), None
        records = {record.id: record for record in manifest.read()[0]}
        for name, best in best_names(study).items():
            state, record = self.state.runs.get(name), records.get(name)
            if state is None or record is None:
                continue
            try:
                self._log_model(study, record, state, manifest.path(record.folder))
            except Exception as error:  # whatever MLflow raises; the rest of the study is logged first
                fault = error
            models |= {best: f"models:/{state.model}"} if state.model else {}
            self.save()
        return models, fault

    def _log_model(self, study: Mapping[str, Any], record: Record, state: RunState, folder: Path) -> None:
        source, facts = model_file(folder), facts_of(study, record)
        if not state.model and study.get("log_models") == "best" and source is not None and facts:
            state.model = self.backend.log_model(state.run_id, record, source, facts)

    def _upload(self) -> None:
        for path in (self.study_dir / name for name in FILES):
            if path.exists():
                self.backend.upload_file(self.state.parent, path)
        for path in sorted((self.study_dir / "best").glob("*.yaml")):
            self.backend.upload_file(self.state.parent, path, "best")
        self.attach(sorted(path for path in (self.study_dir / REPORT).glob("*") if path.is_file()))


def facts_of(study: Mapping[str, Any], record: Record) -> dict[str, Any]:
    """What the study knows of a run's dataset; {} where it knows nothing."""
    return dict(study.get("datasets", {}).get(record.tags.get("data_digest", ""), {}))
