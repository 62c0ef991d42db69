"""A PostgreSQL server of one's own: no superuser, no system service, gone afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

PROGRAMS = ("initdb", "pg_ctl")
PLACES = "/usr/lib/postgresql"
ACCOUNTS = ("postgres", "nobody")
USER, DATABASE = "study", "postgres"


class Postgres:
    """A server that can be stopped like a crash and started again; `initdb` refuses root, so root takes an account."""

    def __init__(self) -> None:
        self.programs = {name: program(name) for name in PROGRAMS}
        self.owner = account() if os.geteuid() == 0 else None
        # Another account must be able to go there, which it cannot in the test's own folder.
        self.folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
        if self.owner is not None:
            os.chown(self.folder, pwd.getpwnam(self.owner).pw_uid, pwd.getpwnam(self.owner).pw_gid)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"postgresql://{USER}@127.0.0.1:{self.port}/{DATABASE}"
        self._run("initdb", "-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")

    def start(self) -> None:
        """Returns once it takes connections."""
        settings = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder} -c fsync=off"
        log = str(self.folder / "log")
        self._run("pg_ctl", "-l", log, "-w", "-t", "600", "-o", settings, "start")

    def crash(self) -> None:
        """Every process of it ends without a word to its clients."""
        self._run("pg_ctl", "-w", "-t", "600", "-m", "immediate", "stop")

    def remove(self) -> None:
        """Nothing stays."""
        if (self.folder / "data" / "postmaster.pid").exists():
            self.crash()
        shutil.rmtree(self.folder)

    def _run(self, name: str, *arguments: str) -> None:
        command = [self.programs[name], "-D", str(self.folder / "data"), *arguments]
        ended = subprocess.run(
            command,
            user=self.owner,
            group=None if self.owner is None else pwd.getpwnam(self.owner).pw_gid,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        log = self.folder / "log"
        assert ended.returncode == 0, f"{name}: {log.read_text() if log.exists() else 'no log'}"


def program(name: str) -> str:
    """Where a program of PostgreSQL is; skips where there is none."""
    beside = sorted(Path(PLACES).glob(f"*/bin/{name}"))
    found = shutil.which(name) or (str(beside[-1]) if beside else None)
    if found is None:
        pytest.skip(f"no PostgreSQL server here ({name}); install the package postgresql")
    return found


def account() -> str:
    """An account without rights; skips where there is none."""
    names = {entry.pw_name for entry in pwd.getpwall()}
    found = next((name for name in ACCOUNTS if name in names), None)
    if found is None:
        pytest.skip("PostgreSQL does not run as root, and there is no other account here")
    return found


def require_driver() -> None:
    """Skip where postgresql:// has no driver."""
    from sqlalchemy import make_url

    try:
        make_url("postgresql://h/d").get_dialect().import_dbapi()
    except ModuleNotFoundError as error:
        pytest.skip(f"no {error.name} here; pip install 'fedrela-bench[postgres]'")
