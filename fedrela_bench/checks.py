"""What is wrong with configuration values, or surprising about them, beyond their types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fedrela_bench.config import FIXED, PUBLISHED, RELABEL_PLUGS, TrialConfig
from fedrela_bench.errors import ConfigError
from fedrela_bench.faults import unknown_name
from fedrela_bench.nested import Json

Fault = tuple[str, str]
"""Dotted name of a field and what is wrong with its value."""


def value_faults(values: Json) -> list[Fault]:
    """Faults that only those find who know the names, or that the types let pass, each with its remedy.

    Args:
        values: nested values of a `TrialConfig`, not validated.
    """
    data = values.get("data", {})
    return [*_source(data), *_minority(data), *_algorithm(values), *_shuffle(values), *_model(values), *_plugs(values)]


def relabel_notes(config: TrialConfig) -> Iterator[str]:
    """What a user may not expect of the relabelling, one sentence each."""
    relabel, rounds, start = config.relabel, config.federation.rounds, config.relabel_round
    if start >= rounds:
        if relabel.tau > 0:
            yield (
                f"relabel.tau = {relabel.tau:g} has no effect: T = {start} of {rounds} rounds; "
                "lower relabel.start to relabel"
            )
    elif relabel.tau == 0 and relabel.post_relabel_lr_scale != 1:
        scale = f"learning rate x {relabel.post_relabel_lr_scale:g} from round {start}"
        yield f"relabel.tau = 0: labels stay; {scale} (the control arm)"
    elif relabel.tau > 0:
        yield from _plug_notes(config)


def idle_note(config: TrialConfig, given: Iterable[str]) -> str | None:
    """That a run does not relabel although its command line says how; None where that is clear.

    Args:
        config: of the run.
        given: dotted names of the fields that the command line gives.
    """
    relabel = config.relabel
    told = [name for name in given if name.startswith("relabel.") and name != "relabel.tau"]
    # With either of these fields a run without relabelling is no plain baseline.
    if not told or relabel.tau > 0 or relabel.post_relabel_lr_scale != 1 or relabel.author_resume:
        return None
    fields = " and ".join(told)
    return f"relabel.tau is 0: nothing is relabelled; give --relabel.tau 0.05 (without it {fields} cannot take effect)"


def _plug_notes(config: TrialConfig) -> Iterator[str]:
    from fedrela_bench.relabelers import is_control
    from fedrela_bench.schedules import build_schedule, schedule_faults

    relabel = config.relabel
    if is_control(relabel.method):
        yield f"relabel.method = {relabel.method}: a control to compare FedReLa with, not FedReLa"
    if relabel.schedule != FIXED and not schedule_faults(relabel.schedule, relabel.schedule_options):
        refreshes = build_schedule(config).refreshes
        if len(refreshes) < 2:
            yield (
                f"relabel.schedule = {relabel.schedule}: labels are set once, at T = {config.relabel_round}; "
                "set relabel.period to relabel again"
            )


def dotted_values(values: Mapping[str, Any], prefix: str = "") -> Json:
    """Nested values by dotted name, the mappings between included."""
    flat: Json = {}
    for name, value in values.items():
        flat[f"{prefix}{name}"] = value
        if isinstance(value, Mapping):
            flat |= dotted_values(value, f"{prefix}{name}.")
    return flat


def merge_faults(parsed: list[str], own: list[Fault]) -> list[str]:
    """The faults of validation and ours; where both speak of one field, ours say it better."""
    names = [name for name, _ in own]

    def is_ours(fault: str) -> bool:
        name = fault.partition(" = ")[0]
        return any(name == ours or name.startswith(f"{ours}.") for ours in names)

    return [*(_section_fault(fault) for fault in parsed if not is_ours(fault)), *(text for _, text in own)]


def _section_fault(fault: str) -> str:
    """A fault of several fields together without the dump of their whole section."""
    found = re.match(rf"({'|'.join(TrialConfig.model_fields)}) = \{{.*\}}: (\w+.*)", fault, re.S)
    return f"{found[1]}.{found[2]}" if found else fault


def _source(data: Json) -> Iterator[Fault]:
    from fedrela_bench.data.names import check_source

    source = data.get("source")
    if isinstance(source, str):
        try:
            check_source(source)
        except ConfigError as error:
            yield "data.source", f"data.source = {source!r}: {error}"


def _minority(data: Json) -> Iterator[Fault]:
    minority = data.get("minority", "even")
    listed: list[Any] = list(minority) if isinstance(minority, list | tuple) else [minority]
    if isinstance(minority, str):
        if minority in ("even", "last"):
            return
        listed = [int(part) if part.strip().isdecimal() else part for part in minority.split(",")]
    ids = all(isinstance(item, int | float) and item >= 0 and float(item).is_integer() for item in listed)
    if not listed or not ids or bool in map(type, listed) or len(set(listed)) < len(listed):
        yield "data.minority", f"data.minority = {minority!r}: give even, last or different class ids such as [0, 2]"


def _algorithm(values: Json) -> Iterator[Fault]:
    """The algorithm, its options, and the posterior that it offers."""
    from fedrela_bench.algorithms import ALGORITHMS, check_algorithm

    algorithm = values.get("federation", {}).get("algorithm", "fedavg")
    options = values.get("federation", {}).get("options", {})
    if not isinstance(algorithm, str) or not isinstance(options, Mapping):
        return
    kind = ALGORITHMS.get(algorithm)
    if kind is not None and not kind.OptionsModel.model_fields:
        for name in options:
            yield (
                f"federation.options.{name}",
                f"unknown field federation.options.{name}; {algorithm} has no options, leave it out",
            )
    else:
        for fault in check_algorithm(algorithm, options):
            found = re.search(r"federation\.(?:options\.)?\w+", fault)
            yield found[0] if found else "federation.algorithm", fault
    head = values.get("relabel", {}).get("posterior_head", "auto")
    if kind is not None and isinstance(head, str) and head not in ("auto", *kind.posterior_heads):
        name = f"relabel.posterior_head = {head!r} of {algorithm}"
        yield "relabel.posterior_head", unknown_name("head", name, head, ("auto", *kind.posterior_heads))


def _plugs(values: Json) -> Iterator[Fault]:
    """The relabeler and the schedule, and their options."""
    from fedrela_bench.relabelers import relabeler_faults
    from fedrela_bench.schedules import schedule_faults

    relabel, faults = values.get("relabel", {}), {"method": relabeler_faults, "schedule": schedule_faults}
    for name, options in RELABEL_PLUGS.items():
        chosen, given = relabel.get(name, PUBLISHED[f"relabel.{name}"]), relabel.get(options, {})
        if isinstance(chosen, str) and isinstance(given, Mapping):
            for fault in faults[name](chosen, given):
                found = re.search(rf"relabel\.(?:{options}\.)?\w+", fault)
                yield found[0] if found else f"relabel.{name}", fault


def _shuffle(values: Json) -> Iterator[Fault]:
    from fedrela_bench.algorithms import ALGORITHMS, Algorithm

    name, shuffle = values.get("federation", {}).get("algorithm", "fedavg"), values.get("training", {}).get("shuffle")
    kind = ALGORITHMS.get(name) if isinstance(name, str) else None
    if shuffle is False and kind is not None and kind.epoch_rows is not Algorithm.epoch_rows:
        yield (
            "training.shuffle",
            f"training.shuffle = False: {name} draws the samples of an epoch; leave it out, or set it to true",
        )


def _model(values: Json) -> Iterator[Fault]:
    from fedrela_bench.models import model_names

    model, known = values.get("training", {}).get("model", "auto"), ["auto", *model_names()]
    if isinstance(model, str) and model not in known:
        yield "training.model", unknown_name("model", f"training.model = {model!r}", model, known)
