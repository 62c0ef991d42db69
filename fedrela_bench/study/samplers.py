"""Samplers by name, checked before anything starts."""

from __future__ import annotations

import re
import socket
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrela_bench.errors import ConfigError
from fedrela_bench.faults import unknown_name

if TYPE_CHECKING:
    from fedrela_bench.study.space import Space

DATABASES = ("sqlite", "postgresql")
PORT = 5432
CONNECT_SECONDS, ANSWER_SECONDS = 4, 60
SAMPLERS = ("tpe", "nsga2", "gp", "random", "grid")
NEEDS = {"gp": ("torch", "scipy")}


def check_sampler(name: str, space: Space) -> None:
    """Raise ConfigError when a sampler is unknown, lacks a package, or cannot search this space."""
    if name not in SAMPLERS:
        raise ConfigError(unknown_name("sampler", name, name, SAMPLERS))
    missing = [package for package in NEEDS.get(name, ()) if find_spec(package) is None]
    if missing:
        raise ConfigError(f"sampler {name} needs {', '.join(missing)}; install it or use --sampler tpe")
    if name == "gp" and any(parameter.when for parameter in space.parameters):
        raise ConfigError("sampler gp draws parameters with `when` at random; use --sampler tpe, or leave `when` out")
    if name == "grid" and space.size() is None:
        raise ConfigError("sampler grid needs a step or choices for every parameter; add steps or use --sampler tpe")


def check_storage(url: str) -> None:
    """Raise ConfigError when an Optuna storage is not a database that can be reached from here."""
    scheme, separator, place = url.partition("://")
    if not separator or not place or scheme.partition("+")[0] not in DATABASES:
        raise ConfigError(f"--optuna-storage {shown(url)}: write sqlite:///FILE or postgresql://USER@HOST/NAME")
    if not scheme.startswith("sqlite"):
        _check_server(url)
        return
    folder = Path(place.removeprefix("/")).parent
    if not folder.is_dir():
        raise ConfigError(f"--optuna-storage {url}: there is no folder {folder}; make it or choose another file")


def _check_server(url: str) -> None:
    from sqlalchemy import create_engine, make_url
    from sqlalchemy.exc import SQLAlchemyError

    try:
        place = make_url(url)
        patience = {"connect_timeout": ANSWER_SECONDS} if place.get_dialect().driver.startswith("psycopg") else {}
        engine = create_engine(place, connect_args=patience)
        if place.host is not None and "host" not in place.query:
            # A busy server may take its time; where there is none, nobody should wait for it.
            socket.create_connection((place.host, place.port or PORT), timeout=CONNECT_SECONDS).close()
        with engine.connect():
            pass
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--optuna-storage {shown(url)} needs the package {error.name}; "
            "install it with pip install 'fedrela-bench[postgres]'"
        ) from None
    except (SQLAlchemyError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"--optuna-storage {shown(url)} cannot be used ({reason}); start the server and make the database, or "
            "leave the option out"
        ) from None


def shown(url: str) -> str:
    """A database's URL for messages, without its password."""
    return re.sub(r"(://[^/@:]*):[^/]*@", r"\1:***@", url)


def build_sampler(name: str, seed: int) -> Any:
    """The Optuna sampler; `grid` draws its points from the ledger and needs none of its own."""
    import warnings

    import optuna

    if name == "tpe":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True)
    if name == "nsga2":
        return optuna.samplers.NSGAIISampler(seed=seed, population_size=20)
    if name == "gp":
        return optuna.samplers.GPSampler(seed=seed)
    return optuna.samplers.RandomSampler(seed=seed)
