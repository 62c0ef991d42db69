"""Rows of delimited text as columns of text; what is wrong with a row is a fault, quoted values without an end too."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from fedrela_bench.errors import DataError

NEVER_ENDS = "a quoted value never ends; close it"
ENDS_LATE = "a quoted value goes on over the end of its line, and text follows its closing quote; close it earlier"

BLOCK_BYTES = 64 << 20
"""Of text that is parsed at a time: a row must fit."""


def read_delimited(path: Path, names: Sequence[str], delimiter: str) -> tuple[Any, list[str]]:
    """The columns as text, and what is wrong with rows; those of another length are left out.

    Args:
        path: UTF-8 text with a header.
        names: of the columns.
        delimiter: what separates them.

    Returns:
        A pyarrow.Table of strings and the faults, rows counted as spreadsheets do (the header is row 1).

    Raises:
        DataError: it cannot be read at all.
    """
    faults: dict[int, str] = {}
    ended = False

    def note(row: Any) -> str:
        nonlocal ended
        if row.text == marked.mark:
            ended = True
        else:
            faults[row.number] = _ragged(row)
        return "skip"

    try:
        with _Marked(path, len(names), delimiter) as marked:
            table = arrow_csv.read_csv(
                marked,
                # Only one thread counts rows.
                arrow_csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),
                arrow_csv.ParseOptions(
                    delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=False, invalid_row_handler=note
                ),
                arrow_csv.ConvertOptions(column_types={name: pa.string() for name in names}, strings_can_be_null=False),
            )
    except (pa.ArrowException, OSError) as error:
        broken = broken_quote(path, delimiter)
        remedy = "save it as UTF-8" if "UTF8" in str(error) else "save it as a table with one header row"
        raise DataError(f"{path}: {broken}" if broken else f"{path} cannot be read ({error}); {remedy}") from error
    if not ended:
        # The last row took all that follows its quote.
        last = len(table) + len(faults) + 1
        faults[last] = f"row {last}: {NEVER_ENDS}"
    elif not faults and marked.lines > len(table) + 1 and _is_suspicious(table.columns):
        broken = broken_quote(path, delimiter)
        return table, [broken] if broken else []
    return table, list(faults.values())


def _ragged(row: Any) -> str:
    over = "\n" in row.text.strip("\r\n")
    remedy = (
        "a quoted value in it goes on over the end of its line: close it" if over else "correct or quote its values"
    )
    return f"row {row.number} has {row.actual_columns} values, the header {row.expected_columns} columns; {remedy}"


class _Marked(io.RawIOBase):
    """The bytes of a file and one more row, which is only seen as a row where no quoted value is open at the end."""

    def __init__(self, path: Path, columns: int, delimiter: str) -> None:
        super().__init__()
        self.mark = "\x1aend" + columns * delimiter
        """Text of the row; it has a value too many, so that it never enters the table."""
        self.lines = 0
        """Ends of lines so far."""
        self._file = path.open("rb")
        self._last = b""
        self._rest: bytes | None = None

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes, as files give them."""
        part = self._file.read(size) if self._rest is None else b""
        if part:
            self._last = part[-1:]
            self.lines += part.count(b"\n")
            return part
        if self._rest is None:
            self._rest = (b"" if self._last in (b"\n", b"\r") else b"\n") + self.mark.encode()
        cut = len(self._rest) if size < 0 else size
        part, self._rest = self._rest[:cut], self._rest[cut:]
        return part

    def close(self) -> None:
        """Close the file too."""
        self._file.close()
        super().close()


def _is_suspicious(columns: Sequence[Any]) -> bool:
    """Whether a value has both a quote and the end of a line."""
    lines = ((column, pc.match_substring(column, "\n")) for column in columns)
    return any(
        pc.any(pc.and_(broken, pc.match_substring(column, '"')), min_count=0).as_py()
        for column, broken in lines
        if pc.any(broken, min_count=0).as_py()
    )


def broken_quote(path: Path, delimiter: str) -> str | None:
    """The first row with a quoted value that never ends, or ends behind the end of its line and before other text.

    Rows are counted as spreadsheets do. Slow; for files in which something is wrong.
    """
    ended = False

    def lines(file: Iterator[str]) -> Iterator[str]:
        nonlocal ended
        yield from file
        ended = True

    with _any_length(), path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.reader(lines(file), delimiter=delimiter, strict=True)
        row = 0
        while not ended:
            row, before = row + 1, reader.line_num
            try:
                next(reader, None)
            except csv.Error:
                if ended or reader.line_num > before + 1:
                    return f"row {row}: {NEVER_ENDS if ended else ENDS_LATE}"
    return None


@contextmanager
def _any_length() -> Iterator[None]:
    """Python's reader takes values of any length."""
    usual = csv.field_size_limit(int(np.iinfo(np.int32).max))
    try:
        yield
    finally:
        csv.field_size_limit(usual)
