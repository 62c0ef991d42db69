"""How a value of a configuration may be written; what could mean something else is refused."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BeforeValidator, Field


def _whole(value: object) -> object:
    """Accept 3.0 for 3 but never True for 1 nor text."""
    if isinstance(value, bool | str):
        raise ValueError(f"must be a number, not {'text' if isinstance(value, str) else 'a boolean'}")
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def _real(value: object) -> object:
    if isinstance(value, bool | str):
        raise ValueError(f"must be a number, not {'text' if isinstance(value, str) else 'a boolean'}")
    return value


Whole = Annotated[int, BeforeValidator(_whole)]
Real = Annotated[float, BeforeValidator(_real), Field(allow_inf_nan=False)]


def as_factor(value: object) -> object:
    """Refuse min/max ratios, which other code bases call by the same name."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1:
        raise ValueError(f"imbalance_factor is largest/smallest class and at least 1; did you mean {1 / value:g}?")
    return _real(value)


def as_tau(value: object) -> object:
    """Refuse percentages, which the released code takes."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 1:
        raise ValueError(f"tau is a fraction of the local samples between 0 and 1; did you mean {value / 100:g}?")
    return _real(value)


def as_start(value: object) -> object:
    """Keep integers (rounds) and floats (fractions) apart; 48.0 is the round 48."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        raise ValueError("must be a fraction of the rounds such as 0.8, or a number of completed rounds such as 48")
    if isinstance(value, float) and value > 1:
        if not value.is_integer():
            raise ValueError("above 1 it counts completed rounds and must be whole")
        return int(value)
    return value


def as_ids(value: object) -> object:
    """Class ids written as "0,2,4" or as a single number."""
    if isinstance(value, str) and value.replace(",", "").replace(" ", "").isdigit():
        return tuple(int(part) for part in value.split(",") if part.strip())
    return (value,) if isinstance(value, int) and not isinstance(value, bool) else value


def as_clients(value: object) -> object:
    """`auto` is kept as 0, which nobody can mean otherwise."""
    if value == "auto":
        return 0
    if isinstance(value, int | float) and value < 1:
        raise ValueError("must be at least 1, or auto where the data name the clients")
    return _whole(value)


def _columns(value: object) -> object:
    """Column names written as "a,b" or as a list; their order means nothing."""
    names = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(_column(name), str) for name in names):
        raise ValueError("give the names of columns, such as [id, date]")
    return tuple(sorted({str(name).strip() for name in names if str(name).strip()}))


def _column(value: object) -> object:
    """A column named 2020 is read as a number from the command line."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


ColumnName = Annotated[str | None, BeforeValidator(_column)]
Columns = Annotated[tuple[str, ...], BeforeValidator(_columns)]
