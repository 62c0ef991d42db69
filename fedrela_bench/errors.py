"""Errors that a user can act on; each carries the exit code of the command line."""

from __future__ import annotations

from collections.abc import Sequence


class BenchError(Exception):
    """Base of every error raised on purpose by this package."""

    exit_code = 1


class ConfigError(BenchError):
    """One or several faults of the user's input, reported together.

    Args:
        faults: one sentence of fact and one of remedy for each fault.
    """

    exit_code = 2

    def __init__(self, faults: str | Sequence[str]) -> None:
        self.faults: list[str] = [faults] if isinstance(faults, str) else list(faults)
        super().__init__(self._text())

    def _text(self) -> str:
        if len(self.faults) == 1:
            return self.faults[0]
        listed = "\n".join(f"  {i}. {fault}" for i, fault in enumerate(self.faults, 1))
        return f"{len(self.faults)} faults:\n{listed}"


class DataError(BenchError):
    """A dataset is missing, damaged, or cannot be split as asked."""

    exit_code = 2


class RunError(BenchError):
    """A simulation cannot start, continue or restore."""


class StoreError(BenchError):
    """Stored results or snapshots are missing, damaged or cannot be written."""
