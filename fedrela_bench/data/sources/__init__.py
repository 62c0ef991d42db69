"""Reading a source: digits, named sets wherever they lie, folders of images, parquet files."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from fedrela_bench.data.sources.cache import load_or_build
from fedrela_bench.data.sources.places import Found, default_cache_dir
from fedrela_bench.data.sources.raw import RawData, checked
from fedrela_bench.errors import DataError

__all__ = ["RawData", "default_cache_dir", "locate", "read_source"]


def locate(source: str, data_dir: Path | None = None, cache_dir: Path | None = None) -> Path | None:
    """The folder of a source's files, after a download if need be; None for digits.

    Raises:
        DataError: found nowhere.
    """
    kind, colon, path = source.partition(":")
    if source == "digits":
        return None
    if colon:
        return _existing(kind, path)
    return _find(source, data_dir, cache_dir or default_cache_dir()).folder


def read_source(
    source: str, image_size: int | None = None, data_dir: Path | None = None, cache_dir: Path | None = None
) -> RawData:
    """All images of a source, decoded and memory-mapped from the cache.

    Args:
        source: a valid source name.
        image_size: folder and parquet: resize to this side length.
        data_dir: first place to look for named sets.
        cache_dir: by default `default_cache_dir`.

    Raises:
        DataError: missing or damaged files.
    """
    cache = cache_dir or default_cache_dir()
    kind, _, path = source.partition(":")
    if kind == "folder":
        return _read_folder(path, image_size, cache)
    if kind == "parquet":
        return _read_parquet(path, image_size, cache)
    return _read_digits(cache) if source == "digits" else _read_named(source, data_dir, cache)


def _find(source: str, data_dir: Path | None, cache: Path) -> Found:
    from fedrela_bench.data.sources.download import find_or_download

    return find_or_download(source, data_dir, cache)


def _read_digits(cache: Path) -> RawData:
    from fedrela_bench.data.sources.digits import read_digits

    params = {"scikit-learn": version("scikit-learn")}
    return load_or_build(cache, "digits", [], params, read_digits)


def _read_named(source: str, data_dir: Path | None, cache: Path) -> RawData:
    found = _find(source, data_dir, cache)
    read = found.reader(source)
    raw = load_or_build(cache, source, found.paths(), {"source": source}, lambda: checked(read(), str(found.folder)))
    if data_dir is not None and found.place.label != "data_dir":
        return replace(
            raw, notes=(*raw.notes, f"{source} is not in data_dir {data_dir}; it was read from {found.folder}")
        )
    return raw


def _read_folder(path: str, image_size: int | None, cache: Path) -> RawData:
    from fedrela_bench.data.sources.folder import files_of, list_folder, read_folder

    root = _existing("folder", path)
    listing, notes = list_folder(root)
    files = [(file.relative_to(root).as_posix(), file) for file in files_of(listing)]

    def build() -> RawData:
        return checked(read_folder(root, listing, image_size), str(root))

    raw = load_or_build(cache, "folder", files, {"image_size": image_size}, build)
    return replace(raw, notes=(*raw.notes, *notes))


def _read_parquet(path: str, image_size: int | None, cache: Path) -> RawData:
    from fedrela_bench.data.sources.parquet import SPLITS, read_parquet, resolve_path

    splits = resolve_path(path)
    files = [(file.name, file) for split in SPLITS for file in splits[split]]

    def build() -> RawData:
        return checked(read_parquet(splits, image_size), path)

    return load_or_build(cache, "parquet", files, {"image_size": image_size}, build)


def _existing(kind: str, path: str) -> Path:
    root = Path(path).expanduser().absolute()
    if kind == "folder" and not root.is_dir():
        raise DataError(f"folder:{path} names {root}, which is not a folder; correct the path")
    return root
