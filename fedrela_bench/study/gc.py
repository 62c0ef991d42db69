"""Freeing what no study names: abandoned trunks and cells, and the temporary files of killed processes."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedrela_bench import leases
from fedrela_bench.errors import ConfigError, StoreError
from fedrela_bench.nested import Json
from fedrela_bench.study.identity import LOCK
from fedrela_bench.study.store import FOLDERS, LEASE, Store, studies_of
from fedrela_bench.tracking.manifest import RUNS, Manifest

LITTER_SECONDS = 3600.0
"""Temporary files younger than this may belong to a process that is writing them."""


@dataclass
class Litter:
    """What can be freed in a store."""

    store: Path
    studies: list[Path]
    """Folders whose runs stay."""
    unnamed: list[Path] = field(default_factory=list)
    """Folders of trunks and cells that no study names."""
    temporary: list[Path] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    """One sentence for each unnamed folder that a living process writes to; it stays."""

    @property
    def bytes(self) -> int:
        """Size of all that can be freed."""
        return sum(map(_size, (*self.unnamed, *self.temporary)))


def store_of(folder: Path) -> Path:
    """The store of a study folder, or the folder itself when it is a store.

    Raises:
        ConfigError: it is neither.
    """
    if any((folder / name).is_dir() for name in FOLDERS.values()):
        return folder
    if (folder / "study.json").is_file():
        return Path(_recorded_store(folder))
    raise ConfigError(f"{folder} is neither a study folder nor a store; give what `tune` wrote as --out or --store")


def find_litter(store: Path, studies: Sequence[Path] = (), forget: Sequence[Path] = ()) -> Litter:
    """Look for what no study names.

    Args:
        store: to look through.
        studies: folders of studies that were moved since they ran.
        forget: recorded folders of studies that are gone for good.

    Raises:
        ConfigError: a recorded study is not where it was, so that its runs cannot be told from litter.
        StoreError: a study on this store is running and may be about to name something.
    """
    known = _known_studies(store, studies, forget)
    for study in known:
        owner = leases.holder(study / LOCK)
        if owner is not None:
            raise StoreError(f"{owner.text()} runs the study in {study} on this store; repeat gc when it has ended")
    named = {folder for study in known for folder in _named(study)}
    litter = Litter(store, known)
    for kind in FOLDERS.values():
        for folder in sorted(path for path in (store / kind).glob("*") if path.is_dir()):
            if folder.resolve() in named:
                litter.temporary += _temporary(folder)
            elif (owner := leases.holder(folder / LEASE)) is not None:
                litter.held.append(f"{folder} stays: {owner.text()} writes there")
            else:
                litter.unnamed.append(folder)
    return litter


def free(litter: Litter) -> int:
    """Delete what `find_litter` found; returns the bytes freed. What came into use meanwhile stays."""
    freed = 0
    for path in litter.temporary:
        freed += _size(path)
        path.unlink(missing_ok=True)
    for folder in litter.unnamed:
        with leases.hold(folder / LEASE, until=lambda: True) as held:
            if held:
                freed += _size(folder)
                shutil.rmtree(folder, ignore_errors=True)
    return freed


def _known_studies(store: Path, studies: Sequence[Path], forget: Sequence[Path]) -> list[Path]:
    moved = [study.resolve() for study in studies]
    for study in moved:
        if not (study / "study.json").is_file():
            raise ConfigError(f"--study {study} is not a study folder (no study.json)")
    # A store inside its study moves with it.
    inside = [store.resolve().parent] if (store.resolve().parent / "study.json").is_file() else []
    try:
        recorded = studies_of(store)
    except StoreError as error:
        raise StoreError(f"{error}; repeat the `tune` command of every study on this store, then gc") from error
    there = {study for study in recorded.values() if (study / "study.json").is_file()}
    settled = {name for name, study in recorded.items() if study in there or study in {p.absolute() for p in forget}}
    settled |= {_id(study) for study in (*moved, *inside)}
    gone = [study for name, study in recorded.items() if name not in settled]
    if not there and not moved and not inside and not forget:
        raise ConfigError(f"nothing says which studies use {store}; name them with --study DIR")
    if gone:
        raise ConfigError(
            [
                f"the study that ran in {study} is not there any more; give its new folder as --study, or its old one "
                "as --forget if it is gone for good"
                for study in gone
            ]
        )
    return sorted({*there, *moved, *inside})


def _id(study: Path) -> str:
    return str(_facts(study).get("study", ""))


def _facts(study: Path) -> Json:
    path = study / "study.json"
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(f"{path} is damaged ({error}); move it away and repeat its command, then gc") from error


def _recorded_store(study: Path) -> str:
    inside = study / "store"
    if inside.is_dir():
        return str(inside)
    return str(_facts(study).get("store", inside))


def _named(study: Path) -> set[Path]:
    manifest = Manifest(study)
    if not manifest.whole:
        raise StoreError(
            f"{manifest.path(RUNS)} is damaged or gone, so that the runs of this study cannot be told from litter; "
            "move it away, repeat the study's command, then gc"
        )
    records, _ = manifest.read()
    names = {name for record in records for name in (record.folder, record.trunk_folder, record.branch_folder) if name}
    # Where a study that was moved says its runs are is not where they are; their keys still are theirs.
    store = Store(Path(_recorded_store(study)))
    keys = {store.root / kind / Path(name).name for name in names for kind in FOLDERS.values()}
    return {path.resolve() for path in (*map(manifest.path, names), *keys)}


def _temporary(folder: Path) -> list[Path]:
    old = time.time() - LITTER_SECONDS
    return [path for path in folder.rglob(".*.tmp") if path.stat().st_mtime < old]


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
