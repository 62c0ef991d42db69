"""From the command line of `tune` to its space and the configurations its trials start from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrela_bench.checks import relabel_notes
from fedrela_bench.cli.common import attempt, contradictions
from fedrela_bench.config import TrialConfig
from fedrela_bench.defaults import Size, resolve
from fedrela_bench.errors import ConfigError
from fedrela_bench.faults import unknown_name
from fedrela_bench.plugins import origin_of, space_of

if TYPE_CHECKING:
    from fedrela_bench.study.request import TuneRequest
    from fedrela_bench.study.space import Space

SELECTION = "evaluation.selection"
SELECTIONS = ("test_slice", "oracle")


@dataclass(frozen=True)
class Layers:
    """What a command line says about every configuration of a study."""

    dataset: str | None
    size: Size
    file: Path | None
    overrides: Mapping[str, Any]

    def resolve(self, algorithm: str | None = None, fixed: Mapping[str, Any] | None = None) -> TrialConfig:
        """The configuration of one algorithm."""
        return resolve(self.dataset, algorithm, self.size, self.file, self.overrides, fixed=fixed).config


def overrides_with(overrides: Mapping[str, Any], selection: str | None, faults: list[str]) -> dict[str, Any]:
    """The dotted overrides with ``--selection``; what cannot be meant goes to `faults`."""
    given = overrides.get(SELECTION)
    if selection is not None and selection not in SELECTIONS:
        faults.append(f"--selection {selection}: unknown; choose test_slice (honest) or oracle (the paper's)")
    elif selection is not None and given is not None and given != selection:
        faults.append(f"--selection {selection} and --{SELECTION} {given} contradict each other; keep one")
    if given == "none":
        faults.append(f"--{SELECTION} none: a study needs images that select; give test_slice or oracle")
    if "federation.algorithm" in overrides:
        faults.append("--federation.algorithm: a study has one or several base algorithms; give --algorithm")
    known = {SELECTION: selection} if selection in SELECTIONS else {}
    return {**known, **overrides}


def common_ground(
    layers: Layers, space: str | None, algorithms: list[str] | None, faults: list[str], base_only: bool = False
) -> tuple[Space, dict[str, TrialConfig], str]:
    """The space, one configuration per base algorithm, and the dataset's name.

    What is wrong goes to `faults`; in its place stand an empty space and no configurations.
    """
    from fedrela_bench.data.names import dataset_name
    from fedrela_bench.study.space import Space, load_space

    faults += contradictions(layers.dataset, None, layers.overrides)
    first = attempt(faults, None, layers.resolve)
    name = "unknown" if first is None else dataset_name(first.data.source, first.data.profile)
    listed = None if algorithms is None else _listed(algorithms)
    known = space or (None if first is None else name)
    if base_only:
        faults += [f"--{field}: --stage base has no relabelling; leave it out" for field in _relabelling(layers)]
        known = space or attempt(faults, None, lambda: _own_space(listed or []))
    chosen = None if known is None else attempt(faults, None, lambda: load_space(known, fallback=space is None))
    if chosen is None:
        return Space("", (), ()), {}, name
    if listed is not None:
        faults += _foreign_options(chosen, listed)
        chosen = attempt(faults, chosen, partial(chosen.with_algorithms, listed))
    faults += _searched_anyway(chosen, layers.overrides)
    made: dict[str, TrialConfig | None] = {}
    for algorithm in chosen.algorithms:
        make = partial(layers.resolve, algorithm, chosen.fixed)
        made[algorithm] = attempt(faults, None, make)
    return chosen, {name: base for name, base in made.items() if base is not None}, name


def _listed(algorithms: Sequence[str]) -> list[str]:
    return [part.strip() for item in algorithms for part in item.split(",") if part.strip()]


def _relabelling(layers: Layers) -> list[str]:
    return [name for name in layers.overrides if name.startswith("relabel.")]


def _own_space(listed: Sequence[str]) -> str:
    """The name of the space in which ``--stage base`` tunes, where none is given: that of the one algorithm asked for.

    Raises:
        ConfigError: none or several are asked for, or no space ships for it.
    """
    from fedrela_bench.algorithms import ALGORITHMS
    from fedrela_bench.study.spacefind import algorithm_space, algorithm_spaces

    if len(set(listed)) != 1:
        names = ", ".join(algorithm_spaces())
        raise ConfigError(
            f"--stage base tunes an algorithm's own options: give --algorithm with one of {names}, or --space with one "
            "of these names or a file"
        )
    if listed[0] not in ALGORITHMS:
        raise ConfigError(unknown_name("algorithm", f"--algorithm {listed[0]}", listed[0], ALGORITHMS))
    if algorithm_space(listed[0]) is None and space_of(listed[0]) is None:
        remedy = "write one and give it with --space FILE"
        if origin_of("algorithm", listed[0]):
            remedy += ", or give the class a search_space"
        raise ConfigError(f"no space ships for algorithm {listed[0]}; {remedy}")
    return listed[0]


def _foreign_options(space: Space, listed: Sequence[str]) -> Iterator[str]:
    """Algorithms that would be tuned in another algorithm's space."""
    from fedrela_bench.study.spacefind import algorithm_space

    own = algorithm_space(space.name)
    shipped = own is not None and bool(space.path) and own.resolve() == Path(space.path).resolve()
    if not shipped and (space_of(space.name) is None or Path(space.path).exists()):
        return
    for name in dict.fromkeys(listed):
        if name not in space.algorithms:
            theirs = (
                f"give --space {name} instead"
                if algorithm_space(name) or space_of(name)
                else "give a --space FILE for it"
            )
            yield (
                f"--space {space.name} searches the options of {', '.join(space.algorithms)}, not those of --algorithm "
                f"{name}; {theirs}, or leave --algorithm out"
            )


def request_faults(request: TuneRequest) -> list[str]:
    """What is wrong with a request whose configurations are not all there."""
    from fedrela_bench.study.cluster import pick_device

    there = tuple(request.bases)
    objectives = request.space.objectives if there else None
    request = replace(request, space=replace(request.space, algorithms=there, objectives=objectives))
    faults = request.faults()
    attempt(faults, None, lambda: pick_device(request))
    return faults


def study_notes(layers: Layers, request: TuneRequest) -> list[str]:
    """What a user may not expect: settings that the search replaces, relabelling that cannot happen."""
    searched = [parameter.name for parameter in request.space.parameters]
    replaced = [name for name in _names_in(layers.file) if name in searched]
    notes = [f"{layers.file}: {', '.join(replaced)} not used, the space searches them"] if replaced else []
    unselected = any(base.evaluation.selection == "none" for base in request.bases.values())
    if unselected and SELECTION in _names_in(layers.file):
        notes.append(f"{layers.file}: {SELECTION} = none becomes test_slice, since a study selects")
    for base in request.bases.values():
        notes += relabel_notes(_most_relabelled(request.space, base))
    return list(dict.fromkeys(notes))


def _searched_anyway(space: Space, overrides: Mapping[str, Any]) -> Iterator[str]:
    for parameter in space.parameters:
        if parameter.name in overrides:
            yield (
                f"--{parameter.name} {overrides[parameter.name]}: the space searches it ({parameter.text()}); leave it "
                "out, or give a --space without it"
            )


def _names_in(file: Path | None) -> list[str]:
    from fedrela_bench.yaml_io import load_mapping

    return list(load_mapping(file, "a configuration").lines) if file is not None else []


def _most_relabelled(space: Space, base: TrialConfig) -> TrialConfig:
    """A configuration of the space with the largest budget and the earliest start."""
    ends = {parameter.name: parameter.grid() or parameter.values for parameter in space.parameters}
    taus, starts = ends.get("relabel.tau"), ends.get("relabel.start")
    config = base.replace({"relabel.tau": max(taus)}) if taus else base
    variants = [config.replace({"relabel.start": start}) for start in starts] if starts else [config]
    return min(variants, key=lambda variant: variant.relabel_round)
