"""What is wrong with values and names, in sentences with their remedies."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

PLUGGABLE = ("algorithm", "model", "relabeler", "schedule", "relabeler or schedule")
"""Kinds of names that plugins bring."""
OWN = " (one of your own: --plugin FILE)"


def faults_of(error: ValidationError, model: type[BaseModel], prefix: str = "") -> list[str]:
    """One sentence per fault of a pydantic error, with the field's dotted name and its remedy."""
    faults: dict[str, str] = {}
    for item in error.errors():
        location = [str(part) for part in item["loc"] if not str(part).startswith(("function-", "literal[", "tuple["))]
        names = [part for part in location if part not in ("constrained-int", "constrained-float", "nullable", "int")]
        dotted = prefix + ".".join(names)
        text = _fault_text(dotted, item["type"], item["msg"], item.get("input"), _known_names(model, names[:-1]))
        faults[dotted] = f"{faults[dotted]}, or {item['msg']}" if dotted in faults else text
    return list(faults.values())


def option_faults(model: type[BaseModel], options: Mapping[str, Any], prefix: str, owner: str) -> list[str]:
    """All faults of the options of something that has a name, each with its remedy; empty when they are right.

    Args:
        model: of the options.
        options: as they were given.
        prefix: of their fields, such as ``federation.options.``.
        owner: name of what they belong to.
    """
    try:
        model.model_validate(dict(options))
    except ValidationError as error:
        return [f"{fault} (options of {owner})" for fault in faults_of(error, model, prefix)]
    return []


def _fault_text(dotted: str, kind: str, message: str, given: object, known: list[str]) -> str:
    if kind == "extra_forbidden":
        return unknown_name("field", dotted, dotted.rsplit(".", 1)[-1], known)
    reason = message.removeprefix("Value error, ")
    return f"{dotted or 'configuration'} = {given!r}: {reason}" if dotted else reason


def unknown_name(kind: str, shown: str, name: str, known: Iterable[str]) -> str:
    """The message for a name that does not exist, with the nearest valid ones."""
    choices = sorted(known)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"valid: {', '.join(choices)}"
    return f"unknown {kind} {shown}; {hint}{OWN if kind in PLUGGABLE else ''}"


def _known_names(model: type[BaseModel], path: list[str]) -> list[str]:
    current: type[BaseModel] = model
    for name in path:
        field = current.model_fields.get(name)
        if field is None or not isinstance(field.annotation, type) or not issubclass(field.annotation, BaseModel):
            return []
        current = field.annotation
    return list(current.model_fields)
