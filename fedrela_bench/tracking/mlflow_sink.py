"""MLflow from the driver: one thread follows the journals of a study's runs; an unreachable server only delays it.

Every run is found again by its tags (study, kind, key) and every point carries the time at which its round was
computed, so that no number of resumes makes a second run or a second point.
"""

from __future__ import annotations

import json
import shlex
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedrela_bench import leases
from fedrela_bench.errors import StoreError
from fedrela_bench.tracking.backend import Backend
from fedrela_bench.tracking.journal import Journal
from fedrela_bench.tracking.manifest import Manifest, Record
from fedrela_bench.tracking.payload import final_metrics, read_result, round_metrics, tags_of
from fedrela_bench.tracking.state import RunState, State, load_state, save_state
from fedrela_bench.tracking.ui import check_uri, tracking_uri

POLL_SECONDS = 2.0
RETRY_SECONDS = 15.0
PARENT_FILES = ("study.json", "trials.csv", "pareto.csv", "confirmed.csv")


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
        self.summary: dict[str, float] = {}
        self.points = 0
        self.down: str | None = None
        self._manifest = Manifest(study_dir)
        self._state = State()
        self._backend: Backend | None = None
        self._offsets: dict[str, int] = {}
        self._stopped: dict[str, str] = {}
        self._unsure = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="tracking", daemon=True)

    # life ------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def close(self, status: str, patience: float = 120.0) -> bool:
        """Log what is left, end every run (KILLED where no result is) and the parent with `status`.

        Returns:
            Whether MLflow has everything; if not, `sync` completes it later.
        """
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(patience)
            if self._thread.is_alive():
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
            self._state = State(known.pop("study", ""), "", {name: RunState(run_id) for name, run_id in known.items()})
            if not self._state.parent or not backend.reopen(self._state.parent):
                tags = {**study["parent_tags"], "kind": "study", "mlflow.runName": self.study_dir.resolve().name}
                self._state.parent = backend.create(tags, study["created"])
        self._state.parent_status = ""
        self._backend = backend
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
        before = (state.last_round, state.prefix, state.done)
        if not state.params:
            # An outage may have come between the run and its parameters.
            backend.log_params(state.run_id, record)
            state.params = True
        if not state.prefix:
            state.prefix = self._copy_prefix(backend, record, state)
        if state.prefix:
            self._log_rounds(backend, record, state)
        if result is not None and state.last_round >= result["last_round"]:
            self._finish_run(backend, record, state, result)
        elif record.id in errors and result is None:
            stopped = record.id in self._stopped
            status, name = ("stopped", "why") if stopped else ("failed", "error")
            backend.log(state.run_id, tags={name: errors[record.id], "status": status})
            state.ended = "KILLED" if stopped else "FAILED"
            backend.end(state.run_id, state.ended)
        if before != (state.last_round, state.prefix, state.done) or state.ended:
            self._save_state()

    def _open(self, backend: Backend, record: Record) -> RunState:
        tags = {**tags_of(record, self._study()), "mlflow.parentRunId": self._state.parent}
        state = self._state.runs[record.id] = RunState(backend.create(tags, record.created))
        self._save_state()
        return state

    def _copy_prefix(self, backend: Backend, record: Record, state: RunState) -> bool:
        """The rounds that the run shares, so that curves overlay; False while they are not there."""
        if not record.trunk_folder or not record.fork_round:
            return True
        lines = self._shared_lines(record.trunk_folder, 1, record.fork_round)
        if lines is not None and record.branch_folder and len(lines) == record.fork_round:
            after = self._shared_lines(record.branch_folder, record.fork_round + 1, record.branch_round)
            lines = None if after is None else lines + after
        if lines is None:
            return False
        self._log(backend, state, [point for line in lines for point in round_metrics(line)])
        backend.log(state.run_id, tags={"prefix_copied": f"1..{len(lines)}"})
        state.last_round = max(state.last_round, len(lines))
        return True

    def _shared_lines(self, name: str, first: int, last: int) -> list[dict[str, Any]] | None:
        """Rounds of another run's journal; None while it has not come that far."""
        folder = self._manifest.path(name)
        lines = Journal(folder / "rounds.jsonl").rounds(first)[: last - first + 1]
        return None if len(lines) < last - first + 1 and read_result(folder) is None else lines

    def _log_rounds(self, backend: Backend, record: Record, state: RunState) -> None:
        journal = Journal(self._manifest.path(record.folder) / "rounds.jsonl")
        lines, offset = journal.tail(self._offsets.get(record.id, 0))
        fresh = [line for line in lines if line["round"] > state.last_round]
        self._log(backend, state, [point for line in fresh for point in round_metrics(line)])
        self._offsets[record.id] = offset
        state.last_round = max([state.last_round, *(line["round"] for line in fresh)])

    def _log(self, backend: Backend, state: RunState, points: list[tuple[str, float, int, int]]) -> None:
        if points and state.ended:
            backend.reopen(state.run_id)
            state.ended = ""
        backend.log(state.run_id, points)
        self.points += len(points)

    def _finish_run(self, backend: Backend, record: Record, state: RunState, result: dict[str, Any]) -> None:
        backend.log(state.run_id, final_metrics(result), tags={"status": result["status"]})
        backend.upload(state.run_id, record, self._manifest.path(record.folder))
        backend.end(state.run_id, "FINISHED", result["owner"]["time"])
        state.ended, state.done = "FINISHED", True

    def _finish(self, status: str) -> None:
        self.drain()
        backend, study = self._connect(), self._study()
        for state in self._state.runs.values():
            if not state.ended:
                backend.end(state.run_id, "KILLED")
                state.ended = "KILLED"
        stamp = int(time.time() * 1000)
        points = [(name, value, stamp, 0) for name, value in self.summary.items()]
        backend.log(self._state.parent, points, params={"space": json.dumps(study["identity"]["space"])[:6000]})
        for path in (
            *(self.study_dir / name for name in PARENT_FILES),
            *sorted((self.study_dir / "best").glob("*.yaml")),
        ):
            if path.exists():
                backend.upload_file(self._state.parent, path, "best" if path.parent.name == "best" else None)
        backend.end(self._state.parent, status)
        self._state.parent_status = status
        self._save_state()

    # state -----------------------------------------------------------------------------------------------------------

    def _study(self) -> dict[str, Any]:
        return dict(json.loads((self.study_dir / "study.json").read_text(encoding="utf-8")))

    def _save_state(self) -> None:
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
