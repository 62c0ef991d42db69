"""Which file a search space is in: a dataset's lies in the folder itself, a base algorithm's own in `algorithms/`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

from fedrela_bench.data.names import NAMED_SOURCES, PATH_KINDS, PROFILES
from fedrela_bench.errors import ConfigError
from fedrela_bench.faults import unknown_name

SUFFIXES = (".yaml", ".yml")
ALGORITHMS = "algorithms"
_PACKAGE = Path(__file__).resolve().parent.parent


def list_spaces() -> list[Path]:
    """All shipped space files by name, those of base algorithms last; the working directory's hide the package's."""
    found: dict[str, Path] = {}
    for folder in _folders():
        for path in sorted(folder.glob("*.yaml")):
            found.setdefault(path.stem, path)
    return sorted(found.values(), key=lambda path: (path.parent.name == ALGORITHMS, path.stem))


def algorithm_space(name: str) -> Path | None:
    """The shipped space of a base algorithm's own hyperparameters, such as mu of ``fedprox``."""
    found = _shipped(name)
    return found if found is not None and found.parent.name == ALGORITHMS else None


def algorithm_spaces() -> list[str]:
    """Names of base algorithms that have a shipped space."""
    return [path.stem for path in list_spaces() if path.parent.name == ALGORITHMS]


def find_space(name_or_path: str | Path, fallback: bool = True) -> Path:
    """The file of a space: a path, or a name such as ``cifar100_lt`` or ``fedprox``.

    Args:
        name_or_path: what the user wrote, or a dataset's name.
        fallback: whether a dataset's name without a space of its own means ``default``.

    Raises:
        ConfigError: there is no such space, or the path is a folder.
    """
    path = Path(name_or_path)
    if path.suffix in SUFFIXES and path.is_file():
        return path
    name = path.stem if path.suffix in SUFFIXES else str(name_or_path)
    shipped = _shipped(name)
    if shipped is not None:
        return shipped
    if path.is_file():
        return path
    if path.is_dir():
        raise ConfigError(f"search space {path} is a folder; give a YAML file in it or a name of `spaces list`")
    default = _shipped("default") if fallback and _names_dataset(str(name_or_path)) else None
    if default is not None:
        return default
    if path.suffix in SUFFIXES or len(path.parts) > 1:
        raise ConfigError(f"no search space at {path}; `fedrela-bench spaces list` names the shipped ones")
    raise ConfigError(f"{_unknown(name)} (or the path of a YAML file)")


def _unknown(name: str) -> str:
    everything = [path.stem for path in list_spaces()]
    if difflib.get_close_matches(name, everything, n=1, cutoff=0.5):
        return unknown_name("search space", name, name, everything)
    algorithms = algorithm_spaces()
    datasets = [known for known in everything if known not in algorithms]
    return f"unknown search space {name}; valid: {', '.join(datasets)}; of base algorithms: {', '.join(algorithms)}"


def _shipped(name: str) -> Path | None:
    if Path(name).name != name:
        return None
    return next((folder / f"{name}.yaml" for folder in _folders() if (folder / f"{name}.yaml").is_file()), None)


def _names_dataset(name: str) -> bool:
    """Whether this is a dataset as studies name it: a source and a profile, or a source by its path."""
    kind, colon, place = name.partition(":")
    if colon:
        return kind in PATH_KINDS and bool(place.strip())
    source, _, profile = name.rpartition("_")
    own = source in PATH_KINDS or source.startswith(tuple(f"{kind}_" for kind in PATH_KINDS))
    return profile in PROFILES and (source in NAMED_SOURCES or own)


def _folders() -> Iterator[Path]:
    for folder in (Path("search_spaces"), _PACKAGE.parent / "search_spaces", _PACKAGE / "_search_spaces"):
        yield from (folder, folder / ALGORITHMS)
