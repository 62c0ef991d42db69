"""Append-only journals of JSON lines that survive a kill in the middle of a line."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrela_bench.errors import StoreError

Line = dict[str, Any]


@dataclass(frozen=True)
class Journal:
    """One JSON object per line; only whole lines count."""

    path: Path

    def append(self, line: Line) -> None:
        """Add a line and force it to disk; a half-written line of a killed process is cut off first.

        Raises:
            StoreError: the line cannot be written.
        """
        data = (json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n").encode()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                _cut_half_line(file)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(
                f"cannot write {self.path}: {error.strerror or error}; free space and repeat the command"
            ) from error

    def tail(self, offset: int = 0) -> tuple[list[Line], int]:
        """Whole lines from a byte offset on, and the offset after them; unreadable lines are left out."""
        try:
            with self.path.open("rb") as file:
                file.seek(offset)
                data = file.read()
        except FileNotFoundError:
            return [], offset
        whole = data[: data.rfind(b"\n") + 1]
        return [line for raw in whole.splitlines() if (line := _parse(raw)) is not None], offset + len(whole)

    def lines(self) -> list[Line]:
        """All whole lines."""
        return self.tail()[0]

    def whole_lines(self) -> int:
        """How many lines were written to their end, readable or not."""
        return self.path.read_bytes().count(b"\n")

    def rounds(self, first: int) -> list[Line]:
        """Lines of rounds first, first + 1, ... without a gap, each once (the first one written counts)."""
        known: dict[int, Line] = {}
        for line in self.lines():
            known.setdefault(line.get("round", -1), line)
        curve: list[Line] = []
        while first + len(curve) in known:
            curve.append(known[first + len(curve)])
        return curve


def _cut_half_line(file: Any) -> None:
    size = file.seek(0, os.SEEK_END)
    end = size
    while end > 0:
        start = max(0, end - 65536)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end != size:
        file.truncate(end)


def _parse(raw: bytes) -> Line | None:
    try:
        line = json.loads(raw)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None
