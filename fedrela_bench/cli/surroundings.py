"""What `doctor` says of folders, disks, datasets, a Ray cluster and an MLflow server."""

from __future__ import annotations

import os
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fedrela_bench import host
from fedrela_bench.cli.findings import Finding, looked, split_fault
from fedrela_bench.cli.machine import ROOMY_DISK, size_text
from fedrela_bench.errors import ConfigError, DataError

FOLDERS, SERVICES, DATA = "folders", "services", "datasets"
STUDIES = Path("studies")
ANSWER_SECONDS = 4.0
MOUNTS = Path("/proc/mounts")
PUT = "docs/data.md says what to put where"
"""Of what cannot be downloaded."""
REMOTE = ("nfs", "nfs4", "lustre", "cifs", "smb3", "smbfs", "beegfs", "gpfs", "fuse.sshfs", "9p", "glusterfs")
"""File systems of other machines, on which an SQLite database is slow and its locks may not hold."""


def folders(out: Path | None, store: Path | None) -> Iterator[Finding]:
    """Where studies, computed runs and images are kept, and what room is left there."""
    studies = partial(_studies, out or STUDIES, "--out", out is not None)
    yield from looked(FOLDERS, "studies", studies)
    if store is not None:
        yield from looked(FOLDERS, "store", partial(_studies, store, "--store", True))
    yield from looked(FOLDERS, "cache", _cache)


def services(ray_address: str | None, uri: str | None, out: Path | None) -> Iterator[Finding]:
    """The Ray cluster and the MLflow store that a study would use."""
    yield from looked(SERVICES, "ray", partial(_ray, ray_address))
    yield from looked(SERVICES, "mlflow", partial(_mlflow, uri, out or STUDIES))


def datasets(data_dir: Path | None) -> Iterator[Finding]:
    """Named datasets that are found here; none is downloaded."""
    yield from looked(DATA, "datasets", partial(_datasets, data_dir))


def _studies(path: Path, option: str, asked: bool) -> Iterator[Finding]:
    from fedrela_bench.study.paths import path_faults
    from fedrela_bench.study.room import LEAST_DISK

    told = partial(Finding, FOLDERS, "studies" if option == "--out" else "store")
    faults = path_faults(path, None, None) if option == "--out" else path_faults(STUDIES, path, None)
    for fault in (fault for fault in faults if fault.startswith(option)):
        fact, remedy = split_fault(fault)
        yield told("fail" if asked else "warn", fact, remedy if asked else "give run and tune an --out elsewhere")
        return
    free = host.free_disk(path) or 0
    fact = f"{path.absolute()}, {size_text(free)} free"
    if free < LEAST_DISK:
        yield told("fail", fact, f"free space there (`fedrela-bench gc STORE`), or give another {option}")
    elif free < ROOMY_DISK:
        remedy = "tune says before it starts what it needs; `fedrela-bench gc STORE` frees what no study names"
        yield told("warn", fact, remedy)
    else:
        yield told("ok", fact)


def _cache() -> Iterator[Finding]:
    from fedrela_bench.data.sources.places import CACHE_VARIABLE, default_cache_dir
    from fedrela_bench.study.paths import folder_faults

    path = default_cache_dir()
    remedy = f"set {CACHE_VARIABLE} to a folder that can be written"
    faults = folder_faults(CACHE_VARIABLE, path)
    if faults:
        yield Finding(FOLDERS, "cache", "warn", split_fault(faults[0])[0], remedy)
        return
    free = host.free_disk(path) or 0
    fact = f"{path}, {size_text(free)} free"
    yield (
        Finding(FOLDERS, "cache", "ok", fact) if free >= ROOMY_DISK else Finding(FOLDERS, "cache", "warn", fact, remedy)
    )


def _ray(address: str | None) -> Iterator[Finding]:
    from fedrela_bench.study.address import knock

    told = partial(Finding, SERVICES, "ray")
    place = address or os.environ.get("RAY_ADDRESS")
    named = "" if address else " (RAY_ADDRESS)"
    if not place:
        yield told("ok", "no cluster given: tune starts Ray on this machine and ends it afterwards")
    elif not place.rpartition(":")[2].isdigit():
        yield told("warn", f"{place}{named} is looked up only when a study starts", "give HOST:PORT to have it tried")
    else:
        try:
            knock(place)
            yield told("ok", f"a cluster answers at {place}{named}")
        except ConfigError as error:
            fact, remedy = split_fault(str(error))
            where = "" if address else "RAY_ADDRESS is set: "
            yield told("fail", where + fact, remedy if address else "start the cluster, or unset RAY_ADDRESS")


def _mlflow(uri: str | None, out: Path) -> Iterator[Finding]:
    from fedrela_bench.tracking.ui import check_uri, database_of

    told = partial(Finding, SERVICES, "mlflow")
    if uri is None:
        kind = file_system(out)
        if kind in REMOTE:
            remedy = "give tune --tracking-uri with the address of an MLflow server"
            yield told("warn", f"an SQLite file in the study folder, which is on {kind}", remedy)
        else:
            yield told("ok", "an SQLite file in the study folder; `fedrela-bench ui STUDY` shows it")
        return
    try:
        check_uri(uri)
    except ConfigError as error:
        yield told("fail", *split_fault(str(error)))
        return
    path = database_of(uri)
    if path is not None:
        yield _file(uri, path)
    elif uri.startswith("http"):
        yield _server(uri)
    else:
        yield told("ok", f"{uri.partition(':')[0]}: looked up only when a study starts")


def _file(uri: str, path: Path) -> Finding:
    from fedrela_bench.study.paths import path_faults

    told = partial(Finding, SERVICES, "mlflow")
    for fault in (fault for fault in path_faults(STUDIES, None, uri) if fault.startswith("--tracking-uri")):
        return told("fail", *split_fault(fault))
    if not path.exists():
        return told("ok", f"{path} will be made")
    try:
        with sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=ANSWER_SECONDS) as database:
            database.execute("select count(*) from sqlite_master").fetchone()
    except sqlite3.Error as error:
        return told("fail", f"{path} is no database ({error})", "move it away, or name another file")
    return told("ok", f"{path}, {size_text(path.stat().st_size)}")


def _server(uri: str) -> Finding:
    """Whether a server answers; studies survive that it does not."""
    later = "start it; until then a study runs without it, and `fedrela-bench sync STUDY` completes it"
    try:
        with urllib.request.urlopen(f"{uri.rstrip('/')}/version", timeout=ANSWER_SECONDS) as answer:
            version = answer.read(100).decode("utf-8", "replace").strip()
    except (OSError, ValueError, urllib.error.URLError) as error:
        return Finding(SERVICES, "mlflow", "warn", f"nothing usable answers at {uri} ({error})", later)
    if not version[:1].isdigit():
        remedy = "give the address of an MLflow server, such as http://host:5000"
        return Finding(SERVICES, "mlflow", "warn", f"what answers at {uri} is no MLflow server", remedy)
    return Finding(SERVICES, "mlflow", "ok", f"MLflow {version} answers at {uri}")


def file_system(path: Path) -> str:
    """The kind of file system that a path is or will be on, such as ext4; empty where nothing says so."""
    try:
        mounts = [line.split()[1:3] for line in MOUNTS.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        return ""
    place = path.resolve()
    holding = [(len(point), kind) for point, kind in mounts if place.is_relative_to(point)]
    return max(holding, default=(0, ""))[1]


def _datasets(data_dir: Path | None) -> Iterator[Finding]:
    from fedrela_bench.data.names import NAMED_SOURCES
    from fedrela_bench.data.sources.places import default_cache_dir, places, search

    for source in NAMED_SOURCES:
        if source == "digits":
            yield Finding(DATA, source, "ok", "comes with scikit-learn")
            continue
        try:
            found, reasons = search(source, places(source, data_dir, default_cache_dir()))
        except DataError as error:
            yield Finding(DATA, "--data-dir", "fail", *split_fault(str(error)))
            return
        broken = [reason for reason in reasons if "lacks" in reason or "parquet files" in reason]
        get = f"fedrela-bench data get {source}"
        get, complete = (PUT, f"complete it; {PUT}") if source == "imagenet" else (get, f"complete it, or {get}")
        if found is not None:
            yield Finding(DATA, source, "ok", str(found.folder))
        elif broken:
            yield Finding(DATA, source, "warn", "; ".join(broken), complete)
        else:
            yield Finding(DATA, source, "ok", f"not here; {get}")
