"""An importer for plugins that travel as text."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any

from fedrela_bench.plugins.sources import Plugin, is_in


@dataclass(frozen=True)
class _Text:
    source: str
    file: str
    package: bool


class _Carried(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports plugins from the text they were read as, in whatever process they arrived."""

    def __init__(self) -> None:
        self.texts: dict[str, _Text] = {}

    def add(self, plugin: Plugin) -> None:
        """Make a plugin's text importable."""
        for name, source in plugin.files:
            parts = PurePath(name).with_suffix("").parts if name else ()
            package = bool(name) and parts[-1] == "__init__"
            module = ".".join([plugin.module, *(parts[:-1] if package else parts)])
            self.texts[module] = _Text(source, str(Path(plugin.path) / name) if name else plugin.path, package)

    def files_of(self, module: str) -> set[str]:
        """File names under which a plugin's code was compiled."""
        return {text.file for name, text in self.texts.items() if is_in(name, module)}

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """A specification for a plugin's module."""
        text = self.texts.get(fullname)
        if text is None:
            return None
        spec = importlib.util.spec_from_loader(fullname, self, origin=text.file, is_package=text.package)
        if spec is not None:
            spec.has_location = True
        return spec

    def get_source(self, fullname: str) -> str | None:
        """The text, also for tracebacks."""
        return self.texts[fullname].source

    def get_code(self, fullname: str) -> Any:
        """The compiled text."""
        return self.source_to_code(self.texts[fullname].source, self.texts[fullname].file)

    def is_package(self, fullname: str) -> bool:
        """Whether it has parts."""
        return self.texts[fullname].package


CARRIED = _Carried()
sys.meta_path.append(CARRIED)
