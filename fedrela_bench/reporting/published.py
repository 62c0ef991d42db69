"""Published numbers in long form: one row per table, setting, method, variant and metric."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedrela_bench.errors import ConfigError

VALUE = "accuracy_pct"
NOTE = "note"


@dataclass(frozen=True)
class Published:
    """The rows of one file of published numbers."""

    path: Path
    rows: tuple[dict[str, str], ...]
    _by_metric: dict[str, list[dict[str, str]]] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        """Sort the rows by metric, which nearly every question names."""
        for row in self.rows:
            self._by_metric.setdefault(row.get("metric", ""), []).append(row)

    @property
    def columns(self) -> list[str]:
        """The names that a report may filter by."""
        return [name for name in self.rows[0] if name != VALUE] if self.rows else []

    def value(self, where: Mapping[str, Any]) -> float | None:
        """The one published number that all filters fit, in percent; None where the source has none.

        Of a sum (``metric: medium+tail``) all parts must be published; the head in ``overall.realign`` is ours alone.
        A row without a note, such as a baseline beside which τ varies, fits every filter on the note.

        Raises:
            ConfigError: several numbers fit.
        """
        metric, _, _ = str(where.get("metric", "")).partition(".")
        if "+" in metric:
            parts = [self.value({**where, "metric": part}) for part in metric.split("+")]
            given = [part for part in parts if part is not None]
            return sum(given) if len(given) == len(parts) else None
        found = self.fitting({**where, "metric": metric} if metric else where)
        if len({row[VALUE] for row in found}) > 1:
            shown = ", ".join(f"{name}={wanted}" for name, wanted in where.items())
            raise ConfigError(f"{self.path.name}: {len(found)} published numbers fit {shown}; add a filter to the spec")
        return float(found[0][VALUE]) if found else None

    def fitting(self, where: Mapping[str, Any]) -> list[dict[str, str]]:
        """The rows that all filters fit."""
        rows = self._by_metric.get(str(where["metric"]), []) if "metric" in where else self.rows
        return [row for row in rows if all(_fits(row, name, wanted) for name, wanted in where.items())]


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


def _fits(row: Mapping[str, str], name: str, wanted: object) -> bool:
    text = row[name]
    if isinstance(wanted, int | float) and not isinstance(wanted, bool):
        try:
            return float(text) == wanted
        except ValueError:
            return False
    return text == ("" if wanted is None else str(wanted)) or (name == NOTE and not text)
