"""The list of a study's runs, on disk from the moment they are planned, so that tracking can be completed later."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedrela_bench.tracking.journal import Journal

RUNS = "runs.jsonl"


@dataclass(frozen=True)
class Record:
    """One baseline or trial run of a study."""

    kind: str
    """trunk or cell."""
    key: str
    folder: str
    """Where its journal and result are; relative to the study folder when inside."""
    algorithm: str
    seed: int
    config: Mapping[str, Any]
    name: str
    created: float
    trunk_key: str = ""
    trunk_folder: str = ""
    fork_round: int = 0
    branch_folder: str = ""
    """Of the run that relabels once and shares the rounds after the fork, where a periodic run branches off one."""
    branch_round: int = 0
    """The last round that the run shares."""
    trial: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Names the run within its study."""
        return f"{self.kind}:{self.key}"


class Manifest:
    """``runs.jsonl``: one line per run; a run is listed once however often its study is resumed."""

    def __init__(self, study_dir: Path) -> None:
        self.study_dir = study_dir
        self._journal = Journal(study_dir / RUNS)
        self._known = {record.id for record in self.read()[0]}

    @property
    def whole(self) -> bool:
        """Whether the list is there and every line of it can be read."""
        return self._journal.path.is_file() and len(self._journal.lines()) == self._journal.whole_lines()

    def relative(self, folder: Path) -> str:
        """A folder's name in the manifest: it survives moving the study when it lies inside."""
        inside = os.path.relpath(folder.resolve(), self.study_dir.resolve())
        return str(folder.resolve()) if inside.startswith("..") else inside

    def add(self, record: Record) -> None:
        """List a run."""
        if record.id not in self._known:
            self._known.add(record.id)
            self._journal.append(asdict(record))

    def fail(self, run_id: str, error: str) -> None:
        """Note that a run failed; a result that appears later wins."""
        self._journal.append({"failed": run_id, "error": error[:2000]})

    def stop(self, run_id: str, why: str) -> None:
        """Note that a run was ended on purpose before its last round; a result that appears later wins."""
        self._journal.append({"stopped": run_id, "why": why[:2000]})

    def stopped(self) -> dict[str, str]:
        """Why runs were ended on purpose, by id."""
        return {line["stopped"]: line["why"] for line in self._journal.lines() if "stopped" in line}

    def read(self) -> tuple[list[Record], dict[str, str]]:
        """All runs in the order they were planned, and the errors of failed ones by id."""
        records: dict[str, Record] = {}
        errors: dict[str, str] = {}
        for line in self._journal.lines():
            if "failed" in line:
                errors[line["failed"]] = line["error"]
            elif "stopped" not in line:
                record = Record(**line)
                records.setdefault(record.id, record)
        return list(records.values()), errors

    def path(self, folder: str) -> Path:
        """Where a record's folder is now."""
        return self.study_dir / folder
