"""Failed processes: the sentence that says why, the full text in the study folder, and the right exit code."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrela_bench.errors import BenchError, ConfigError, DataError, RunError
from fedrela_bench.nested import Json
from fedrela_bench.plugins import place_of

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_OF_RAY = "ray::"
"""Begins the text of a task's error, whose last line is the error itself."""


@dataclass(frozen=True)
class Failure:
    """A baseline that failed."""

    name: str
    error: str
    kind: str = ""
    """ConfigError or DataError where the user's input is the reason."""


def refuse(failures: Sequence[Failure]) -> None:
    """Raise what made baselines fail.

    Raises:
        ConfigError, DataError: the user's input did, for all of them.
        RunError: anything else.
    """
    kinds = {failure.kind for failure in failures}
    texts = list(dict.fromkeys(failure.error for failure in failures))
    if kinds == {"ConfigError"}:
        raise ConfigError(texts)
    if kinds and kinds <= {"ConfigError", "DataError"}:
        raise DataError("\n".join(texts))
    if failures:
        raise RunError("\n".join(f"{failure.name} failed: {failure.error}" for failure in failures))


def describe(error: Exception, folder: Path, key: str) -> Json:
    """The answer of a process that failed; what is not a message for users has its traceback in ``errors/``."""
    if isinstance(error, BenchError):
        kind = next((kind.__name__ for kind in (ConfigError, DataError) if isinstance(error, kind)), "")
        return {"status": "failed", "error": str(error), "kind": kind}
    name = _write(folder, key, "".join(traceback.format_exception(error)))
    return {"status": "failed", "error": f"{type(error).__name__}: {error}{place_of(error)} (details in {name})"}


def answer_of(call: Any, folder: Path, key: str) -> Json:
    """What a Ray task answered, or why it could not.

    Args:
        call: a finished task.
        folder: the study's.
        key: names the file for the full text.
    """
    import ray

    try:
        return dict(ray.get(call))
    except ray.exceptions.RayError as error:
        text = plain(str(error))
        cause = getattr(error, "cause", None)
        if isinstance(cause, BenchError):
            return describe(cause, folder, key)
        why = f"{type(cause).__name__}: {cause}" if isinstance(cause, Exception) else _sentence(text)
        return {"status": "failed", "error": f"{why} (details in {_write(folder, key, text)})"}


def plain(text: str) -> str:
    """Text without terminal colours."""
    return _ANSI.sub("", text)


def _sentence(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["its process ended without a word"]
    return lines[-1] if lines[0].startswith(_OF_RAY) else f"its process ended: {lines[0]}"


def _write(folder: Path, key: str, text: str) -> str:
    path = folder / "errors" / f"{key[:12]}.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(plain(text), encoding="utf-8")
    except OSError as error:
        return f"no file, since none could be written: {error.strerror or error}"
    return f"{path.parent.name}/{path.name}"
