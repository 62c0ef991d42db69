"""Names of datasets, ``<source>`` or ``<source>_<profile>``; imports nothing heavy."""

from __future__ import annotations

import re
from pathlib import Path

from fedrela_bench.errors import ConfigError
from fedrela_bench.faults import unknown_name

NAMED_SOURCES = ("digits", "fashion_mnist", "cifar10", "cifar100", "imagenet")
LONGEST_STEM = 40
PATH_KINDS = ("folder", "parquet", "npz", "table")
NAMING_CLIENTS = ("folder", "parquet", "table")
"""Kinds of sources that can say which client holds what."""
PROFILES = ("lt", "step", "balanced", "natural")
ONLY_PROFILES = {"imagenet": ("lt",)}
"""Sources whose training data are what they are: the split lists of ImageNet-LT are long-tailed already."""
IMAGENET_FACTOR = 256.0
"""Imbalance of the published lists: 1280 images of the largest class, 5 of the smallest."""


def parse_dataset_name(name: str) -> tuple[str, str | None]:
    """Split a dataset name into (source, profile); the profile is None where the name has none.

    ``cifar100_lt`` is ("cifar100", "lt"). In ``folder:PATH``, ``table:PATH`` and their like a suffix such as ``_lt`` is
    a profile only if nothing exists at the path as written.

    Raises:
        ConfigError: unknown name (with the nearest valid one) or a missing path.
    """
    stem, profile = _split_profile(name)
    if name.partition(":")[0] in PATH_KINDS and ":" in name:
        if Path(name.partition(":")[2]).expanduser().exists():
            stem, profile = name, None
        check_source(stem)
        return stem, profile
    if stem not in NAMED_SOURCES:
        raise ConfigError(_unknown(name, all_names()))
    return stem, profile


def check_source(source: str) -> None:
    """Refuse a source that does not exist.

    Raises:
        ConfigError: unknown source, or ``folder:`` and its like without a path.
    """
    kind, colon, path = source.partition(":")
    if colon and kind in PATH_KINDS:
        if not path.strip():
            raise ConfigError(f"dataset {source!r} names no path; write {kind}:PATH")
    elif source not in NAMED_SOURCES:
        raise ConfigError(_unknown(source, [*NAMED_SOURCES, *_path_forms()]))


def dataset_name(source: str, profile: str) -> str:
    """The short name of a source and profile, such as ``cifar100_lt`` or ``table_visits_natural``.

    Of a path only the last part is in it, so that two tables have two names and none tells where it lies.
    """
    kind, _, path = source.partition(":")
    own = re.sub(r"[^\w.-]+", "-", Path(path).stem)[:LONGEST_STEM].strip("-.") if path else ""
    return "_".join(filter(None, (kind, own, profile)))


def all_names() -> list[str]:
    """Every valid name, PATH standing for a path."""
    named = [f"{source}_{profile}" for source in NAMED_SOURCES for profile in ONLY_PROFILES.get(source, PROFILES)]
    return [*NAMED_SOURCES, *named, *_path_forms()]


def _path_forms() -> list[str]:
    return [f"{kind}:PATH" for kind in PATH_KINDS]


def _split_profile(name: str) -> tuple[str, str | None]:
    for profile in PROFILES:
        if name.endswith(f"_{profile}"):
            return name.removesuffix(f"_{profile}"), profile
    return name, None


def _unknown(name: str, known: list[str]) -> str:
    text = unknown_name("dataset", repr(name), name.lower().replace("-", "_"), known)
    return text if "valid:" in text else f"{text} (or {', '.join(_path_forms())} for your own data)"
