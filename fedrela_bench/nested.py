"""Nested plain values: one spelling of them, their digest, fields by dotted name, layers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]


def canonical_json(value: object) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: object) -> str:
    """32 hexadecimal digits of BLAKE2b over the canonical JSON."""
    return hashlib.blake2b(canonical_json(value).encode(), digest_size=16).hexdigest()


def set_dotted(values: Json, dotted: str, value: object) -> None:
    """Set ``values["a"]["b"]`` for ``"a.b"``, creating the levels between."""
    *parents, last = dotted.split(".")
    for name in parents:
        child = values.get(name)
        if not isinstance(child, dict):
            child = {}
            values[name] = child
        values = child
    values[last] = value


def deep_merge(*layers: Mapping[str, Any]) -> Json:
    """Later layers win; mappings are merged, everything else is replaced."""
    merged: Json = {}
    for layer in layers:
        for name, value in layer.items():
            both = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
            merged[name] = deep_merge(merged[name], value) if both else value
    return merged
