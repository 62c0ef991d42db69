"""What is wrong with the data section of a configuration before any file is opened."""

from __future__ import annotations

from collections.abc import Iterator

from fedrela_bench.config import DataConfig
from fedrela_bench.data.names import IMAGENET_FACTOR, NAMING_CLIENTS, ONLY_PROFILES, check_source
from fedrela_bench.errors import ConfigError

ONLY = {
    "image_size": ("folder", "parquet", "npz", "imagenet"),
    "label_column": ("table", "parquet"),
    "client_column": ("table", "parquet"),
    "drop_columns": ("table",),
    "categorical_columns": ("table",),
    "impute": ("table",),
}
"""Fields that only some kinds of sources read."""


def request_faults(data: DataConfig) -> list[str]:
    """One sentence per fault, with its remedy."""
    try:
        check_source(data.source)
    except ConfigError as error:
        return list(error.faults)
    kind, colon, _ = data.source.partition(":")
    known = kind if colon or kind in ONLY_PROFILES else ""
    return [*_faults(data, known), *(_imagenet_faults(data) if kind == "imagenet" else ())]


def _faults(data: DataConfig, kind: str) -> Iterator[str]:
    defaults = DataConfig()
    for name, kinds in ONLY.items():
        value = getattr(data, name)
        if kind not in kinds and value != getattr(defaults, name):
            shown = ", ".join(value) if isinstance(value, tuple) else value
            shapes = (other if other in ONLY_PROFILES else f"{other}:" for other in kinds)
            yield f"data.{name} = {shown} is for {' and '.join(shapes)} sources; unset it"
    if data.partition == "natural" and kind not in NAMING_CLIENTS:
        yield (
            f"data.partition = natural: {data.source} names no clients; a table or parquet file with a column of "
            "clients does, or a folder clients/<client>/<class>/; set data.partition to dirichlet"
        )
    if data.partition == "natural" and data.on_small_client == "pad":
        yield "data.on_small_client = pad moves samples to other clients, which are not theirs; set it to skip"
    if data.profile == "natural" and data.n_max is not None:
        yield f"data.n_max = {data.n_max}: data.profile = natural keeps everything; set the profile to balanced"
    if kind == "table":
        yield from _table_faults(data)


def _imagenet_faults(data: DataConfig) -> Iterator[str]:
    """The split lists of ImageNet-LT fix the training data."""
    if data.profile not in ONLY_PROFILES["imagenet"]:
        yield f"data.profile = {data.profile}: the training list of imagenet is long-tailed as it is; set it to lt"
    if data.imbalance_factor not in (DataConfig().imbalance_factor, IMAGENET_FACTOR):
        yield (
            f"data.imbalance_factor = {data.imbalance_factor:g}: the training list of imagenet has its own; unset it"
        )
    if data.n_max is not None:
        yield f"data.n_max = {data.n_max}: the training list of imagenet is taken whole; unset it"


def _table_faults(data: DataConfig) -> Iterator[str]:
    if data.normalize not in ("auto", "own"):
        yield f"data.normalize = {data.normalize}: tables are standardised by their training rows; set it to auto"
    if data.augment in ("crop_flip", "resized_crop"):
        yield f"data.augment = {data.augment}: rows of a table cannot be moved or mirrored; set it to none"
