"""Folders and files that a study is asked to use, looked at before anything is written."""

from __future__ import annotations

import os
from pathlib import Path

RUN_FILES = ("rounds.jsonl", "last.pt", "confusion.npz", "result.json")
"""What `run --out` writes; a folder with these belongs to a run."""
STORE_FOLDERS = ("trunks", "cells")
SQLITE = "sqlite:///"


def path_faults(out: Path, store: Path | None, uri: str | None) -> list[str]:
    """Why a study cannot be kept there, each with a remedy.

    Args:
        out: the study folder.
        store: an own place for computed runs.
        uri: an own tracking URI.
    """
    faults = _remote_faults("--out", out) or folder_faults("--out", out) or _claimed(out)
    if store is not None and _remote_faults("--store", store):
        faults += _remote_faults("--store", store)
    elif store is not None:
        faults += folder_faults("--store", store) or _run_faults("--store", store)
    return faults + (_database_faults(uri, out) if uri is not None else [])


def _remote_faults(option: str, path: Path) -> list[str]:
    scheme, colon, _ = str(path).partition(":/")
    if not colon or not scheme.isalnum() or len(scheme) < 2:
        return []
    return [
        f"{option} {path}: an object store cannot hold a study, whose leases and journals need renames and appends; "
        "give a folder that all nodes share (NFS, Lustre, a mounted volume)"
    ]


def folder_faults(option: str, path: Path) -> list[str]:
    """Why a folder cannot be made or written."""
    try:
        existing = next((place for place in (path, *path.absolute().parents) if os.path.lexists(place)), Path("/"))
        if not existing.is_dir():
            kind = "a broken link" if not existing.exists() else "a file"
            return [f"{option} {path}: {existing} is {kind}; choose a folder"]
        if not os.access(existing, os.W_OK | os.X_OK):
            return [f"{option} {path}: {existing} cannot be written; choose another folder"]
        path.resolve().exists()
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return [f"{option} {str(path)[:80]}: not a usable path ({reason}); choose another folder"]
    return []


def _claimed(out: Path) -> list[str]:
    if (out / "study.json").exists():
        return []
    kept = [name for name in STORE_FOLDERS if (out / name).is_dir()]
    if kept:
        return [f"--out {out} is a store of runs ({kept[0]}/); choose another --out and give this one as --store"]
    return _run_faults("--out", out)


def _run_faults(option: str, path: Path) -> list[str]:
    found = [name for name in RUN_FILES if (path / name).exists()]
    return [f"{option} {path} is the folder of a single run ({found[0]}); choose another {option}"] if found else []


def _database_faults(uri: str, out: Path) -> list[str]:
    if not uri.startswith(SQLITE):
        return []
    path = Path(uri.removeprefix(SQLITE))
    if path.is_dir():
        return [f"--tracking-uri {uri}: {path} is a folder; name a file in it, such as {SQLITE}{path / 'mlflow.db'}"]
    if not path.parent.is_dir() and path.parent.resolve() != out.resolve():
        return [f"--tracking-uri {uri}: there is no folder {path.parent}; make it or choose another file"]
    return []
