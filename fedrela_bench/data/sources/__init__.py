"""Reading a source: digits, named sets wherever they lie, folders of images, parquet files, archives, tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

from fedrela_bench.data.sources.cache import load_or_build
from fedrela_bench.data.sources.places import Found, default_cache_dir
from fedrela_bench.data.sources.raw import DEFAULT, Effort, RawData, Reading, Tell, checked
from fedrela_bench.errors import DataError

__all__ = ["Effort", "RawData", "Reading", "default_cache_dir", "locate", "read_source"]

PLAIN = Reading()


def locate(
    source: str, data_dir: Path | None = None, cache_dir: Path | None = None, tell: Tell | None = None
) -> Path | None:
    """The folder of a source's files, after a download if need be; None for digits.

    Args:
        source: a valid source name.
        data_dir: first place to look for named sets.
        cache_dir: by default `default_cache_dir`.
        tell: takes lines about the progress of a download.

    Raises:
        DataError: found nowhere.
    """
    kind, colon, path = source.partition(":")
    if source == "digits":
        return None
    if colon:
        return _existing(kind, path)
    return _find(source, data_dir, cache_dir or default_cache_dir(), tell).folder


def read_source(
    source: str,
    reading: Reading = PLAIN,
    data_dir: Path | None = None,
    cache_dir: Path | None = None,
    effort: Effort = DEFAULT,
) -> RawData:
    """All samples of a source, decoded and memory-mapped from the cache.

    Args:
        source: a valid source name.
        reading: what decides how it is read.
        data_dir: first place to look for named sets.
        cache_dir: by default `default_cache_dir`.
        effort: how a large source is decoded.

    Raises:
        DataError: missing or damaged files, or content that is no labelled data set.
    """
    cache = cache_dir or default_cache_dir()
    kind, colon, path = source.partition(":")
    if colon:
        readers: dict[str, Callable[[str, Reading, Path], RawData]] = {
            "folder": _read_folder,
            "parquet": _read_parquet,
            "npz": _read_npz,
            "table": _read_table,
        }
        return readers[kind](path, reading, cache)
    if source == "imagenet":
        return _read_imagenet(reading, data_dir, cache, effort)
    return _read_digits(cache) if source == "digits" else _read_named(source, data_dir, cache)


def _find(source: str, data_dir: Path | None, cache: Path, tell: Tell | None = None) -> Found:
    from fedrela_bench.data.sources.download import find_or_download

    return find_or_download(source, data_dir, cache, *([tell] if tell else []))


def _read_digits(cache: Path) -> RawData:
    from fedrela_bench.data.sources.digits import read_digits

    params = {"scikit-learn": version("scikit-learn")}
    return load_or_build(cache, "digits", [], params, read_digits)


def _read_named(source: str, data_dir: Path | None, cache: Path) -> RawData:
    found = _find(source, data_dir, cache)
    read = found.reader(source)
    raw = load_or_build(cache, source, found.paths(), {"source": source}, lambda: checked(read(), str(found.folder)))
    return _elsewhere(raw, source, found, data_dir)


def _read_imagenet(reading: Reading, data_dir: Path | None, cache: Path, effort: Effort) -> RawData:
    from fedrela_bench.data.sources.imagenet import read_imagenet

    found = _find("imagenet", data_dir, cache)
    raw = checked(read_imagenet(found, reading.image_size, cache, effort), str(found.folder))
    return _elsewhere(raw, "imagenet", found, data_dir)


def _elsewhere(raw: RawData, source: str, found: Found, data_dir: Path | None) -> RawData:
    """With a note where the source is not where it was said to be."""
    if data_dir is None or found.place.label == "data_dir":
        return raw
    note = f"{source} is not in data_dir {data_dir}; it was read from {found.folder}"
    return replace(raw, notes=(*raw.notes, note))


def _read_folder(path: str, reading: Reading, cache: Path) -> RawData:
    from fedrela_bench.data.sources import folder

    root = _existing("folder", path)
    listing, notes = folder.list_clients(root) if reading.natural else folder.list_folder(root)
    files = [(file.relative_to(root).as_posix(), file) for file in folder.files_of(listing)]

    def build() -> RawData:
        read = folder.read_clients if reading.natural else folder.read_folder
        return checked(read(root, listing, reading), str(root))

    raw = load_or_build(cache, "folder", files, _image_params(reading), build)
    return replace(raw, notes=(*raw.notes, *notes))


def _read_parquet(path: str, reading: Reading, cache: Path) -> RawData:
    from fedrela_bench.data.sources.parquet import SPLITS, read_parquet, resolve_path

    splits = resolve_path(path, reading.natural)
    files = [(file.name, file) for split in SPLITS for file in splits[split]]

    def build() -> RawData:
        return checked(read_parquet(splits, reading), path)

    return load_or_build(cache, "parquet", files, _image_params(reading), build)


def _read_npz(path: str, reading: Reading, cache: Path) -> RawData:
    from fedrela_bench.data.sources.npz import read_npz

    file = Path(path).expanduser().absolute()
    if not file.is_file():
        raise DataError(f"npz:{path} names {file}, which is not a file; correct the path")

    def build() -> RawData:
        return checked(read_npz(file, reading.image_size), str(file))

    return load_or_build(cache, "npz", [(file.name, file)], {"image_size": reading.image_size}, build)


def _read_table(path: str, reading: Reading, cache: Path) -> RawData:
    from fedrela_bench.data.sources.table import find_table, read_table

    found = find_table(path)
    files = [(file.name, file) for file in found.paths]

    def build() -> RawData:
        return checked(read_table(found, reading), str(found.path))

    params = {**asdict(reading), "test_files": len(found.test), "left_out": found.left_out}
    return load_or_build(cache, "table", files, params, build)


def _image_params(reading: Reading) -> dict[str, object]:
    """What decides the arrays of images besides their files."""
    params: dict[str, object] = {"image_size": reading.image_size}
    if reading.label_column is not None:
        params["label_column"] = reading.label_column
    if reading.natural:
        params |= {"clients": reading.client_column or "", "test": [reading.test_fraction, reading.test_seed]}
    return params


def _existing(kind: str, path: str) -> Path:
    root = Path(path).expanduser().absolute()
    if kind == "folder" and not root.is_dir():
        raise DataError(f"folder:{path} names {root}, which is not a folder; correct the path")
    return root
