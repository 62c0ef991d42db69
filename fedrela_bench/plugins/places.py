"""Where in a plugin something happened, for messages."""

from __future__ import annotations

import traceback
from pathlib import Path

from fedrela_bench.plugins.carried import CARRIED
from fedrela_bench.plugins.sources import Plugin

MOST_FRAMES = 3


def line_of_call(plugin: Plugin) -> str:
    """The plugin's line that is being executed, as ``fedls.py, line 12: ``; empty where none is."""
    frames = [frame for frame in traceback.extract_stack() if is_of(plugin, frame.filename)]
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}: " if frames else ""


def frames_of(plugin: Plugin, error: BaseException) -> list[str]:
    """The plugin's own lines of a traceback, the innermost last."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_of(plugin, frame.filename)]
    return [_told(frame) for frame in frames[-MOST_FRAMES:]]


def place_of(error: BaseException) -> str:
    """The innermost line of an active plugin in a traceback, as a clause; empty where there is none."""
    from fedrela_bench.plugins.active import active

    lines = [line for plugin in active() for line in frames_of(plugin, error)[-1:]]
    return f" (in {lines[-1]})" if lines else ""


def _told(frame: traceback.FrameSummary) -> str:
    code = f": {frame.line.strip()}" if frame.line else ""
    return f"{Path(frame.filename).name}, line {frame.lineno}, in {frame.name}{code}"


def is_of(plugin: Plugin, filename: str) -> bool:
    """Whether a file belongs to a plugin."""
    if plugin.files:
        return filename in CARRIED.files_of(plugin.module)
    path = Path(plugin.path)
    return bool(plugin.path) and (Path(filename) == path or path in Path(filename).parents)
