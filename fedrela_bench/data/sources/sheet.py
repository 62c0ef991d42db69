"""Tables as files have them: CSV text or Parquet columns, with a name for every row that a message may need."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fedrela_bench.data.sources.delimited import broken_quote, read_delimited
from fedrela_bench.data.sources.limits import refuse_huge
from fedrela_bench.errors import DataError

TEXT_SUFFIXES = (".csv", ".tsv", ".txt")
SUFFIXES = (*TEXT_SUFFIXES, ".parquet")
CLIENT = "client"
"""What a column of clients is called where data.client_column does not say."""
DELIMITERS = ",;\t|"
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_WEB_PAGE = re.compile(rb"(\xef\xbb\xbf)?\s*<(!doctype html|html|head)\b", re.IGNORECASE)
_START = 1024
"""Bytes by which a file that is no table is known."""
DAMAGED = "it may be truncated or a web page saved by mistake: fetch it again"
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null")
"""Texts that mean that there is no value."""
NO_ROWS = "has no rows; give it at least two of each class"
MOST_SHOWN = 10
TEXT_EXPANDS = 3
"""Memory of a parsed text file, in sizes of the file."""


@dataclass(frozen=True)
class Sheet:
    """One file: its columns, those of a text file as trimmed text with nulls where a value is missing."""

    path: Path
    table: Any
    """pyarrow.Table."""
    rows: np.ndarray
    """(n,) int64: how messages number the rows; in a text file as spreadsheets do, the header being row 1."""
    comma: bool = False
    """Whether numbers may have a decimal comma: columns are separated by semicolons."""

    @property
    def is_text(self) -> bool:
        """Whether the columns have no types yet."""
        return self.path.suffix.lower() in TEXT_SUFFIXES


@dataclass(frozen=True)
class Rows:
    """The rows of one or several files with the same columns, in order."""

    sheets: tuple[Sheet, ...]

    @cached_property
    def table(self) -> Any:
        """All rows as one pyarrow.Table."""
        return pa.concat_tables([sheet.table for sheet in self.sheets], promote_options="permissive")

    @property
    def names(self) -> list[str]:
        """Columns in the order of the first file."""
        return list(self.sheets[0].table.column_names)

    @property
    def is_text(self) -> bool:
        """Whether the columns have no types yet."""
        return self.sheets[0].is_text

    @property
    def comma(self) -> bool:
        """Whether numbers may have a decimal comma."""
        return all(sheet.comma for sheet in self.sheets)

    def __len__(self) -> int:
        return sum(len(sheet.rows) for sheet in self.sheets)

    def place(self, index: int) -> str:
        """The row of a position, and of several files its file: ``row 8`` or ``train-2.csv row 8``."""
        for sheet in self.sheets:
            if index < len(sheet.rows):
                file = f"{sheet.path.name} " if len(self.sheets) > 1 else ""
                return f"{file}row {sheet.rows[index]}"
            index -= len(sheet.rows)
        raise IndexError(index)


def fail(where: object, faults: Sequence[str]) -> None:
    """Raise DataError with all faults in one message, if there are any."""
    if len(faults) == 1:
        raise DataError(f"{where}: {faults[0]}")
    if faults:
        listed = [f"  {number}. {fault}" for number, fault in enumerate(faults[:MOST_SHOWN], 1)]
        more = [f"  and {len(faults) - MOST_SHOWN} more"] if len(faults) > MOST_SHOWN else []
        raise DataError("\n".join([f"{where}: {len(faults)} faults:", *listed, *more]))


def open_rows(paths: Sequence[Path], names: Sequence[str] | None = None) -> Rows:
    """Read files that belong together.

    Args:
        paths: in order.
        names: the columns that are wanted of Parquet files; by default all.

    Raises:
        DataError: a file is unreadable or empty, or they have different columns or kinds.
    """
    sheets = tuple(read_sheet(path, names) for path in paths)
    first, faults = sheets[0], []
    for other in sheets[1:]:
        faults += _different(first, other)
    if len({sheet.is_text for sheet in sheets}) > 1:
        faults.append("text and Parquet files are mixed; keep one kind")
    fail(first.path.parent, faults)
    rows = Rows(tuple(Sheet(s.path, s.table.select(first.table.column_names), s.rows, s.comma) for s in sheets))
    try:
        assert rows.table is not None
    except pa.ArrowException as error:
        raise DataError(
            f"{first.path.parent}: the files' columns have different types ({error}); make them agree"
        ) from (error)
    return rows


def read_sheet(path: Path, names: Sequence[str] | None = None) -> Sheet:
    """Read one file by its suffix; of Parquet files only the named columns.

    Raises:
        DataError: unknown suffix, unreadable content, no rows, columns without or with equal names.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(f"{path} is not one of {', '.join(SUFFIXES)}; save the table in one of these formats")
    sheet = _read_text(path) if suffix in TEXT_SUFFIXES else _read_parquet(path, names)
    if not len(sheet.rows):
        raise DataError(f"{path} {NO_ROWS}")
    return sheet


def _different(first: Sheet, other: Sheet) -> list[str]:
    lacking = [name for name in first.table.column_names if name not in other.table.column_names]
    added = [name for name in other.table.column_names if name not in first.table.column_names]
    faults = [f"{other.path.name} has no column {', '.join(lacking)}, which {first.path.name} has"] if lacking else []
    return faults + ([f"only {other.path.name} has column {', '.join(added)}"] if added else [])


def check_names(path: Path, names: Sequence[str]) -> None:
    """Refuse columns that cannot be told apart.

    Raises:
        DataError: every fault in one message.
    """
    if names and all(_is_number(name) for name in names):
        raise DataError(f"{path}: the first row holds numbers only; put a row of column names above it")
    counts = Counter(names)
    twice = sorted(name for name, count in counts.items() if name and count > 1)
    empty = [str(place) for place, name in enumerate(names, 1) if not name.strip()]
    faults = [f"{counts[name]} columns are called {name!r}; give each its own name" for name in twice]
    if empty:
        shown = ", ".join(empty[:MOST_SHOWN]) + (" ..." if len(empty) > MOST_SHOWN else "")
        faults.append(
            f"column {shown} has no name; name it, or leave it out (pandas writes its index so: save with index=False)"
        )
    fail(path, faults)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# text ----------------------------------------------------------------------------------------------------------------


def _read_text(path: Path) -> Sheet:
    names, delimiter = _header(path)
    check_names(path, [name.strip() for name in names])
    refuse_huge(str(path), path.stat().st_size * TEXT_EXPANDS)
    table, faults = read_delimited(path, names, delimiter)
    fail(path, faults)
    table = pa.table([_trimmed(column) for column in table.columns], names=[name.strip() for name in names])
    filled = np.zeros(len(table), dtype=bool)
    for column in table.columns:
        filled |= column.is_valid().to_numpy()
    numbers = np.arange(len(table)) + 2
    return Sheet(path, table.filter(pa.array(filled)), numbers[filled], delimiter == ";")


def _header(path: Path) -> tuple[list[str], str]:
    try:
        with path.open("rb") as raw:
            start = raw.read(_START)
        if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise DataError(f"{path} is UTF-16 text; save it as UTF-8")
        if _WEB_PAGE.match(start):
            raise DataError(f"{path} is no table but a web page saved by mistake: fetch it again")
        with path.open(encoding="utf-8-sig", newline="") as file:
            line = file.readline()
            # Quoted names may hold what separates others.
            delimiter = max(DELIMITERS, key=_QUOTED.sub("", line).count)
            file.seek(0)
            names = next(csv.reader(file, delimiter=delimiter), [])
            if any(names) and not file.readline():
                raise DataError(_broken_or(NO_ROWS, path, delimiter))
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not a UTF-8 table ({error}); save it as UTF-8") from error
    except csv.Error as error:
        raise DataError(_broken_or(f"is no table ({error}); give it a row of names", path, delimiter)) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check that it exists and its rights") from error
    if not any(name.strip() for name in names):
        raise DataError(f"{path} is empty or begins with an empty row; its first row names the columns")
    return names, delimiter


def _broken_or(text: str, path: Path, delimiter: str) -> str:
    """What is wrong with a header that takes the whole file."""
    broken = broken_quote(path, delimiter)
    return f"{path}: {broken}" if broken else f"{path} {text}"


def _trimmed(column: Any) -> Any:
    texts = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.is_in(texts, value_set=pa.array(MISSING)), pa.scalar(None, pa.string()), texts)


# Parquet -------------------------------------------------------------------------------------------------------------


def _read_parquet(path: Path, wanted: Sequence[str] | None) -> Sheet:
    try:
        file = pq.ParquetFile(path)
        names = [name for name in file.schema_arrow.names if not name.startswith("__index_level_")]
        check_names(path, names)
        names = names if wanted is None else [name for name in wanted if name in names]
        groups = (file.metadata.row_group(place).total_byte_size for place in range(file.metadata.num_row_groups))
        refuse_huge(str(path), sum(groups))
        table = file.read(columns=names)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a readable Parquet file ({error}); {DAMAGED}") from error
    return Sheet(path, table, np.arange(len(table)))
