"""Tables of numeric and categorical columns with a label: one CSV or Parquet file, or a folder of train* and test*."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedrela_bench.data.sources.columns import ColumnReader, Feature, missing_faults
from fedrela_bench.data.sources.raw import Column, RawData, Reading, meant, single_class
from fedrela_bench.data.sources.sheet import CLIENT, SUFFIXES, Rows, fail, open_rows
from fedrela_bench.data.sources.split import draw_test
from fedrela_bench.errors import DataError
from fedrela_bench.faults import unknown_name

LABELS = ("label", "target", "class")
SPLIT = "split"
SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("test", "testing"), "test"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "validation"),
}


@dataclass(frozen=True)
class TableFiles:
    """The files of one table."""

    path: Path
    """What the user named."""
    train: tuple[Path, ...]
    test: tuple[Path, ...] = ()
    """Empty: test rows are among the others."""
    left_out: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files in reading order."""
        return (*self.train, *self.test)


@dataclass(frozen=True)
class Roles:
    """What the columns are for."""

    label: str
    client: str | None
    split: str | None
    features: tuple[str, ...]


def find_table(text: str) -> TableFiles:
    """The files of ``table:PATH``.

    Raises:
        DataError: nothing there, or a folder without (only one) table.
    """
    path = Path(text).expanduser().absolute()
    if path.is_file():
        return TableFiles(path, (path,))
    if not path.is_dir():
        raise DataError(f"table: nothing at {path}; give a CSV or Parquet file, or a folder with train* and test*")
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and file.name[0] != ".")
    train, test = (tuple(file for file in files if file.name.lower().startswith(split)) for split in ("train", "test"))
    if train:
        others = tuple(file.name for file in files if file not in (*train, *test))
        return TableFiles(path, train, test, others)
    if len(files) == 1:
        return TableFiles(path, (files[0],))
    found = ", ".join(file.name for file in files[:10]) or "no table"
    raise DataError(f"table: {path} holds {found}; name one file, or call the files train*.csv and test*.csv")


def read_table(files: TableFiles, reading: Reading) -> RawData:
    """Read a table; nothing is standardised yet (see `data.standardize`).

    Args:
        files: from `find_table`.
        reading: columns, imputation and test split.

    Returns:
        Features as (n, 1, F, 1) float64 in the order of the file's columns.

    Raises:
        DataError: everything that is wrong with the columns, or with their values, in one message.
    """
    rows = open_rows(files.paths)
    roles = choose_roles(rows, files, reading)
    columns = ColumnReader(rows)
    labels, class_names = columns.categories(roles.label, "label")
    clients, client_names = columns.categories(roles.client, "client") if roles.client else (None, ())
    parts = _given_split(rows, roles, files, columns.faults)
    read = [columns.feature(name, name in reading.categorical_columns) for name in roles.features]
    features = [feature for feature in read if feature is not None]
    if reading.impute == "none":
        columns.faults.extend(missing_faults(rows, features))
    columns.faults.extend(_label_faults(labels, class_names, roles.label))
    fail(files.path, columns.faults)
    fail(files.path, [] if parts is None else list(_absent(rows, labels, class_names, parts)))
    train = np.ones(len(rows), dtype=bool) if parts is None else parts == "train"
    test = np.zeros(len(rows), dtype=bool) if parts is None else parts == "test"
    raw = replace(
        _raw(features, labels, class_names, train, test),
        stated=(*_left_out(files, int((~train & ~test).sum())), *_filled(features)),
    )
    if clients is not None and reading.natural:
        used = np.unique(clients[train])
        names = tuple(client_names[place] for place in used)
        raw = replace(raw, train_clients=np.searchsorted(used, clients[train]), client_names=names)
    return raw if parts is not None else _drawn(raw, reading, files, rows)


def _drawn(raw: RawData, reading: Reading, files: TableFiles, rows: Rows) -> RawData:
    try:
        return draw_test(raw, reading, rows.place)
    except DataError as error:
        raise DataError(f"{files.path}: {error}") from None


# columns -------------------------------------------------------------------------------------------------------------


def choose_roles(rows: Rows, files: TableFiles, reading: Reading) -> Roles:
    """Decide what each column is for.

    Raises:
        DataError: every fault in one message.
    """
    names, faults = rows.names, []
    given = (reading.label_column, reading.client_column)
    fields = [("data.label_column", reading.label_column), ("data.client_column", reading.client_column)]
    fields += [("data.drop_columns", name) for name in reading.drop_columns]
    fields += [("data.categorical_columns", name) for name in reading.categorical_columns]
    for field, name in fields:
        if name is not None and name not in names:
            faults.append(unknown_name("column", f"{field} = {name!r}", name, names))
    label = reading.label_column or _one_label(names, reading.drop_columns, faults)
    client = reading.client_column or (CLIENT if CLIENT in names and CLIENT not in given else None)
    if reading.natural and client is None:
        faults.append(
            f"data.partition = natural needs a column of clients, and none is called {CLIENT}; name it in "
            "data.client_column"
        )
    split = SPLIT if SPLIT in names and SPLIT not in (*reading.drop_columns, *given) else None
    if split and files.test:
        faults.append("there are train* and test* files and a column split; name the column in data.drop_columns")
    if label is not None and label == client:
        faults.append(f"column {label} cannot be label and client; correct data.label_column or data.client_column")
    features = tuple(name for name in names if name not in (label, client, split, *reading.drop_columns))
    if not features:
        faults.append("no column is left as a feature; correct data.drop_columns or add one")
    fail(files.path, faults)
    return Roles(str(label), client, split, features)


def _one_label(names: Sequence[str], dropped: Sequence[str], faults: list[str]) -> str | None:
    found = [name for name in LABELS if name in names and name not in dropped]
    if len(found) == 1:
        return found[0]
    if found:
        faults.append(f"columns {' and '.join(found)} could be the label; name the right one in data.label_column")
    else:
        shown = ", ".join(names[:10]) + (" ..." if len(names) > 10 else "")
        faults.append(
            f"no column is called {', '.join(LABELS[:-1])} or {LABELS[-1]}; name one of {shown} in data.label_column"
        )
    return None


# labels and splits ---------------------------------------------------------------------------------------------------


def _label_faults(labels: np.ndarray, names: tuple[str, ...], column: str) -> Iterator[str]:
    yield from (f"column {column}: {fault}" for fault in single_class(names))
    if 2 * len(names) > len(labels) > 4:
        yield (
            f"column {column} holds {len(names):,} classes in {len(labels):,} rows; each needs several: is it the "
            "right data.label_column?"
        )


def _absent(rows: Rows, labels: np.ndarray, names: tuple[str, ...], parts: np.ndarray) -> Iterator[str]:
    """Classes that a given split lacks, each with its first row."""
    for part, word in (("train", "training"), ("test", "test")):
        for c in np.setdiff1d(labels, labels[parts == part]):
            first = rows.place(int(np.flatnonzero(labels == c)[0]))
            yield (
                f"no {word} row of class {c} ({names[c]}{meant(names[c], names)}), which {first} has; every class "
                "needs rows in both splits"
            )


def _given_split(rows: Rows, roles: Roles, files: TableFiles, faults: list[str]) -> np.ndarray | None:
    """(n,) train, test or validation; None where nothing says."""
    if files.test:
        sizes = [len(sheet.rows) for sheet in rows.sheets]
        return np.repeat(["train"] * len(files.train) + ["test"] * len(files.test), sizes)
    if roles.split is None:
        return None
    words = [str(value).strip().lower() for value in rows.table.column(roles.split).to_pylist()]
    wrong = [place for place, word in enumerate(words) if word not in SPLIT_WORDS]
    if wrong:
        faults.append(
            f"{rows.place(wrong[0])}, column {roles.split} is {words[wrong[0]]!r}; it must be train, test or val (if "
            "it is a feature, rename it)"
        )
    parts = np.array([SPLIT_WORDS.get(word, "train") for word in words])
    for part in ("train", "test"):
        if not wrong and part not in parts:
            faults.append(f"column {roles.split} marks no {part} rows; mark some, or name it in data.drop_columns")
    return parts


# arrays --------------------------------------------------------------------------------------------------------------


def _raw(
    features: list[Feature], labels: np.ndarray, class_names: tuple[str, ...], train: np.ndarray, test: np.ndarray
) -> RawData:
    columns: tuple[Column, ...] = tuple(column for feature in features for column in feature.columns)
    arrays: list[np.ndarray] = []
    for part in (train, test):
        values = np.concatenate([feature.values[part] for feature in features], axis=1)
        arrays += [values[:, None, :, None], labels[part]]
    return RawData(arrays[0], arrays[1], arrays[2], arrays[3], class_names, columns=columns)


def _left_out(files: TableFiles, validation: int) -> Iterator[str]:
    if files.left_out:
        yield f"files that are neither train* nor test* are left out: {', '.join(files.left_out[:5])}"
    if validation:
        yield f"the {validation:,} validation rows are left out, of training and of test"


def _filled(features: list[Feature]) -> Iterator[str]:
    lacking = [feature for feature in features if feature.missing.any()]
    counts = [f"{feature.columns[0].name}: {int(feature.missing.sum()):,}" for feature in lacking]
    if counts:
        yield (
            f"missing values were filled with the training mean, missing categories left out ({', '.join(counts)}; "
            "data.impute = mean)"
        )
