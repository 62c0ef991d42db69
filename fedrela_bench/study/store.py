"""The store: trunks and cells by key; what is finished is never computed again, by any study.

``trunks/<key>/`` and ``cells/<key>/`` hold ``config.json``, ``rounds.jsonl`` (one line per round), snapshots
``r0048.pt``, one rolling ``state.pt`` while running, arrays, and ``result.json``, which is written last and seals the
others.
"""

from __future__ import annotations

import io
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from fedrela_bench import leases
from fedrela_bench.errors import StoreError
from fedrela_bench.nested import Json
from fedrela_bench.study.files import file_digest, read_sealed, write_atomic, write_sealed
from fedrela_bench.tracking.journal import Journal

Kind = Literal["trunk", "cell"]
FOLDERS: dict[Kind, str] = {"trunk": "trunks", "cell": "cells"}
SNAPSHOT_SUFFIX = ".pt"
LEASE = "lease"
STUDIES = "studies"


@dataclass(frozen=True)
class Entry:
    """The folder of one trunk or cell."""

    kind: Kind
    key: str
    folder: Path

    @property
    def journal(self) -> Journal:
        """One JSON line per computed round."""
        return Journal(self.folder / "rounds.jsonl")

    @property
    def rolling(self) -> Path:
        """The state of an unfinished run, overwritten as it goes."""
        return self.folder / "state.pt"

    @property
    def model(self) -> Path:
        """The scored model of the finished run, where it is kept; not sealed, so that it can be freed."""
        return self.folder / "model.bin"

    def snapshot(self, round_: int) -> Path:
        """The snapshot after that many rounds."""
        return self.folder / f"r{round_:04d}{SNAPSHOT_SUFFIX}"

    def snapshot_rounds(self) -> list[int]:
        """Rounds with a kept snapshot, ascending."""
        return sorted(int(path.stem[1:]) for path in self.folder.glob(f"r[0-9]*{SNAPSHOT_SUFFIX}"))

    def begin(self, config: Json) -> None:
        """Make the folder and say what is computed in it."""
        if not (self.folder / "config.json").exists():
            write_sealed(self.folder / "config.json", config)

    def config(self) -> Json | None:
        """What `begin` wrote."""
        return read_sealed(self.folder / "config.json")

    def drop_snapshots(self) -> None:
        """Delete the kept snapshots, unless a living process may still add to them."""
        with self.lease(until=lambda: True) as held:
            for round_ in self.snapshot_rounds() if held else ():
                remove_snapshot(self.snapshot(round_))

    def write_arrays(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Write arrays as one compressed npz file."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **cast(dict[str, Any], dict(arrays)))
        write_atomic(self.folder / name, buffer.getvalue())

    def commit(self, result: Json) -> Json:
        """Seal the folder: digests of its files, then ``result.json`` as the last one; drops the rolling state."""
        names = [path.name for path in sorted(self.folder.iterdir()) if path.suffix in (".npz", ".jsonl")]
        sealed = {**result, "files": {name: file_digest(self.folder / name) for name in names}}
        write_sealed(self.folder / "result.json", sealed)
        remove_snapshot(self.rolling)
        return sealed

    def result(self) -> Json | None:
        """The finished result, or None when there is none.

        Raises:
            StoreError: the result or one of the files it seals is damaged or gone.
        """
        values = read_sealed(self.folder / "result.json")
        for name, expected in (values or {}).get("files", {}).items():
            path = self.folder / name
            if not path.exists() or file_digest(path) != expected:
                raise StoreError(f"{path} is damaged or gone")
        return values

    def discard(self) -> None:
        """Forget what was computed, snapshots included."""
        for path in self.folder.glob("*"):
            if path.is_dir():
                # Forks of a trunk write there without its lease.
                shutil.rmtree(path, ignore_errors=True)
            elif not path.name.startswith(LEASE):
                path.unlink(missing_ok=True)

    def lease(self, until: Callable[[], bool] = lambda: False) -> AbstractContextManager[bool]:
        """Hold the only right to write in this folder; waits for another living process to finish first.

        Args:
            until: ends the wait; the context then yields False.
        """
        return leases.hold(self.folder / LEASE, until)

    def require_lease(self) -> None:
        """Raise RunError when another process took the lease over."""
        leases.require(self.folder / LEASE)

    def holder(self) -> leases.Owner | None:
        """The living process that writes here, if there is one."""
        return leases.holder(self.folder / LEASE)


@dataclass
class Store:
    """Trunks and cells under one folder that every process of a study sees."""

    root: Path
    damaged: list[str] = field(default_factory=list)
    """One sentence for every damaged file met so far."""

    def entry(self, kind: Kind, key: str) -> Entry:
        """The folder of a key, whether or not it exists."""
        return Entry(kind, key, self.root / FOLDERS[kind] / key)

    def result(self, kind: Kind, key: str) -> Json | None:
        """A finished result; damaged ones are reported, moved out of the way and computed again."""
        entry = self.entry(kind, key)
        try:
            return entry.result()
        except StoreError as error:
            with entry.lease():
                # Whoever had the lease until now may have computed it again.
                mended = _intact(entry)
                if mended is None:
                    self.damaged.append(f"{error}; {kind} {key[:8]} is computed again")
                    entry.discard()
            return mended


def _intact(entry: Entry) -> Json | None:
    try:
        return entry.result()
    except StoreError:
        return None


def name_study(store: Path, study: str, folder: Path) -> None:
    """Note in the store that a study uses it, so that `gc` knows whose runs are there."""
    write_sealed(store / STUDIES / f"{study}.json", {"folder": str(folder.absolute())})


def studies_of(store: Path) -> dict[str, Path]:
    """Folder, as it was when the study last ran, of every study that uses a store, by the study's id."""
    notes = {path.stem: read_sealed(path) for path in sorted((store / STUDIES).glob("*.json"))}
    return {name: Path(values["folder"]) for name, values in notes.items() if values is not None}


def remove_snapshot(path: Path) -> None:
    """Delete a snapshot and the digest beside it."""
    for name in (path, *path.parent.glob(f"{path.name}.*")):
        name.unlink(missing_ok=True)


def owner() -> Json:
    """Who computes: host, process and time, for results and locks."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "time": time.time()}
