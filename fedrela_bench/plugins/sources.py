"""Finding and reading plugins: what the user wrote, as text with a digest; nothing is imported that is a file."""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import json
import os
import re
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from fedrela_bench.errors import ConfigError

GROUP = "fedrela_bench.plugins"
"""Entry points of this group are plugins of installed packages."""
OWN = __name__.partition(".")[0]
PREFIX = "fedrela_plugin_"
LONGEST_LINE = 120
"""Letters of a wrong line that a message shows."""
LARGEST_BYTES = 4 << 20
"""Of a plugin's text: it travels to every process."""


@dataclass(frozen=True)
class Plugin:
    """One plugin, as plain values that other processes understand."""

    given: str
    """What the user wrote, or the name of the entry point."""
    module: str
    """Name under which it is imported."""
    digest: str
    """Of its source text."""
    files: tuple[tuple[str, str], ...] = ()
    """Paths within the plugin and their text; none for an installed module, which every process imports itself."""
    path: str = ""
    """File or folder it was read from."""
    distribution: str = ""
    """The installed package that announces it."""

    @property
    def title(self) -> str:
        """For messages and listings."""
        return f"{self.given} of {self.distribution}" if self.distribution else self.given


def read_all(given: Sequence[str]) -> list[Plugin]:
    """Read plugins: files, folders with ``__init__.py``, names of entry points, or modules.

    Args:
        given: as the user wrote them; one that is given twice counts once.

    Raises:
        ConfigError: every fault of every plugin.
    """
    found, faults = readable(given)
    if faults:
        raise ConfigError(faults)
    return found


def readable(given: Sequence[str]) -> tuple[list[Plugin], list[str]]:
    """The plugins that can be read, and every fault of the others; `read_all` has the argument."""
    faults: list[str] = []
    found: dict[str, Plugin] = {}
    for text in dict.fromkeys(given):
        try:
            plugin = _read(text)
            found.setdefault(plugin.module, plugin)
        except ConfigError as error:
            faults += [f"--plugin {text}: {fault}" for fault in error.faults]
    return list(found.values()), faults


def installed() -> tuple[list[Plugin], list[str]]:
    """Plugins that installed packages announce, and a sentence for each that cannot be found."""
    found: list[Plugin] = []
    broken: list[str] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            found.append(_of_entry(entry))
        except ConfigError as error:
            broken += [f"plugin {entry.name} of {_package(entry)}: {fault}" for fault in error.faults]
    return found, broken


def _read(given: str) -> Plugin:
    path = Path(given).expanduser()
    if not given.strip():
        raise ConfigError("the name is empty; give a file, a folder with __init__.py, or a module")
    if given.endswith(".py") or os.sep in given or path.is_dir():
        return _of_path(given, path)
    beside = path.with_name(f"{path.name}.py")
    if beside.is_file():
        return _of_path(given, beside)
    if is_in(given, OWN):
        raise ConfigError("is this package itself, whose names need no plugin; leave it out")
    entry = next((entry for entry in entry_points(group=GROUP) if entry.name == given), None)
    return _of_entry(entry) if entry is not None else of_module(given, given)


def is_in(name: str, module: str) -> bool:
    """Whether a module is this one or a part of it."""
    return name == module or name.startswith(f"{module}.")


# files ---------------------------------------------------------------------------------------------------------------


def _of_path(given: str, path: Path) -> Plugin:
    if path.is_dir():
        if not (path / "__init__.py").is_file():
            raise ConfigError("is a folder without __init__.py; give a file in it, or put an __init__.py there")
        files = [(str(part.relative_to(path)), part) for part in sorted(path.rglob("*.py"))]
    elif path.is_file():
        files = [("", path)]
    else:
        why = "is a link to nothing; correct the link" if path.is_symlink() else f"no such file{_near(path)}"
        raise ConfigError(why)
    if sum(part.stat().st_size for _, part in files) > LARGEST_BYTES:
        raise ConfigError(f"has more than {LARGEST_BYTES >> 20} MiB of Python; install it as a package instead")
    texts = tuple((name, _text(part)) for name, part in files)
    faults = [fault for (name, text), (_, part) in zip(texts, files, strict=True) for fault in _syntax(part, text)]
    if faults:
        raise ConfigError(faults)
    digest = _digest(texts)
    stem = re.sub(r"\W", "_", path.resolve().name if path.is_dir() else path.stem)
    return Plugin(given, f"{PREFIX}{stem}_{digest[:12]}", digest, texts, str(path.resolve()))


def _near(path: Path) -> str:
    beside = [file.name for file in path.parent.glob("*.py")] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, beside, n=1, cutoff=0.5)
    return f"; did you mean {path.with_name(near[0])}?" if near else "; give the path of a .py file, or of a folder"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise ConfigError(f"{path.name} cannot be read ({reason}); save it as UTF-8") from None


def _syntax(path: Path, text: str) -> Iterator[str]:
    try:
        with warnings.catch_warnings():
            # The import says them again.
            warnings.simplefilter("ignore")
            compile(text, path.name, "exec", dont_inherit=True)
    except SyntaxError as error:
        line = textwrap.shorten(error.text or "", LONGEST_LINE, placeholder=" ...")
        place = f"{path.name}, line {error.lineno}" if error.lineno else path.name
        yield f"{place}: {error.msg}{f': {line}' if line else ''}; correct {'the line' if error.lineno else 'it'}"
    except (ValueError, RecursionError, MemoryError) as error:
        yield f"{path.name}: {str(error) or 'it is nested too deeply'}; it is no Python text"


def _digest(parts: Iterable[tuple[str, str]]) -> str:
    return hashlib.blake2b(json.dumps(list(parts)).encode(), digest_size=16).hexdigest()


# installed modules ---------------------------------------------------------------------------------------------------


def _of_entry(entry: EntryPoint) -> Plugin:
    return of_module(entry.name, entry.module, _package(entry))


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "an unknown package"


def of_module(given: str, module: str, distribution: str = "") -> Plugin:
    """An installed module as a plugin; its digest is over the outermost package that it is in.

    Raises:
        ConfigError: there is no such module.
    """
    spec = _outermost(_spec(module, distribution), module)
    sources, origin = tuple(_hashed(spec)), Path(spec.origin or "")
    path = origin.parent if spec.submodule_search_locations else origin
    return Plugin(given, module, _digest(sources), path=str(path), distribution=distribution)


def _spec(module: str, distribution: str = "") -> ModuleSpec:
    try:
        spec = importlib.util.find_spec(module)
    except Exception as error:  # looking for a part of a package imports the package
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{module} cannot be looked for ({reason}); {_remedy(distribution)}") from None
    if spec is None:
        raise ConfigError(f"there is no module {module}; {_remedy(distribution)}")
    return spec


def _remedy(distribution: str) -> str:
    if distribution:
        return f"install {distribution.split()[0]} again, or remove it"
    return "give a file that ends with .py, or install the module where this command runs"


def _outermost(spec: ModuleSpec, module: str) -> ModuleSpec:
    """The outermost package that holds the module, folders without ``__init__.py`` aside; else the module."""
    parts = module.split(".")
    outer = (_spec(".".join(parts[:length])) for length in range(1, len(parts)))
    return next((found for found in outer if found.origin is not None and found.submodule_search_locations), spec)


def _hashed(spec: ModuleSpec) -> Iterator[tuple[str, str]]:
    """Names and digests of a module's source files."""
    origin = Path(spec.origin or "")
    files = sorted(origin.parent.rglob("*.py")) if spec.submodule_search_locations and spec.origin else [origin]
    for file in files:
        if file.is_file():
            content = hashlib.blake2b(file.read_bytes(), digest_size=16)
            yield str(file.relative_to(origin.parent)), content.hexdigest()
