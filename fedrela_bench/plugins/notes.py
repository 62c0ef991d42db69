"""What plugins register, noted while they are imported: every decorator that adds a name calls `note`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedrela_bench.errors import ConfigError
from fedrela_bench.plugins.places import line_of_call
from fedrela_bench.plugins.sources import Plugin, is_in


@dataclass(frozen=True)
class Entry:
    """A name that a plugin registered."""

    kind: str
    """Such as algorithm or model."""
    name: str
    registry: MutableMapping[str, Any]
    value: Any

    def insert(self) -> None:
        """Register it again."""
        taken = self.registry.get(self.name, self.value)
        if taken is not self.value:
            raise ConfigError(f"{self.kind} name {self.name!r} is taken; choose another name")
        self.registry[self.name] = self.value

    def withdraw(self) -> None:
        """Make the name unknown, if it still is this plugin's."""
        if self.registry.get(self.name) is self.value:
            del self.registry[self.name]


@dataclass
class Loaded:
    """A plugin that was imported in this process."""

    plugin: Plugin
    entries: list[Entry] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """What may be a mistake and is no reason to refuse it."""


LOADED: dict[str, Loaded] = {}
"""By module name; those that are not active among them."""
ACTIVE: list[Loaded] = []
IMPORTING: list[Loaded] = []
"""The plugins whose import is under way, innermost last."""
_BEFORE: list[Entry] = []
"""Registered while no plugin was being imported."""


def note(kind: str, registry: MutableMapping[str, Any], name: str) -> None:
    """Say that a name was registered; called by the decorators.

    Args:
        kind: such as algorithm.
        registry: from names to what they stand for; holds the name already.
        name: as configurations give it.
    """
    entry = Entry(kind, name, registry, registry[name])
    (IMPORTING[-1].entries if IMPORTING else _BEFORE).append(entry)


def refuse(faults: Sequence[str]) -> None:
    """Refuse what was to be registered: at once, or together with the plugin's other faults.

    Raises:
        ConfigError: no plugin is being imported.
    """
    if not IMPORTING:
        raise ConfigError(faults)
    place = line_of_call(IMPORTING[-1].plugin)
    IMPORTING[-1].faults += [f"{place}{fault}" for fault in faults]


def remark(texts: Sequence[str]) -> None:
    """Say what may be a mistake: with the plugin's other remarks, or as a warning where no plugin is being imported."""
    if not IMPORTING:
        for text in texts:
            warnings.warn(text, stacklevel=4)
        return
    place = line_of_call(IMPORTING[-1].plugin)
    IMPORTING[-1].remarks += [f"{place}{text}" for text in texts]


def remarks() -> list[str]:
    """What active plugins may have got wrong."""
    return [text for loaded in ACTIVE for text in loaded.remarks]


def registered_before(module: str) -> list[Entry]:
    """What a module registered that had been imported before it was asked for as a plugin."""
    return [entry for entry in _BEFORE if is_in(str(getattr(entry.value, "__module__", "")), module)]


def origin_of(kind: str, name: str) -> str:
    """The plugin that registered a name, as the user gave it; empty where it comes with the package."""
    found = [loaded for loaded in ACTIVE for entry in loaded.entries if (entry.kind, entry.name) == (kind, name)]
    return found[-1].plugin.title if found else ""


def spaces() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Algorithms of plugins that say how they are tuned, with the parameters of their search space."""
    for loaded in ACTIVE:
        for entry in loaded.entries:
            space = getattr(entry.value, "search_space", None)
            if entry.kind == "algorithm" and space:
                yield entry.name, space


def space_of(name: str) -> Mapping[str, Any] | None:
    """The parameters of the search space that an algorithm of a plugin brings."""
    return dict(spaces()).get(name)
