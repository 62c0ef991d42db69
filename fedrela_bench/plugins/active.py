"""Importing plugins, and which of them are in force in this process."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedrela_bench.errors import ConfigError
from fedrela_bench.plugins.carried import CARRIED
from fedrela_bench.plugins.notes import ACTIVE, IMPORTING, LOADED, Loaded, registered_before
from fedrela_bench.plugins.places import frames_of
from fedrela_bench.plugins.sources import Plugin, is_in, of_module

NOTHING = (
    "registers nothing; put @register of fedrela_bench.algorithms above a class of an algorithm, "
    '@register_model("name") of fedrela_bench.models above a function that builds a network, @register_relabeler of '
    "fedrela_bench.relabelers or @register_schedule of fedrela_bench.schedules above a class of one"
)
PARTS = ("fedrela_bench.models", "fedrela_bench.algorithms", "fedrela_bench.relabelers", "fedrela_bench.schedules")
Code = tuple[tuple[str, str], ...]
"""Registered names and the digests of the plugins behind them."""


def active() -> tuple[Plugin, ...]:
    """The plugins in force, in the order they were given."""
    return tuple(loaded.plugin for loaded in ACTIVE)


def activate(plugins: Sequence[Plugin]) -> None:
    """Put exactly these plugins in force: import what is new, and make the names of others unknown.

    Raises:
        ConfigError: every fault of every plugin; those without a fault are in force then.
    """
    wanted = {plugin.module: plugin for plugin in plugins}
    for loaded in reversed(list(ACTIVE)):
        if loaded.plugin.module not in wanted or wanted[loaded.plugin.module].digest != loaded.plugin.digest:
            _withdraw(loaded)
    faults = [fault for plugin in wanted.values() for fault in _enter(plugin)]
    if faults:
        raise ConfigError(faults)


@contextmanager
def only(plugins: Sequence[Plugin]) -> Iterator[None]:
    """These plugins in force for a while, and no others.

    Raises:
        ConfigError: see `activate`.
    """
    before = active()
    try:
        activate(plugins)
        yield
    finally:
        activate(before)


def _withdraw(loaded: Loaded) -> None:
    for entry in loaded.entries:
        entry.withdraw()
    ACTIVE.remove(loaded)


def _enter(plugin: Plugin) -> list[str]:
    """Put a plugin in force; its faults."""
    loaded = LOADED.get(plugin.module)
    if loaded is not None and loaded.plugin.digest != plugin.digest:
        return [f"--plugin {plugin.title}: its source changed while this process ran; start the command again"]
    if loaded is not None:
        loaded.plugin = plugin
        if loaded in ACTIVE:
            return []
    if loaded is None and not plugin.files and of_module(plugin.given, plugin.module).digest != plugin.digest:
        return [
            f"--plugin {plugin.title}: {plugin.module} is another version here than where the command was given; "
            "install the same one on every machine"
        ]
    if loaded is None:
        loaded = Loaded(plugin)
        faults = _import(loaded)
        if faults:
            _forget(loaded)
            return faults
    try:
        for entry in loaded.entries:
            entry.insert()
    except ConfigError as error:
        _forget(loaded)
        return [f"--plugin {plugin.title}: {fault}" for fault in error.faults]
    LOADED[plugin.module] = loaded
    ACTIVE.append(loaded)
    return []


def _import(loaded: Loaded) -> list[str]:
    plugin = loaded.plugin
    CARRIED.add(plugin)
    for own in PARTS:
        # What the package itself registers on its first import is not the plugin's.
        importlib.import_module(own)
    IMPORTING.append(loaded)
    try:
        # What a plugin prints is for people, and stdout may be read by a machine.
        with contextlib.redirect_stdout(sys.stderr):
            importlib.import_module(plugin.module)
    except BaseException as error:
        if not _is_of_plugin(plugin, error):
            raise
        loaded.faults += _import_faults(plugin, error)
    finally:
        IMPORTING.pop()
    loaded.entries += [] if loaded.entries else registered_before(plugin.module)
    if not loaded.entries and not loaded.faults:
        loaded.faults.append(NOTHING)
    return [f"--plugin {plugin.title}: {fault}" for fault in loaded.faults]


def _is_of_plugin(plugin: Plugin, error: BaseException) -> bool:
    """Whether an error is the plugin's fault, not an interruption of the process."""
    usual = isinstance(error, Exception | SystemExit | GeneratorExit)
    return usual or is_in(type(error).__module__, plugin.module)


def _forget(loaded: Loaded) -> None:
    for entry in loaded.entries:
        entry.withdraw()
    if loaded.plugin.files:
        for name in [name for name in sys.modules if is_in(name, loaded.plugin.module)]:
            del sys.modules[name]


def _import_faults(plugin: Plugin, error: BaseException) -> Iterator[str]:
    lines = frames_of(plugin, error)
    if isinstance(error, ConfigError):
        place = f"{lines[-1]}\n       " if lines else ""
        yield from (f"{place}{fault}" for fault in error.faults)
        return
    trace = "".join(f"\n       {line}" for line in lines)
    yield f"importing it raised {type(error).__name__}: {error}; {_import_remedy(plugin, error)}{trace}"


def _import_remedy(plugin: Plugin, error: BaseException) -> str:
    missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
    if missing and plugin.files and (Path(plugin.path).parent / f"{missing}.py").is_file():
        return (
            f"a plugin of several files is a folder: put both into one with an __init__.py, write `from . import "
            f"{missing}`, and give the folder"
        )
    if missing:
        return f"install {missing} where this command runs, on a cluster on every node"
    if plugin.distribution:
        return f"update or remove {plugin.distribution.split()[0]}"
    return "put it right, or leave the plugin out"


# what is used --------------------------------------------------------------------------------------------------------


def provided() -> Code:
    """Every name that active plugins register, with the digests of the sources behind it."""
    digests = {loaded.plugin.module: loaded.plugin.digest for loaded in ACTIVE}
    pairs = {
        (entry.name, digests[module])
        for loaded in ACTIVE
        for entry in loaded.entries
        for module in {loaded.plugin.module, *_ancestors(entry.value, digests)}
    }
    return tuple(sorted(pairs))


def _ancestors(value: Any, modules: Iterable[str]) -> Iterator[str]:
    """The plugins that hold a class which this one derives from."""
    for kind in getattr(value, "__mro__", ()):
        yield from (module for module in modules if is_in(kind.__module__, module))


def code_of(code: Code, values: object) -> tuple[str, ...]:
    """Digests of the plugins that nested values name, ascending; () where they need none.

    Args:
        code: from `provided`.
        values: of a configuration, as JSON.
    """
    if not code:
        return ()
    named = set(_strings(values))
    return tuple(sorted({digest for name, digest in code if name in named}))


def used(values: object) -> tuple[Plugin, ...]:
    """The active plugins that nested values of a configuration need."""
    digests = code_of(provided(), values)
    return tuple(plugin for plugin in active() if plugin.digest in digests)


def facts(plugins: Iterable[Plugin]) -> list[dict[str, Any]]:
    """What a record says of plugins: name, digest, and what they register."""
    names = {loaded.plugin.module: [f"{entry.kind} {entry.name}" for entry in loaded.entries] for loaded in ACTIVE}
    return [
        {"plugin": plugin.title, "digest": plugin.digest, "provides": names.get(plugin.module, [])}
        for plugin in plugins
    ]


def _strings(values: object) -> Iterator[str]:
    if isinstance(values, str):
        yield values
    elif isinstance(values, Mapping):
        for value in values.values():
            yield from _strings(value)
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _strings(value)
