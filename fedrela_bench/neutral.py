"""Fields of a configuration that came later than results which are still in use.

A result is found again by a key over its configuration. A field that is added to the configuration would change every
key, and make studies of before look like other ones, though nothing about them has changed. So a field that comes
later names the value at which everything is as it was before it existed, beside its type::

    order: Annotated[Literal["size", "id"], Neutral("size")] = "size"

At that value the field is left out of whatever decides a key; a configuration that was written without the field is
read as having it. The value is said apart from the default, since it must stay when the default changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo


@dataclass(frozen=True)
class Neutral:
    """Beside a field's type: the value, as JSON has it, at which no bit of a result differs from before the field."""

    value: Any


def deciding(section: BaseModel) -> dict[str, Any]:
    """The JSON values of a configuration, or of a section of it, by which its results are known."""
    return without_neutral(type(section), section.model_dump(mode="json"))


def without_neutral(model: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """Values without the fields that are neutral, and without sections that only such fields were in."""
    kept: dict[str, Any] = {}
    for name, value in values.items():
        inner, neutral = _of(model.model_fields.get(name))
        if inner is not None and isinstance(value, Mapping):
            value = without_neutral(inner, value)
            if not value:
                continue
        if neutral is None or not _same(value, neutral.value):
            kept[name] = value
    return kept


def with_neutral(model: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """Values with the neutral ones of fields that came later than these were written."""
    filled = dict(values)
    for name, field in model.model_fields.items():
        inner, neutral = _of(field)
        if inner is not None and isinstance(filled.get(name, {}), Mapping):
            section = with_neutral(inner, filled.get(name, {}))
            if section or name in filled:
                filled[name] = section
        elif neutral is not None:
            filled.setdefault(name, neutral.value)
    return filled


def neutral_values(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name and neutral value of every field that came later."""
    for name, field in model.model_fields.items():
        inner, neutral = _of(field)
        if inner is not None:
            yield from neutral_values(inner, f"{prefix}{name}.")
        elif neutral is not None:
            yield prefix + name, neutral.value


def _of(field: FieldInfo | None) -> tuple[type[BaseModel] | None, Neutral | None]:
    """The section that a field is, if it is one, and what stands beside its type."""
    if field is None:
        return None, None
    kind = field.annotation
    inner = kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None
    return inner, next((item for item in field.metadata if isinstance(item, Neutral)), None)


def _same(left: object, right: object) -> bool:
    """Equal as JSON: 1 is 1.0, but True is not 1."""
    return isinstance(left, bool) == isinstance(right, bool) and left == right
