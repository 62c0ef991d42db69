"""YAML in and out by the rules of YAML 1.2: 1e-4 is a number, ``no`` and 2024-01-01 are text, a key stands once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fedrela_bench.errors import ConfigError

_INT = re.compile(r"^[-+]?[0-9]+$|^0x[0-9a-fA-F]+$|^0o[0-7]+$")
_FLOAT = re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$")
_BOOL = re.compile(r"^(true|True|TRUE|false|False|FALSE)$")
_NULL = re.compile(r"^(null|Null|NULL|~|)$")


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2's core schema."""


class _Dumper(yaml.SafeDumper):
    """SafeDumper that quotes exactly the text that `_Loader` would read as something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _class in (_Loader, _Dumper):
    _class.yaml_implicit_resolvers = {}
    _class.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"^<<$"), ["<"])
    _class.add_implicit_resolver("tag:yaml.org,2002:null", _NULL, ["~", "n", "N", ""])
    _class.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOL, list("tTfF"))
    _class.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
    _class.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


def _construct_int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node)
    return int(text, 0) if text.startswith(("0x", "0o")) else int(text)


def _construct_float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    text = loader.construct_scalar(node)
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


def _represent_float(dumper: yaml.SafeDumper, value: float) -> yaml.ScalarNode:
    text = {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(repr(value), repr(value))
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)
_Dumper.add_representer(float, _represent_float)


@dataclass(frozen=True)
class Document:
    """A YAML file's value and the line on which each dotted name stands."""

    path: Path
    value: Any
    lines: dict[str, int]

    def where(self, dotted: str) -> str:
        """``FILE, line N`` of a dotted name, or of its nearest parent that the file has."""
        name = dotted
        while name and name not in self.lines:
            name = name.rpartition(".")[0]
        return f"{self.path}, line {self.lines[name]}" if name else str(self.path)


def load_document(path: Path) -> Document:
    """Read one YAML file with the place of every key.

    Raises:
        ConfigError: unreadable file, invalid YAML, or keys given twice (all of them), with file and line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read ({reason}); give a readable YAML file") from None
    return _parse_document(text, path)


def load_yaml(path: Path) -> Any:
    """The value of one YAML file; faults as in `load_document`."""
    return load_document(path).value


def parse_yaml(text: str, name: str) -> Any:
    """The value of a YAML text that its user knows by a name; faults as in `load_document`."""
    return _parse_document(text, Path(name)).value


def load_mapping(path: Path, what: str) -> Document:
    """A YAML file whose top level maps names to values.

    Args:
        path: the file.
        what: what the file should be, for the message, such as ``"a configuration"``.

    Raises:
        ConfigError: as `load_document`, or another kind of top level.
    """
    document = load_document(path)
    if document.value is None:
        return Document(path, {}, {})
    if not isinstance(document.value, dict):
        kind = type(document.value).__name__
        raise ConfigError(f"{path}: {what} must be a mapping of names to values at its top level, this is a {kind}")
    return document


def parse_scalar(text: str) -> Any:
    """One value given on the command line: numbers, true/false, null, and [lists] or {mappings} in YAML's flow style.

    Raises:
        ConfigError: a list, mapping or quoted text that is not closed.
    """
    if text[:1] in tuple("[{\"'"):
        return _parse_document(text, None).value
    plain = any(pattern.match(text) for pattern in (_INT, _FLOAT, _BOOL, _NULL))
    return yaml.load(text, _Loader) if plain else text


def dump_yaml(value: Any) -> str:
    """Block-style YAML, names in the given order, that `load_yaml` reads back to an equal value."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=120)


def _parse_document(text: str, path: Path | None) -> Document:
    shown = str(path) if path else f"{text!r}"
    try:
        node = yaml.compose(text, _Loader)
        lines: dict[str, int] = {}
        faults = list(_endless(node, shown, {}))
        faults += [] if node is None else list(_walk(node, "", shown, lines, set()))
        if faults:
            raise ConfigError(faults)
        return Document(path or Path(), yaml.load(text, _Loader), lines)
    except yaml.YAMLError as error:
        raise ConfigError(_syntax_fault(error, shown)) from None
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{shown}: not a value this program can use ({error})") from None


def _walk(node: yaml.Node, prefix: str, shown: str, lines: dict[str, int], seen: set[int]) -> Iterator[str]:
    """Fill `lines` with the place of every dotted name; yield one fault per key that stands twice."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _walk(item, prefix, shown, lines, seen)
    if not isinstance(node, yaml.MappingNode):
        return
    first: dict[str, int] = {}
    for key, value in node.value:
        name, line = str(key.value), key.start_mark.line + 1
        if name in first:
            yield f"{shown}, line {line}: {prefix}{name} is given twice (first in line {first[name]}); keep one"
        first.setdefault(name, line)
        lines.setdefault(prefix + name, line)
        yield from _walk(value, f"{prefix}{name}.", shown, lines, seen)


def _endless(node: yaml.Node | None, shown: str, done: dict[int, bool]) -> Iterator[str]:
    """One fault per value that holds an alias of itself; `done` has False for the values that are being read."""
    if not isinstance(node, yaml.CollectionNode) or done.get(id(node)):
        return
    if id(node) in done:
        place = f"{shown}, line {node.start_mark.line + 1}"
        yield f"{place}: the value that begins here holds an alias (*) of itself; write out what the alias stands for"
        return
    done[id(node)] = False
    for child in node.value:
        for part in child if isinstance(child, tuple) else (child,):
            yield from _endless(part, shown, done)
    done[id(node)] = True


def _syntax_fault(error: yaml.YAMLError, shown: str) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "not readable"
    place = f"{shown}, line {mark.line + 1}" if mark is not None else shown
    return f"{place}: not valid YAML ({problem}); check indentation, colons and quotes"
