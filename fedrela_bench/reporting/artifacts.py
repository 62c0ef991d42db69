"""Files that runs carry in MLflow, local or remote."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from zipfile import BadZipFile

import numpy as np

from fedrela_bench.errors import StoreError


class Artifacts(Protocol):
    """Where the files of runs come from."""

    def names(self, run_id: str) -> tuple[str, ...]:
        """Files at the top of a run's artifacts, sorted; empty where there are none."""

    def read(self, run_id: str, name: str) -> bytes:
        """One of these files."""


class NoArtifacts:
    """Runs without files."""

    def names(self, run_id: str) -> tuple[str, ...]:
        """None."""
        return ()

    def read(self, run_id: str, name: str) -> bytes:
        """Raise KeyError."""
        raise KeyError(name)


@dataclass(frozen=True)
class MlflowArtifacts:
    """The artifacts of an MLflow store, listed once per run."""

    client: Any
    _listed: dict[str, tuple[str, ...]] = field(default_factory=dict, compare=False)

    def names(self, run_id: str) -> tuple[str, ...]:
        """See `Artifacts`.

        Raises:
            StoreError: the store cannot be read.
        """
        if run_id not in self._listed:
            from mlflow.exceptions import MlflowException

            try:
                listed = self.client.list_artifacts(run_id)
            except (MlflowException, OSError) as error:
                raise _unreadable(run_id, error) from None
            self._listed[run_id] = tuple(sorted(file.path for file in listed if not file.is_dir))
        return self._listed[run_id]

    def read(self, run_id: str, name: str) -> bytes:
        """See `Artifacts`.

        Raises:
            StoreError: the store cannot be read.
        """
        # MLflow would draw a progress bar for every file.
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        from mlflow.exceptions import MlflowException

        try:
            with tempfile.TemporaryDirectory() as temporary:
                return Path(self.client.download_artifacts(run_id, name, temporary)).read_bytes()
        except (MlflowException, OSError) as error:
            raise _unreadable(f"{run_id}/{name}", error) from None


@dataclass(frozen=True)
class JoinedArtifacts:
    """The files of runs of several studies."""

    of: Mapping[str, Artifacts]
    """Run id to the store that has it."""

    def names(self, run_id: str) -> tuple[str, ...]:
        """See `Artifacts`."""
        return self.of[run_id].names(run_id)

    def read(self, run_id: str, name: str) -> bytes:
        """See `Artifacts`."""
        return self.of[run_id].read(run_id, name)


def parse_arrays(content: bytes, name: str) -> dict[str, np.ndarray]:
    """The arrays of an npz file.

    Raises:
        StoreError: not an npz file, or a damaged one.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return {key: arrays[key] for key in arrays.files}
    except (OSError, ValueError, EOFError, KeyError, BadZipFile) as error:
        raise StoreError(f"the artifact {name} is damaged ({error}); write it again with fedrela-bench sync") from None


def _unreadable(what: str, error: Exception) -> StoreError:
    reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
    return StoreError(f"the artifacts of MLflow run {what} cannot be read ({reason}); check the artifact store")
