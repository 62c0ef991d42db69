"""What is wrong with the data section of a configuration before any file is opened."""

from __future__ import annotations

from collections.abc import Iterator

from fedrela_bench.config import DataConfig
from fedrela_bench.data.names import NAMING_CLIENTS, check_source
from fedrela_bench.errors import ConfigError

ONLY = {
    "image_size": ("folder", "parquet", "npz"),
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
    return list(_faults(data, kind if colon else ""))


def _faults(data: DataConfig, kind: str) -> Iterator[str]:
    defaults = DataConfig()
    for name, kinds in ONLY.items():
        value = getattr(data, name)
        if kind not in kinds and value != getattr(defaults, name):
            shown = ", ".join(value) if isinstance(value, tuple) else value
            yield f"data.{name} = {shown} is for {' and '.join(f'{other}:' for other in kinds)} sources; unset it"
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


def _table_faults(data: DataConfig) -> Iterator[str]:
    if data.normalize not in ("auto", "own"):
        yield f"data.normalize = {data.normalize}: tables are standardised by their training rows; set it to auto"
    if data.augment == "crop_flip":
        yield "data.augment = crop_flip: rows of a table cannot be moved or mirrored; set it to none"
