"""MLflow from the driver: one thread follows the journals of a study's runs; an unreachable server only delays it.

Every run is found again by its tags (study, kind, key) and every point carries the time at which its round was
computed, so that no number of resumes makes a second run or a second point.
"""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedrela_bench import leases
from fedrela_bench.errors import StoreError
from fedrela_bench.tracking.backend import Backend, Point
from fedrela_bench.tracking.curves import Curves
from fedrela_bench.tracking.datasets import dataset_of
from fedrela_bench.tracking.manifest import Manifest, Record
from fedrela_bench.tracking.naming import study_name
from fedrela_bench.tracking.notes import NOTE, run_note
from fedrela_bench.tracking.parent import Parent, facts_of
from fedrela_bench.tracking.payload import cost_tags, final_metrics, read_result, round_metrics, tags_of
from fedrela_bench.tracking.state import RunState, State, load_state, save_state
from fedrela_bench.tracking.ui import check_uri, tracking_uri
from fedrela_bench.tracking.view import COLOUR_TAG, colour_of

POLL_SECONDS = 2.0
RETRY_SECONDS = 15.0


class Sink:
    """Follows a study's manifest and journals into MLflow.

    Args:
        study_dir: with ``study.json`` and ``runs.jsonl``.
        uri: tracking URI.
        warn: receives at most one sentence per outage.
    """

    def __init__(self, study_dir: Path, uri: str, warn: Callable[[str], None] = lambda text: None) -> None:
        self.study_dir = study_dir
        self.uri = check_uri(uri)
        self.warn = warn
        self.points = 0
        self.down: str | None = None
        self._manifest = Manifest(study_dir)
        self._state = State()
        self._backend: Backend | None = None
        self._curves = Curves(self._manifest)
        self._stopped: dict[str, str] = {}
        self._unsure = False
        self._saved = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="tracking", daemon=True)

    # life ------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def close(self, status: str, patience: float = 120.0) -> bool:
        """Log what is left, end every run (KILLED where no result is) and the parent with `status`.

        Args:
            status: of the study.
            patience: seconds without any progress after which a slow MLflow is left.

        Returns:
            Whether MLflow has everything; if not, `sync` completes it later.
        """
        self._stop.set()
        while self._thread.is_alive():
            before = self._saved
            self._thread.join(patience)
            if self._thread.is_alive() and self._saved == before:
                self._report("MLflow does not answer in time")
                return False
        return self._attempt(lambda: self._finish(status))

    def _follow(self) -> None:
        wait = 0.0
        while not self._stop.wait(wait):
            wait = POLL_SECONDS if self._attempt(self.drain) else RETRY_SECONDS

    def _attempt(self, work: Callable[[], Any]) -> bool:
        try:
            work()
        except Exception as error:  # whatever the server or its client raises must not reach the study
            self._unsure = True
            self._report(f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}")
            return False
        self.down = None
        return True

    def _report(self, reason: str) -> None:
        if self.down is None:
            self.warn(
                f"MLflow at {self.uri} cannot be written ({reason}); the study goes on, "
                f"`{shlex.join(['fedrela-bench', 'sync', str(self.study_dir)])}` completes the curves later"
            )
        self.down = reason

    # work ------------------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Log everything new once."""
        backend = self._connect()
        self._look_again(backend)
        records, errors = self._manifest.read()
        self._stopped = self._manifest.stopped()
        errors = {**errors, **self._stopped}
        for record in records:
            state = self._state.runs.get(record.id)
            if state is None or not (state.done or (state.ended and not self._alive(record, errors))):
                self._drain_run(backend, record, errors)

    def _alive(self, record: Record, errors: dict[str, str]) -> bool:
        folder = self._manifest.path(record.folder)
        return read_result(folder) is not None or record.id not in errors

    def _connect(self) -> Backend:
        if self._backend is not None:
            return self._backend
        study = self._study()
        backend = Backend(self.uri, study["experiment"])
        self._state = load_state(self.study_dir, self.uri)
        if not self._state.parent or not backend.reopen(self._state.parent):
            known = backend.find(study["study"])
            self._state = State(known.pop("study", ""), runs={name: RunState(run_id) for name, run_id in known.items()})
            if not self._state.parent or not backend.reopen(self._state.parent):
                tags = {**study["parent_tags"], "kind": "study", "mlflow.runName": study_name(self.study_dir)}
                self._state.parent = backend.create(tags, study["created"])
        self._state.parent_status, self._state.experiment = "", backend.experiment_id
        self._backend = backend
        self._parent().introduce(study)
        self._save_state()
        return backend

    def _look_again(self, backend: Backend) -> None:
        """After an error: a run may have been made although its answer was lost."""
        if not self._unsure:
            return
        for name, run_id in backend.find(self._study()["study"]).items():
            if name != "study":
                self._state.runs.setdefault(name, RunState(run_id))
        self._unsure = False

    def _drain_run(self, backend: Backend, record: Record, errors: dict[str, str]) -> None:
        state = self._state.runs.get(record.id) or self._open(backend, record)
        result = read_result(self._manifest.path(record.folder))
        params = {} if state.params else self._introduce(backend, record, state)
        lines, tags = self._curves.fresh(record, state)
        points = [point for line in lines for point in round_metrics(line)]
        last = max([state.last_round, *(line["round"] for line in lines)])
        finished = result if result is not None and last >= result["last_round"] else None
        if finished is not None:
            points += final_metrics(finished)
            tags |= {"status": finished["status"], NOTE: self._note(record, finished), **cost_tags(finished)}
        elif record.id in errors and result is None:
            stopped = record.id in self._stopped
            status, name = ("stopped", "why") if stopped else ("failed", "error")
            tags |= {name: errors[record.id], "status": status}
        self._log(backend, state, points, params, tags)
        state.params = True
        self._curves.settle(record, state, lines, tags)
        if finished is not None:
            self._finish_run(backend, record, state, finished)
        elif record.id in errors and result is None:
            state.ended = "KILLED" if record.id in self._stopped else "FAILED"
            backend.end(state.run_id, state.ended)
        if points or params or tags:
            self._save_state()

    def _open(self, backend: Backend, record: Record) -> RunState:
        tags = {**tags_of(record, self._study()), "mlflow.parentRunId": self._state.parent, NOTE: self._note(record)}
        tags |= {COLOUR_TAG: colour_of(len(self._state.runs))}
        state = self._state.runs[record.id] = RunState(backend.create(tags, record.created))
        self._save_state()
        return state

    def _introduce(self, backend: Backend, record: Record, state: RunState) -> dict[str, str]:
        """Parameters to log, and the dataset; an outage may have come between a run and them."""
        entry = dataset_of(record, self._study())
        if entry is not None:
            backend.log_dataset(state.run_id, entry)
        return backend.params(state.run_id, record)

    def _note(self, record: Record, result: dict[str, Any] | None = None) -> str:
        base = read_result(self._manifest.path(record.trunk_folder)) if record.trunk_folder else None
        link = self._parent().link(record.trunk_key)
        trunk = f"[its trunk]({link})" if link else "its trunk"
        final = {} if result is None else result["final"]
        return run_note(record, self._study(), trunk, final, {} if base is None else base["final"])

    def _log(
        self, backend: Backend, state: RunState, points: list[Point], params: dict[str, str], tags: dict[str, str]
    ) -> None:
        if points and state.ended:
            backend.reopen(state.run_id)
            state.ended = ""
        backend.log(state.run_id, points, params, tags)
        self.points += len(points)

    def _finish_run(self, backend: Backend, record: Record, state: RunState, result: dict[str, Any]) -> None:
        names = facts_of(self._study(), record).get("class_names", ())
        backend.upload(state.run_id, record, self._manifest.path(record.folder), names)
        backend.end(state.run_id, "FINISHED", result["owner"]["time"])
        state.ended, state.done = "FINISHED", True

    def _finish(self, status: str) -> None:
        self.drain()
        backend = self._connect()
        for state in self._state.runs.values():
            if not state.ended:
                backend.end(state.run_id, "KILLED")
                state.ended = "KILLED"
        self._parent().conclude(self._study(), status)
        self._save_state()

    def _parent(self) -> Parent:
        return Parent(self.study_dir, self._state, self._connect(), self._save_state)

    # state -----------------------------------------------------------------------------------------------------------

    def _study(self) -> dict[str, Any]:
        return dict(json.loads((self.study_dir / "study.json").read_text(encoding="utf-8")))

    def _save_state(self) -> None:
        self._saved += 1
        save_state(self.study_dir, self.uri, self._state)


def sync(study_dir: Path, uri: str | None = None) -> dict[str, int]:
    """Complete MLflow from the study's journals; runs without a result end as KILLED.

    Args:
        study_dir: the ``--out`` folder of a study that is not running.
        uri: tracking URI; by default the study's.

    Returns:
        ``runs`` in the study and ``points`` logged now.

    Raises:
        ConfigError: not a study folder, or a file store.
        StoreError: MLflow cannot be written, or the study is running.
    """
    target = check_uri(uri if uri is not None else tracking_uri(study_dir))
    with leases.hold(study_dir / ".lock", until=lambda: True) as held:
        if not held:
            raise StoreError(f"the study in {study_dir} is running and logs by itself; wait for its end")
        sink = Sink(study_dir, target)
        if not sink.close("FINISHED"):
            raise StoreError(f"MLflow at {target} cannot be written ({sink.down}); start the server and repeat")
    return {"runs": len(Manifest(study_dir).read()[0]), "points": sink.points}


def attach_report(study_dir: Path, files: Sequence[Path], uri: str | None = None) -> None:
    """Put a report's files beside the study's parent run; nothing is done where it has them.

    Raises:
        StoreError: MLflow cannot be written.
    """
    target = check_uri(uri if uri is not None else tracking_uri(study_dir))
    state = load_state(study_dir, target)
    if not state.parent:
        return
    study = json.loads((study_dir / "study.json").read_text(encoding="utf-8"))
    try:
        backend = Backend(target, study["experiment"])
        Parent(study_dir, state, backend, lambda: save_state(study_dir, target, state)).attach(files)
    except Exception as error:  # whatever the server or its client raises
        command = shlex.join(["fedrela-bench", "sync", str(study_dir)])
        raise StoreError(f"MLflow at {target} does not have the report ({error}); `{command}` adds it") from error
