"""The kit's table of the package's algorithms as the tests use it: a new algorithm is one row.

`tests/algorithms/test_kit.py` runs every check of `fedrela_bench.testing` on every algorithm of the package.
"""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import fedrela_bench.algorithms as package
from fedrela_bench.algorithms import ALGORITHMS
from fedrela_bench.testing.cases import SHIPPED as ROWS
from fedrela_bench.testing.cases import Case as Row
from fedrela_bench.testing.cases import Equal

__all__ = ["ROWS", "Equal", "Row", "names", "rows_of"]

for _module in pkgutil.iter_modules(package.__path__):
    importlib.import_module(f"{package.__name__}.{_module.name}")


def names() -> list[str]:
    """Every algorithm that comes with the package; those that other tests register are theirs to check."""
    return sorted(name for name, kind in ALGORITHMS.items() if kind.__module__.startswith(package.__name__))


def rows_of(name: str) -> list[Row]:
    """The algorithm's rows; a test fails without one."""
    found = [row for row in ROWS if row.name == name]
    if not found:
        pytest.fail(
            f"algorithm {name!r} has no row in fedrela_bench/testing/cases.py: add _row({name!r}, ...) to SHIPPED, "
            "with its degenerate cases, how its server combines, what it keeps, and the accuracy to reach on digits"
        )
    return found
