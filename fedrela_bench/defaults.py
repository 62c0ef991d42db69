"""Defaults per dataset and the one precedence by which a configuration is put together.

From weakest to strongest: built-in values, dataset defaults (of the size profile), the ``--config`` file, named flags
(``--dataset``, ``--algorithm``, ``--seed``), dotted overrides (``--training.lr 0.01``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedrela_bench.checks import dotted_values, merge_faults, relabel_notes, value_faults
from fedrela_bench.config import AUTHOR_PRESET, TrialConfig, field_names, parse
from fedrela_bench.errors import ConfigError
from fedrela_bench.faults import unknown_name
from fedrela_bench.nested import Json, deep_merge, set_dotted
from fedrela_bench.recipes import ETF_FAMILY, SIZES, Size, dataset_defaults

__all__ = ["ETF_FAMILY", "SIZES", "Resolved", "Size", "dataset_defaults", "resolve", "to_yaml", "unknown_field"]


@dataclass(frozen=True)
class Resolved:
    """A configuration and where it came from."""

    config: TrialConfig
    size: Size
    notes: tuple[str, ...]
    """One line per layer that set something, weakest first; then what the relabelling does unexpectedly."""


@dataclass(frozen=True)
class _Layer:
    """One source of values, and how to name a place in it."""

    label: str
    values: Json
    places: Mapping[str, str] = field(default_factory=dict)

    def place(self, dotted: str) -> str:
        name = dotted
        while name and name not in self.places:
            name = name.rpartition(".")[0]
        return self.places.get(name, self.label)


def resolve(
    dataset: str | None = None,
    algorithm: str | None = None,
    size: Size | None = None,
    config_file: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    seed: int | None = None,
    fixed: Mapping[str, Any] | None = None,
    fixed_by: str = "search space",
) -> Resolved:
    """Put a configuration together by the precedence that this module states.

    Args:
        dataset: a name such as ``cifar100_lt``; ``digits_lt`` where no layer names a source.
        algorithm: the base algorithm.
        size: which dataset defaults; None is `cpu` (a caller that sees a GPU passes `paper`).
        config_file: YAML of (part of) a `TrialConfig`, such as `to_yaml` writes.
        overrides: dotted names to values.
        seed: the run's seed.
        fixed: dotted names to values that a search space or report spec sets, weaker than the file.
        fixed_by: which of them, for messages.

    Raises:
        ConfigError: every fault of every layer in one message, with its place and its remedy.
    """
    faults: list[str] = []
    given = list(_dotted_layer(fixed_by, fixed or {}, "", faults))
    given += _file_and_flags(config_file, dataset, algorithm, seed, faults)
    given += _dotted_layer("dotted overrides", overrides or {}, "--", faults)
    chosen: Size = size or "cpu"
    merged = _merge([layer.values for layer in given])
    named = _names(merged)
    defaults = dataset_defaults(*named, chosen, merged.get("data", {}).get("partition"))
    defaults["data"] |= {"source": named[0], "profile": named[1]}
    values = _merge([defaults, *(layer.values for layer in given)])
    config = _validated(values, given, faults)
    used = _defaults_used(defaults, given)
    return Resolved(config, chosen, tuple(_notes(config, named, chosen, given, used)))


def _names(values: Json) -> tuple[str, str, str]:
    """Source, profile and base algorithm that the given layers name, or their defaults."""
    data, federation = values.get("data", {}), values.get("federation", {})
    source = str(data.get("source", "digits"))
    profile = str(data.get("profile", "balanced" if ":" in source else "lt"))
    return source, profile, str(federation.get("algorithm", "fedavg"))


def to_yaml(config: TrialConfig) -> str:
    """Every field of a configuration as YAML that ``--config`` reads back to an equal one."""
    from fedrela_bench.yaml_io import dump_yaml

    return dump_yaml(config.model_dump(mode="json"))


def _dotted_layer(label: str, given: Mapping[str, Any], prefix: str, faults: list[str]) -> Iterator[_Layer]:
    values: Json = {}
    for dotted, value in given.items():
        set_dotted(values, dotted, value)
    places = {dotted: f"{prefix}{dotted}" if prefix else label for dotted in given}
    if values:
        yield _known_only(_Layer(label, values, places), faults)


def _file_and_flags(
    config_file: Path | None, dataset: str | None, algorithm: str | None, seed: int | None, faults: list[str]
) -> Iterator[_Layer]:
    """The file's layer, then the flags'; what is wrong in them goes to `faults` and is left out."""
    for layer in (_file_layer(config_file, faults), _flag_layer(dataset, algorithm, seed, faults)):
        if layer is not None:
            yield _known_only(layer, faults)


def _file_layer(path: Path | None, faults: list[str]) -> _Layer | None:
    from fedrela_bench.yaml_io import load_mapping

    if path is None:
        return None
    try:
        document = load_mapping(path, "a configuration")
    except ConfigError as error:
        faults += error.faults
        return None
    places = {dotted: document.where(dotted) for dotted in document.lines}
    return _Layer(str(path), document.value, places)


def _flag_layer(dataset: str | None, algorithm: str | None, seed: int | None, faults: list[str]) -> _Layer | None:
    values: Json = {}
    places = {"data": "--dataset"}
    if dataset is not None:
        values["data"] = _dataset_values(dataset, faults)
    if algorithm is not None:
        values["federation"] = {"algorithm": algorithm}
        places["federation.algorithm"] = "--algorithm"
    if seed is not None:
        values["seed"] = seed
        places["seed"] = "--seed"
    return _Layer("named flags", values, places) if values else None


def _dataset_values(dataset: str, faults: list[str]) -> Json:
    from fedrela_bench.data.names import parse_dataset_name

    try:
        source, profile = parse_dataset_name(dataset)
    except ConfigError as error:
        faults += error.faults
        return {}
    return {"source": source} if profile is None else {"source": source, "profile": profile}


def _known_only(layer: _Layer, faults: list[str]) -> _Layer:
    """The layer without names that do not exist; those become faults that say where they stand."""
    names = field_names()
    sections = {name.split(".")[0] for name in names if "." in name}
    kept: Json = {}
    for top, value in layer.values.items():
        if top in names and "." in top:
            section, _, last = top.rpartition(".")
            faults.append(f"{top} ({layer.place(top)}): write it as {last} inside {section}, or as --{top} VALUE")
        elif top in names:
            kept[top] = value
        elif top not in sections:
            faults.append(_unknown(str(top), layer, names))
        elif not isinstance(value, Mapping):
            faults.append(f"{top} = {value!r} ({layer.place(top)}): must be a mapping of its fields to values")
        else:
            inside = {name: item for name, item in value.items() if f"{top}.{name}" in names}
            faults += [_unknown(f"{top}.{name}", layer, names) for name in value if name not in inside]
            kept[top] = inside
    return _Layer(layer.label, kept, layer.places)


def _unknown(dotted: str, layer: _Layer, names: list[str]) -> str:
    place = layer.place(dotted)
    return unknown_field(place if place == f"--{dotted}" else f"{dotted} ({place})", dotted, names)


def unknown_field(shown: str, dotted: str, names: list[str]) -> str:
    """The message for a configuration field that does not exist, with the nearest dotted name in reach."""
    section, _, last = dotted.rpartition(".")
    same_end = [name for name in names if name.rpartition(".")[2] == last]
    if same_end:
        return f"unknown field {shown}; did you mean {same_end[0]}?"
    same_section = [name for name in names if section and name.startswith(f"{section}.")]
    sections = sorted({name.split(".")[0] for name in names})
    return unknown_name("field", shown, dotted, same_section or sections)


def _merge(layers: list[Json]) -> Json:
    """Later layers win; one that names `relabel.preset` also clears what weaker ones say about the preset's fields."""
    merged: Json = {}
    for layer in layers:
        relabel = merged.get("relabel")
        if "preset" in layer.get("relabel", {}) and relabel:
            merged["relabel"] = {name: value for name, value in relabel.items() if name not in AUTHOR_PRESET}
        merged = deep_merge(merged, layer)
    return merged


def _validated(values: Json, layers: list[_Layer], faults: list[str]) -> TrialConfig:
    own = value_faults(values)
    try:
        config = parse(values)
    except ConfigError as error:
        found = merge_faults(error.faults, own)
        raise ConfigError([*faults, *(_with_place(fault, layers) for fault in found)]) from None
    faults += [_with_place(fault, layers) for _, fault in own]
    if faults:
        raise ConfigError(faults)
    return config


def _with_place(fault: str, layers: list[_Layer]) -> str:
    """Say which layer the faulty value comes from, where the fault names a field."""
    found = re.search(r"\b(?:data|federation|training|relabel|evaluation)\.[a-z_.]*[a-z_]|^seed\b", fault)
    if not found:
        return fault
    for layer in reversed(layers):
        if found[0] in dotted_values(layer.values):
            place = layer.place(found[0])
            return fault if place == f"--{found[0]}" else f"{place}: {fault}"
    return fault


def _defaults_used(defaults: Json, layers: list[_Layer]) -> list[str]:
    leaves = [name for name, value in dotted_values(defaults).items() if not isinstance(value, Mapping)]
    given = {name for layer in layers for name in dotted_values(layer.values)}
    return [name for name in leaves if name not in given and name not in ("data.source", "data.profile")]


def _notes(
    config: TrialConfig, named: tuple[str, str, str], size: Size, layers: list[_Layer], used: list[str]
) -> Iterator[str]:
    source, profile, algorithm = named
    if used:
        yield f"{size} defaults of {source}_{profile} for {algorithm}: {len(used)} fields"
    else:
        yield f"{size} defaults not used: every one of their fields is given"
    for layer in layers:
        names = [
            name for name, value in dotted_values(layer.values).items() if not isinstance(value, Mapping) or not value
        ]
        shown = f"{len(names)} fields" if len(names) > 6 else ", ".join(names)
        yield f"{layer.label}: {shown}"
    yield from (f"note: {note}" for note in relabel_notes(config))
