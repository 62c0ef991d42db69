"""From columns of a file to numbers: features, class labels and clients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedrela_bench.data.sources.raw import Column
from fedrela_bench.data.sources.sheet import Rows

MOST_CATEGORIES = 1000
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(inf|Inf|INF|infinity|Infinity)$"
DECIMAL_COMMA = r"^([+-]?\d*),(\d+)$"
WHOLE = r"^[+-]?\d{1,100}$"
"""Longer ones are codes, and sorted as text."""
EXACT_WHOLE = 2.0**53
"""Up to here floats tell all whole numbers apart."""


@dataclass(frozen=True)
class Feature:
    """One column or, of a column of lists, several."""

    columns: tuple[Column, ...]
    values: np.ndarray
    """(n, len(columns)) float64: numbers, or places of categories (-1: missing); NaN where a number is missing."""
    missing: np.ndarray
    """(n,) bool."""


class ColumnReader:
    """Reads columns of some rows and collects what is wrong with them."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.faults: list[str] = []

    def feature(self, name: str, categorical: bool) -> Feature | None:
        """A feature; None, with a fault noted, where it is none."""
        column, kind = self.rows.table.column(name), self.rows.table.schema.field(name).type
        if column.null_count == len(self.rows) or pa.types.is_null(kind):
            self.faults.append(f"column {name} is empty; name it in data.drop_columns")
            return None
        if _is_list(kind):
            return self._vectors(name, column)
        if categorical or _is_text(kind):
            return self._text(name, column, categorical)
        if pa.types.is_boolean(kind) or _is_numeric(kind):
            return self._finite(name, _floats(column))
        self.faults.append(f"column {name} is of type {kind}; make it numbers or text, or name it in data.drop_columns")
        return None

    def categories(self, name: str, what: str) -> tuple[np.ndarray, tuple[str, ...]]:
        """A column of classes or clients: (n,) places in the sorted names (-1 with a fault noted), and these.

        Whole numbers are sorted as numbers.
        """
        texts = self._names(name, what, self.rows.table.column(name))
        if texts is None:
            return np.full(len(self.rows), -1, dtype=np.int64), ()
        if texts.null_count:
            self._at(name, texts.is_null().to_numpy(), f"has no {what}; give it one or remove the row")
        return _coded(texts)

    # kinds -----------------------------------------------------------------------------------------------------------

    def _text(self, name: str, column: Any, categorical: bool) -> Feature | None:
        if self.rows.is_text and not categorical:
            values, numbers = parse_numbers(column, self.rows.comma)
            there = column.is_valid().to_numpy()
            if numbers[there].all():
                return self._finite(name, values)
            if 2 * numbers.sum() >= there.sum():
                wrong = there & ~numbers
                self._at(
                    name, wrong, f"holds {column[_first(wrong)].as_py()!r} among numbers; correct it, or name the "
                    "column in data.categorical_columns"
                )  # fmt: skip
                return None
        places, names = _coded(column if _is_text(column.type) else _as_text(column))
        if len(names) > MOST_CATEGORIES:
            self.faults.append(
                f"column {name} holds {len(names):,} different texts, more than {MOST_CATEGORIES:,} categories: is it "
                "an identifier or a date? Name it in data.drop_columns, or make fewer of them"
            )
            return None
        return Feature((Column(name, names),), places.astype(np.float64)[:, None], places < 0)

    def _finite(self, name: str, values: np.ndarray) -> Feature | None:
        infinite = np.isinf(values)
        if infinite.any():
            self._at(name, infinite, "is infinite; give a finite number, or leave it empty")
            return None
        return Feature((Column(name),), values[:, None], np.isnan(values))

    def _vectors(self, name: str, column: Any) -> Feature | None:
        lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
        size = lengths[0]
        other = lengths != size
        if not size > 0 or other.any():
            what = "a list of another length; make all equal" if other.any() else "an empty list; give it numbers"
            self._at(name, other if other.any() else lengths == size, f"has {what}")
            return None
        values = _floats(pc.list_flatten(column)).reshape(len(lengths), int(size))
        wrong = ~np.isfinite(values).all(axis=1)
        if wrong.any():
            self._at(name, wrong, "has a list with a number that is missing or not finite")
            return None
        return Feature(tuple(Column(f"{name}.{place}") for place in range(int(size))), values, wrong)

    # helpers ---------------------------------------------------------------------------------------------------------

    def _names(self, name: str, what: str, column: Any) -> Any:
        """Classes or clients as text; numbers must be whole. None with a fault noted."""
        kind = column.type
        if _is_text(kind):
            there = column.is_valid().to_numpy()
            if not self.rows.is_text or not there.any() or _all_whole(column):
                return column
            values, numbers = parse_numbers(column, self.rows.comma)
            if not numbers[there].all():
                return column
            column = pa.chunked_array([pa.array(values, from_pandas=True)])
        elif not (pa.types.is_boolean(kind) or _is_numeric(kind)):
            self.faults.append(f"column {name} is of type {kind}; a {what} is a whole number or text")
            return None
        if _is_numeric(column.type) and not pa.types.is_integer(column.type):
            values = _floats(column)
            broken = ~np.isnan(values) & (values != np.rint(values)) | np.isinf(values)
            if broken.any():
                text = f"is {values[broken][0]:g}; a {what} is a whole number or text, not a measurement"
                self._at(name, broken, text)
                return None
            inexact = np.abs(values) > EXACT_WHOLE
            if inexact.any():
                text = f"is {values[inexact][0]:g}, of which not every digit is known; write a {what} this long as text"
                self._at(name, inexact, text)
                return None
        return _as_text(column)

    def _at(self, name: str, wrong: np.ndarray, text: str) -> None:
        more = f" ({int(wrong.sum()):,} such rows)" if wrong.sum() > 1 else ""
        self.faults.append(f"{self.rows.place(_first(wrong))}, column {name} {text}{more}")


def missing_faults(rows: Rows, features: list[Feature]) -> Iterator[str]:
    """What is missing, column by column."""
    for feature in features:
        if feature.missing.any():
            name, count = feature.columns[0].name, int(feature.missing.sum())
            first = rows.place(_first(feature.missing))
            yield (
                f"column {name} lacks {count:,} values (first: {first}); fill them in, remove the rows or the column "
                "(data.drop_columns), or set data.impute to mean"
            )


def parse_numbers(texts: Any, comma: bool) -> tuple[np.ndarray, np.ndarray]:
    """Text as numbers: (n,) float64, NaN where there is none, and (n,) bool, True where there is one.

    Args:
        texts: pyarrow strings, null where missing.
        comma: whether ``1,5`` is 1.5.
    """
    texts = pc.cast(texts, pa.string())
    if comma:
        texts = pc.replace_substring_regex(texts, DECIMAL_COMMA, r"\1.\2")
    numbers = pc.fill_null(pc.match_substring_regex(texts, NUMBER), False)
    plain = pc.if_else(numbers, texts, pa.scalar(None, pa.string()))
    return _floats(pc.cast(plain, pa.float64())), numbers.to_numpy()


def _coded(texts: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """(n,) int64 places in the sorted names, -1 for null, and the names."""
    encoded = pc.cast(texts, pa.string()).combine_chunks().dictionary_encode()
    found: list[str] = encoded.dictionary.to_pylist()
    whole = _all_whole(encoded.dictionary)
    order = sorted(range(len(found)), key=lambda place: (int(found[place]) if whole else 0, found[place]))
    target = np.empty(len(found), dtype=np.int64)
    target[order] = np.arange(len(found))
    places = np.full(len(encoded), -1, dtype=np.int64)
    places[encoded.is_valid().to_numpy(zero_copy_only=False)] = target[encoded.indices.drop_null().to_numpy()]
    return places, tuple(found[place] for place in order)


def _all_whole(texts: Any) -> bool:
    """Whether every text that is there is a whole number."""
    return bool(pc.all(pc.match_substring_regex(pc.cast(texts, pa.string()), WHOLE), min_count=0).as_py())


def _as_text(column: Any) -> Any:
    """Numbers as text, whole ones without a decimal point."""
    if _is_numeric(column.type) and not pa.types.is_integer(column.type):
        values = _floats(column)
        if (np.isnan(values) | (values == np.rint(values)) & (np.abs(values) <= EXACT_WHOLE)).all():
            column = pc.cast(pa.chunked_array([pa.array(values, from_pandas=True)]), pa.int64(), safe=False)
    return pc.cast(column, pa.string())


def _floats(column: Any) -> np.ndarray:
    values = pc.cast(column, pa.float64(), safe=False)
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)


def _first(wrong: np.ndarray) -> int:
    return int(np.flatnonzero(wrong)[0])


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_numeric(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_list(kind: Any) -> bool:
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(lists and _is_numeric(kind.value_type))
