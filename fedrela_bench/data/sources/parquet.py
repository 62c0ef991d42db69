"""Parquet files with encoded images and integer labels, as public dataset hubs store them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedrela_bench.data.sources.columns import ColumnReader
from fedrela_bench.data.sources.decode import Decoder, Item, squeeze_grey
from fedrela_bench.data.sources.raw import RawData, Reading
from fedrela_bench.data.sources.sheet import CLIENT, DAMAGED, MOST_SHOWN, fail, open_rows
from fedrela_bench.data.sources.split import draw_test
from fedrela_bench.errors import DataError
from fedrela_bench.faults import unknown_name

SPLITS = ("train", "test")
PREFERRED_LABELS = ("label", "fine_label")
PREFERRED_IMAGES = ("image", "img")
BATCH = 1024
PLAIN = Reading()


@dataclass(frozen=True)
class Columns:
    """Names found by kind, and the class names of the label column if the schema's metadata hold them."""

    image: str
    label: str
    class_names: tuple[str, ...] | None


def find_splits(folder: Path) -> dict[str, list[Path]]:
    """train*.parquet and test*.parquet directly in a folder; a split without files is absent."""
    found = {split: sorted(folder.glob(f"{split}*.parquet")) for split in SPLITS}
    return {split: files for split, files in found.items() if files}


def resolve_path(text: str, natural: bool = False) -> dict[str, list[Path]]:
    """The files of ``parquet:PATH``: a folder (or its ``data`` folder), a glob pattern, or files separated by commas.

    Args:
        text: PATH.
        natural: whether the test split may be missing, as natural federations often have none.

    Raises:
        DataError: nothing there, or no file of one split.
    """
    path = Path(text).expanduser()
    if path.is_dir():
        splits = find_splits(path) or find_splits(path / "data")
    else:
        files = [file for name in text.split(",") if name.strip() for file in _expand(Path(name.strip()).expanduser())]
        absent = [str(file.absolute()) for file in files if not file.is_file()]
        if absent:
            raise DataError(
                f"parquet: nothing at {', '.join(absent)}; give a folder with train*.parquet, test*.parquet"
            )
        splits = {split: [file for file in files if file.name.startswith(split)] for split in SPLITS}
    needed = SPLITS[:1] if natural else SPLITS
    missing = [f"{split}*.parquet" for split in needed if not splits.get(split)]
    if missing:
        raise DataError(f"parquet: no {' and no '.join(missing)} in {path.absolute()}; both splits are needed")
    return {split: splits.get(split, []) for split in SPLITS}


def find_columns(file: Path, reading: Reading = PLAIN) -> Columns:
    """Find the image and the label column of a file.

    Images are a struct with a binary field `bytes`, or a binary column. Labels are an integer column; of several,
    the one that `reading` names, those that the metadata call class labels, then `label`, then `fine_label`.

    Raises:
        DataError: none, or several of equal right; the candidates are named.
    """
    schema = _open(file).schema_arrow
    features = _features(schema)
    images = [entry.name for entry in schema if _is_image(entry.type)]
    owner = (reading.client_column or CLIENT) if reading.natural else None
    integers = [entry.name for entry in schema if pa.types.is_integer(entry.type) and entry.name != owner]
    classes = [name for name in integers if features.get(name, {}).get("_type") == "ClassLabel"]
    image = _choose(images, PREFERRED_IMAGES, file, "image (bytes) column")
    if reading.label_column is not None and reading.label_column not in integers:
        raise DataError(
            unknown_name(f"integer column in {file}", "for data.label_column", reading.label_column, integers)
        )
    label = reading.label_column or _choose(classes or integers, PREFERRED_LABELS, file, "integer label column")
    names = features.get(label, {}).get("names")
    return Columns(image, label, tuple(str(name) for name in names) if isinstance(names, list) else None)


def count_classes(splits: Mapping[str, Sequence[Path]]) -> int:
    """Classes by the metadata, otherwise the highest label + 1; cheap, decodes no image."""
    columns = find_columns(splits["train"][0])
    if columns.class_names is not None:
        return len(columns.class_names)
    return max(int(values.max(initial=-1)) for values in _labels(splits, columns).values()) + 1


def read_parquet(splits: Mapping[str, Sequence[Path]], reading: Reading = PLAIN) -> RawData:
    """Decode both splits; where clients are asked for, a missing test split is drawn.

    Raises:
        DataError: damaged files, missing columns, labels or images, images of different sizes.
    """
    columns = find_columns(splits["train"][0], reading)
    clients = _clients(splits["train"], columns, reading) if reading.natural else None
    labels = _labels(splits, columns)
    if columns.class_names is None:
        _refuse_gaps(labels, columns.label, splits["train"][0])
    decoder = Decoder(reading.image_size, sum(map(len, labels.values())))
    images = {split: decoder.decode(_items(splits[split], columns.image), len(labels[split])) for split in SPLITS}
    train, test = (squeeze_grey(images[split], decoder.colour) for split in SPLITS)
    classes = max(int(values.max(initial=-1)) for values in labels.values()) + 1
    names = columns.class_names or tuple(str(c) for c in range(classes))
    raw = RawData(train, labels["train"], test, labels["test"], names)
    if clients is None:
        return raw
    raw = replace(raw, train_clients=clients[0], client_names=clients[1])
    return raw if splits["test"] else draw_test(raw, reading, partial(_place, splits["train"]))


def _clients(files: Sequence[Path], columns: Columns, reading: Reading) -> tuple[np.ndarray, tuple[str, ...]]:
    """(N,) places of each training row's client in the sorted names, and these."""
    name = reading.client_column or CLIENT
    there = list(_open(files[0]).schema_arrow.names)
    if name not in there or name in (columns.image, columns.label):
        others = ", ".join(other for other in there if other not in (columns.image, columns.label)) or "none"
        raise DataError(
            f"{files[0]} has no column of clients called {name}; name one of its other columns ({others}) in "
            "data.client_column, or set data.partition to dirichlet"
        )
    read = ColumnReader(open_rows(files, [name]))
    found = read.categories(name, "client")
    fail(files[0] if len(files) == 1 else files[0].parent, read.faults)
    return found


def _refuse_gaps(labels: Mapping[str, np.ndarray], column: str, file: Path) -> None:
    """Every class has a training image, so more classes than rows means that the column holds something else."""
    highest = max(int(values.max(initial=-1)) for values in labels.values())
    rows = len(labels["train"])
    if highest >= rows or (rows > 2 and len(np.unique(labels["train"])) == rows):
        raise DataError(
            f"{file}: column {column} reaches {highest} in {rows} training rows, or differs in every one of them; "
            "class labels are numbered 0 to C-1 with several images each. Name the right column 'label'"
        )


def _expand(pattern: Path) -> list[Path]:
    return sorted(pattern.parent.glob(pattern.name)) or [pattern]


def _open(file: Path) -> Any:
    try:
        return pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file} is not a readable parquet file ({error}); {DAMAGED}") from error


def _is_image(kind: Any) -> bool:
    if pa.types.is_struct(kind):
        return any(kind.field(i).name == "bytes" and _is_binary(kind.field(i).type) for i in range(kind.num_fields))
    return _is_binary(kind)


def _is_binary(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _features(schema: Any) -> dict[str, dict[str, Any]]:
    text = (schema.metadata or {}).get(b"huggingface")
    try:
        features = json.loads(text)["info"]["features"] if text else {}
    except (ValueError, KeyError, TypeError):
        return {}
    return {name: kind for name, kind in features.items() if isinstance(kind, dict)}


def _choose(candidates: list[str], preferred: Sequence[str], file: Path, kind: str) -> str:
    if len(candidates) == 1:
        return candidates[0]
    for name in preferred:
        if name in candidates:
            return name
    if not candidates:
        raise DataError(f"{file} has no {kind}; add one")
    raise DataError(
        f"{file} has several columns that could be the {kind}: {', '.join(candidates)}; "
        f"name the right one {preferred[0]!r}"
    )


def _labels(splits: Mapping[str, Sequence[Path]], columns: Columns) -> dict[str, np.ndarray]:
    """(N,) int64 of each split; every file with a wrong label is named."""
    faults: list[str] = []
    found: dict[str, np.ndarray] = {}
    for split in SPLITS:
        parts = [_labels_of(file, columns, faults) for file in splits[split]]
        found[split] = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
    if faults:
        raise DataError("; ".join(faults[:MOST_SHOWN]) + (" ..." if len(faults) > MOST_SHOWN else ""))
    return found


def _labels_of(file: Path, columns: Columns, faults: list[str]) -> np.ndarray:
    try:
        column = _open(file).read(columns=[columns.label]).column(columns.label)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise DataError(f"{file}: column {columns.label} cannot be read ({error}); replace the file") from error
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        faults.append(f"{file} row {row} has no {columns.label}; remove the row or give it a label")
        return np.empty(0, dtype=np.int64)
    values = column.to_numpy()
    labels: np.ndarray = values.astype(np.int64)
    classes = None if columns.class_names is None else len(columns.class_names)
    wrong = (labels < 0) | (labels >= (np.iinfo(np.int64).max if classes is None else classes))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        last = "C-1" if classes is None else classes - 1
        faults.append(f"{file} row {row} has {columns.label} {values[row]}; labels run from 0 to {last}")
    return labels


def _place(files: Sequence[Path], row: int) -> str:
    """The file of a row of several, and the row in it."""
    for file in files:
        count = _open(file).metadata.num_rows
        if row < count:
            return f"{file} row {row}"
        row -= count
    raise IndexError(row)


def _items(files: Sequence[Path], column: str) -> Iterator[Item]:
    for file in files:
        row = 0
        try:
            for batch in _open(file).iter_batches(batch_size=BATCH, columns=[column]):
                values = batch.column(column)
                values = values.field("bytes") if pa.types.is_struct(values.type) else values
                for payload in values.to_pylist():
                    if payload is None:
                        raise DataError(f"{file} row {row} holds no image bytes; remove the row or add its image")
                    yield f"{file} row {row}", payload
                    row += 1
        except (pa.ArrowException, OSError, KeyError) as error:
            raise DataError(f"{file} cannot be read from row {row} on ({error}); replace the file") from error
