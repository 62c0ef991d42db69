"""`--plugin` and FEDRELA_PLUGINS: code of the user's own, loaded before a verb looks at names."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from fedrela_bench import plugins
from fedrela_bench.errors import ConfigError

VARIABLE = "FEDRELA_PLUGINS"
PARAMETER = "plugin"
Plugin = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="FILE|MODULE",
        help=f"Algorithms, models, relabelers of your own; may be repeated [{VARIABLE}].",
    ),
]


def of_environment() -> list[str]:
    """What FEDRELA_PLUGINS names, separated like a search path."""
    return [part for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part.strip()]


def load(given: Sequence[str]) -> None:
    """Put in force what the command line and FEDRELA_PLUGINS name, and what installed packages announce.

    A broken package, and what may be a mistake in a plugin, are told on stderr and are no reason to stop.

    Raises:
        ConfigError: every fault of every plugin that was named.
    """
    named, faults = plugins.readable([*given, *of_environment()])
    announced, broken = plugins.installed()
    modules = {plugin.module for plugin in named}
    usable: list[plugins.Plugin] = []
    for plugin in [plugin for plugin in announced if plugin.module not in modules]:
        try:
            plugins.activate([*usable, plugin])
            usable.append(plugin)
        except ConfigError as error:
            broken += [f"plugin {fault.removeprefix('--plugin ')}" for fault in error.faults]
    for fault in broken:
        print(f"note: {fault}", file=sys.stderr)
    try:
        plugins.activate([*usable, *named])
    except ConfigError as error:
        faults += error.faults
    if faults:
        raise ConfigError(faults)
    for remark in plugins.remarks():
        print(f"note: {remark}", file=sys.stderr)


def command_line() -> str:
    """The command that is running, as it can be typed again; plugins of the environment are spelt out."""
    words = ["fedrela-bench", *sys.argv[1:]]
    missing = [part for part in of_environment() if part not in words and f"--plugin={part}" not in words]
    return shlex.join([*words, *(word for part in missing for word in ("--plugin", part))])
