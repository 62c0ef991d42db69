"""Where a study is tracked and how to look at it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from urllib.parse import urlparse

from fedrela_bench.errors import ConfigError

DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
SERVERS = ("http", "https", "databricks")
SQLITE = "sqlite:///"
EXAMPLE = f"{SQLITE}mlflow.db"


def default_uri(study_dir: Path) -> str:
    """SQLite in the study folder."""
    return f"{SQLITE}{study_dir.resolve() / 'mlflow.db'}"


def database_of(uri: str) -> Path | None:
    """The file of an SQLite URI; None for every other kind."""
    return Path(uri.removeprefix(SQLITE)) if uri.startswith(SQLITE) else None


def check_uri(uri: str) -> str:
    """The URI, when MLflow can use it.

    Raises:
        ConfigError: nothing, a file store or an unknown scheme, with what to use instead.
    """
    scheme, colon, rest = uri.partition(":")
    base = scheme.partition("+")[0]
    if uri == "databricks" or (colon and base in (*SERVERS, *DATABASES) and rest.lstrip("/")):
        if base != "sqlite" or rest.startswith("///"):
            return uri
        raise ConfigError(f"tracking URI {uri}: write sqlite:/// and the path of the database, such as {EXAMPLE}")
    if not uri.strip():
        raise ConfigError(f"the tracking URI is empty; leave it out, or give {EXAMPLE} or the http address of a server")
    if colon and base in (*SERVERS, *DATABASES):
        raise ConfigError(f"tracking URI {uri} names no place; write one such as {EXAMPLE} or http://host:5000")
    if colon and scheme != "file" and "/" not in scheme:
        schemes = ", ".join((*DATABASES, *SERVERS))
        raise ConfigError(f"tracking URI {uri}: unknown scheme {scheme}; valid: {schemes}; such as {EXAMPLE}")
    folder = urlparse(uri).path or "."
    raise ConfigError(
        f"tracking URI {uri} is a file store, which MLflow no longer writes; "
        f"use sqlite:///{Path(folder) / 'mlflow.db'} or the http address of a server"
    )


def tracking_uri(study_dir: Path) -> str:
    """The tracking URI of a study.

    Raises:
        ConfigError: the folder is not a study.
    """
    path = study_dir / "study.json"
    if not path.is_file():
        raise ConfigError(
            f"{study_dir} is not a study folder (no study.json); give the --out folder of `fedrela-bench tune`"
        )
    recorded = json.loads(path.read_text(encoding="utf-8")).get("tracking_uri")
    return str(recorded) if recorded else default_uri(study_dir)


def ui_command(study_dir: Path, uri: str | None = None, port: int = 5000) -> tuple[list[str], dict[str, str]]:
    """The MLflow server for a study: arguments and extra environment (without MLflow's job workers).

    Raises:
        ConfigError: not a study folder, or the study is tracked on a server that has its own address.
    """
    target = check_uri(uri if uri is not None else tracking_uri(study_dir))
    if target.startswith("http"):
        raise ConfigError(f"this study is tracked on {target}; open that address in a browser")
    arguments = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", target]
    arguments += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    return arguments, {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
