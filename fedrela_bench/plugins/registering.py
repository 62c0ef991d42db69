"""What every class decorator that adds a name does: check the class, refuse a taken name, note where it is from."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any

from fedrela_bench.plugins.notes import note, refuse, remark

PACKAGE = __name__.partition(".")[0]
NEAR = 0.8
"""How alike two names are, from 0 to 1, that one may be a slip of the other."""
RESERVED = ("auto", "true", "false", "null", "yes", "no", "on", "off")
"""Words that YAML or a configuration reads as something else than a name."""


def enter(
    kind: Any,
    what: str,
    base: type,
    registry: MutableMapping[str, Any],
    decorator: str,
    more: Callable[[Any], Iterable[str]] = lambda kind: (),
) -> None:
    """Register a class under its `name`.

    Args:
        kind: what the decorator was given.
        what: such as algorithm.
        base: the class that it must derive from.
        registry: from names to classes.
        decorator: its name, for messages.
        more: further faults of a class that derives from `base`.

    Raises:
        ConfigError: it is no such class, does not say name, citation and purpose, or the name is taken by another
            class. While a plugin is imported, such faults are collected with its others.
    """
    faults = _foreign(kind, base, decorator) or [
        *_abstract(kind, what),
        *(_unsaid(kind, what) or name_faults(kind.name, what)),
        *more(kind),
    ]
    taken = None if faults else registry.get(kind.name)
    if taken is not None and not _is_again(taken, kind):
        faults.append(f"{what} name {kind.name!r} is taken by {taken.__qualname__}; choose another name")
    if faults:
        refuse(faults)
        return
    registry[kind.name] = kind
    note(what, registry, kind.name)
    remark([f"{what} class {kind.__qualname__}: {text}" for text in _misspelt(kind)])


def is_text(value: object) -> bool:
    """Whether a fact of a class says something."""
    return isinstance(value, str) and bool(value.strip())


def name_faults(name: str, what: str) -> list[str]:
    """What is wrong with a name that is to stand on command lines, in YAML and in names of folders."""
    if not re.fullmatch(r"[A-Za-z][\w.-]*", name):
        return [f"{what} name {name!r}: write it in letters, digits, _ . and -, a letter first (auto is taken)"]
    if name.lower() in RESERVED:
        return [f"{what} name {name!r} means something else in configurations; choose another name"]
    return []


def _is_again(taken: type, kind: type) -> bool:
    """Whether a class is the one that has the name, from another run of the same lines."""
    return (taken.__module__, taken.__qualname__) == (kind.__module__, kind.__qualname__)


def _misspelt(kind: type) -> Iterator[str]:
    """Public methods of one's own that no ancestor has, and that are nearly called like a hook that is left as it was.

    Helpers may have any name, so that this can never be more than a remark.
    """
    home = kind.__module__.partition(".")[0]
    if home == PACKAGE:
        return
    own, hooks = set[str](), set[str]()
    for part in kind.__mro__:
        names = own if part.__module__.partition(".")[0] == home else hooks
        names.update(name for name, value in vars(part).items() if not name.startswith("_") and _is_method(value))
    for name in sorted(own - hooks):
        near = difflib.get_close_matches(name, hooks - own, n=1, cutoff=NEAR)
        if near:
            yield f"{name} is no hook, so nothing calls it; did you mean {near[0]}? (a helper can be called _{name})"


def _is_method(value: object) -> bool:
    plain = callable(value) and not isinstance(value, type)
    return plain or isinstance(value, property | classmethod | staticmethod)


def _foreign(kind: Any, base: type, decorator: str) -> list[str]:
    if isinstance(kind, type) and issubclass(kind, base):
        return []
    shown = f"class {kind.__qualname__}" if isinstance(kind, type) else f"a {type(kind).__name__}"
    module = base.__module__.rpartition(".")[0]
    return [f"{decorator} is for classes that derive from {module}.{base.__name__}, not for {shown}"]


def _abstract(kind: type, what: str) -> list[str]:
    lacking = sorted(getattr(kind, "__abstractmethods__", ()))
    return [f"{what} class {kind.__qualname__} does not define {' and '.join(lacking)}; write it"] if lacking else []


def _unsaid(kind: type, what: str) -> list[str]:
    wrong = [name for name in ("name", "citation", "purpose") if not is_text(getattr(kind, name, None))]
    if not wrong:
        return []
    return [
        f"{what} class {kind.__qualname__} has no {' and no '.join(wrong)}; add class attributes such as "
        'name: ClassVar[str] = "mine"'
    ]
