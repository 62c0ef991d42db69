"""Studies in this process get a copy of a ready MLflow database: setting up its tables takes seconds each time."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fedrela_bench.tracking import backend
from fedrela_bench.tracking.ui import database_of


class Copies:
    """`prepare_database` with the same outcome; the first copy is made by the real one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.make = folder, backend.prepare_database

    def __call__(self, uri: str) -> None:
        path, ready = database_of(uri), self.folder / "mlflow.db"
        if path is None or path.exists():
            return
        self.make(f"sqlite:///{ready}")
        path.parent.mkdir(parents=True, exist_ok=True)
        copy = path.with_name(f".copy-{os.getpid()}")
        shutil.copy(ready, copy)
        copy.replace(path)


@pytest.fixture(scope="session")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Copies:
    return Copies(tmp_path_factory.mktemp("ready"))


@pytest.fixture(autouse=True)
def ready_database(monkeypatch: pytest.MonkeyPatch, copies: Copies) -> None:
    monkeypatch.setattr(backend, "prepare_database", copies)
