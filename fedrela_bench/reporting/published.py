"""Published numbers in long form: one row per table, setting, method, variant and metric."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrela_bench.errors import ConfigError

VALUE = "accuracy_pct"


@dataclass(frozen=True)
class Published:
    """The rows of one file of published numbers."""

    path: Path
    rows: tuple[dict[str, str], ...]

    @property
    def columns(self) -> list[str]:
        """The names that a report may filter by."""
        return [name for name in self.rows[0] if name != VALUE] if self.rows else []

    def value(self, where: Mapping[str, Any]) -> float | None:
        """The one published number that all filters fit, in percent; None where the source has none.

        Raises:
            ConfigError: several numbers fit.
        """
        found = [row[VALUE] for row in self.rows if all(_fits(row[name], wanted) for name, wanted in where.items())]
        if len(set(found)) > 1:
            shown = ", ".join(f"{name}={wanted}" for name, wanted in where.items())
            raise ConfigError(f"{self.path.name}: {len(found)} published numbers fit {shown}; add a filter to the spec")
        return float(found[0]) if found else None


def load_published(path: Path) -> Published:
    """Read a file of published numbers.

    Raises:
        ConfigError: no such file, or without the value column.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = tuple(csv.DictReader(file))
    except OSError as error:
        raise ConfigError(
            f"{path}: published numbers cannot be read ({error.strerror}); check `reference.file`"
        ) from None
    if not rows or VALUE not in rows[0]:
        raise ConfigError(f"{path}: not a file of published numbers (no column {VALUE}); check `reference.file`")
    return Published(path, rows)


def _fits(text: str, wanted: object) -> bool:
    if isinstance(wanted, int | float) and not isinstance(wanted, bool):
        try:
            return float(text) == wanted
        except ValueError:
            return False
    return text == ("" if wanted is None else str(wanted))
