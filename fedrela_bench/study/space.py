"""Search spaces: what a study may change, as a picklable define-by-run function over dotted fields of TrialConfig."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from fedrela_bench.config import PUBLISHED, TrialConfig
from fedrela_bench.errors import ConfigError
from fedrela_bench.faults import unknown_name
from fedrela_bench.nested import Json
from fedrela_bench.study.spacefile import load_space, parse_space
from fedrela_bench.study.spacefind import find_space, list_spaces
from fedrela_bench.words import counted

__all__ = ["Parameter", "Space", "find_space", "list_spaces", "load_space", "parse_space"]

Kind = Literal["choice", "uniform", "loguniform", "int"]
ALGORITHM = "algorithm"
MAX_ENUMERATED = 100_000
PAPER_DEFAULT: Json = {"relabel.tau": 0.05, "relabel.start": 0.8, "relabel.period": 0}
"""FedReLa's recommended setting: 5 % of the local samples, once, after 80 % of the rounds."""
BEGIN: Json = {**PAPER_DEFAULT, **PUBLISHED}


@dataclass(frozen=True)
class Parameter:
    """One searched field. `values` are the choices, or the inclusive bounds of a range."""

    name: str
    kind: Kind
    values: tuple[Any, ...]
    step: float | None = None
    when: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    """Other parameters (or ``algorithm``) and the values at which this one is searched at all."""

    def applies(self, point: Mapping[str, Any]) -> bool:
        """Whether this parameter is searched, given the values of those before it."""
        return all(name in point and any(_same(point[name], value) for value in values) for name, values in self.when)

    def grid(self) -> tuple[Any, ...] | None:
        """All values, or None for a continuous range."""
        if self.kind == "choice":
            return self.values
        if self.step is None:
            return None
        low, high = self.values
        return tuple(self.tidy(low + index * self.step) for index in range(int((high - low) / self.step + 1e-9) + 1))

    def suggest(self, trial: Any) -> Any:
        """Ask an Optuna trial for a value; grid values come without the rounding noise of their sum."""
        if self.kind == "choice":
            return trial.suggest_categorical(self.name, list(self.values))
        low, high = self.values
        if self.kind == "int":
            return trial.suggest_int(self.name, low, high, step=int(self.step or 1))
        if self.kind == "loguniform":
            return trial.suggest_float(self.name, low, high, log=True)
        return self.tidy(trial.suggest_float(self.name, low, high, step=self.step))

    def draw(self, rng: np.random.Generator) -> Any:
        """A value drawn uniformly from the grid or range."""
        grid = self.grid()
        if grid is not None:
            return grid[int(rng.integers(len(grid)))]
        low, high = self.values
        if self.kind == "loguniform":
            return float(math.exp(rng.uniform(math.log(low), math.log(high))))
        return float(rng.uniform(low, high))

    def contains(self, value: Any) -> bool:
        """Whether a sampler could return this value."""
        grid = self.grid()
        if grid is None:
            return isinstance(value, int | float) and bool(self.values[0] <= value <= self.values[1])
        return any(_same(value, other) for other in grid)

    def tidy(self, value: Any) -> Any:
        """A value without the rounding noise of low + k * step."""
        if self.kind == "int":
            return int(value)
        return round(value, 10) if self.step and self.kind == "uniform" else value

    def text(self) -> str:
        """The parameter as a user reads it, such as ``relabel.tau: 0.01 to 0.2 in steps of 0.01``."""
        conditions = [f"{name} is {' or '.join(map(str, values))}" for name, values in self.when]
        when = f", when {' and '.join(conditions)}" if conditions else ""
        if self.kind == "choice":
            return f"{self.name}: {', '.join(str(value) for value in self.values)}{when}"
        steps = f" in steps of {self.step:g}" if self.step else " (continuous)"
        return f"{self.name}: {self.values[0]:g} to {self.values[1]:g}{steps}{when}"


@dataclass(frozen=True)
class Space:
    """A search space. Call it with an Optuna trial to get a point: ``{"algorithm": ..., "relabel.tau": ...}``."""

    name: str
    algorithms: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    seeds: tuple[int, ...] = (1,)
    trials: int = 20
    objectives: tuple[str, ...] | None = None
    """None: overall and tail, or overall and minority in a step profile; without tail classes see `survey`."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Dotted settings below the user's own; whoever builds the base configurations applies them."""
    path: str = ""
    header: str = ""

    def __call__(self, trial: Any) -> Json:
        """A point of the space from an Optuna trial: the algorithm and every parameter whose conditions hold."""
        point: Json = {ALGORITHM: self._algorithm(trial)}
        for parameter in self.parameters:
            if parameter.applies(point):
                point[parameter.name] = parameter.suggest(trial)
        return point

    def _algorithm(self, trial: Any) -> str:
        if len(self.algorithms) == 1:
            return self.algorithms[0]
        return str(trial.suggest_categorical(ALGORITHM, list(self.algorithms)))

    def with_algorithms(self, names: Sequence[str]) -> Space:
        """The same space over other base algorithms (the ``--algorithm`` option)."""
        if not names:
            raise ConfigError("a study needs at least one algorithm; give --algorithm NAME")
        return replace(self, algorithms=tuple(dict.fromkeys(names)))

    def size(self) -> int | None:
        """Number of points, or None when a parameter is continuous."""
        if any(parameter.grid() is None for parameter in self.parameters):
            return None
        return sum(self._count(0, {ALGORITHM: algorithm}) for algorithm in self.algorithms)

    def _count(self, index: int, point: Json) -> int:
        if index == len(self.parameters):
            return 1
        parameter = self.parameters[index]
        if not parameter.applies(point):
            return self._count(index + 1, point)
        grid = parameter.grid() or ()
        if any(parameter.name == name for other in self.parameters for name, _ in other.when):
            return sum(self._count(index + 1, {**point, parameter.name: value}) for value in grid)
        return len(grid) * self._count(index + 1, point)

    def config(self, bases: Mapping[str, TrialConfig], point: Mapping[str, Any], seed: int) -> TrialConfig:
        """The trial's configuration: the base of the point's algorithm with the point's fields and a seed."""
        changes = {name: value for name, value in point.items() if name != ALGORITHM}
        return bases[point[ALGORITHM]].replace({**changes, "seed": seed})

    def fork_rounds(self, base: TrialConfig) -> list[int]:
        """Rounds T at which trials fork from the base run, ascending: the rounds to keep snapshots of."""
        rounds = {base.replace({"relabel.start": start}).relabel_round for start in self._starts(base)}
        return sorted(value for value in rounds if value < base.federation.rounds)

    def shared_starts(self, bases: Mapping[str, TrialConfig]) -> tuple[Any, ...]:
        """Values of `relabel.start` at which trials fork from a trunk they share; () where each may have its own."""
        if not self.relabels or not all(parameter.name.startswith("relabel.") for parameter in self.parameters):
            return ()
        return tuple(dict.fromkeys(start for base in bases.values() for start in self._starts(base)))

    def _starts(self, base: TrialConfig) -> tuple[Any, ...]:
        for parameter in self.parameters:
            if parameter.name == "relabel.start":
                return (*(parameter.grid() or ()), *((base.relabel.start,) if parameter.when else ()))
        return (base.relabel.start,)

    @property
    def relabels(self) -> bool:
        """Whether relabelling is among what is searched."""
        return any(parameter.name.startswith("relabel.") for parameter in self.parameters)

    def periods(self) -> tuple[int, ...] | None:
        """The periods that trials may have, or None when all have the same one."""
        grids = [parameter.grid() for parameter in self.parameters if parameter.name == "relabel.period"]
        values = grids[0] if grids else None
        return tuple(sorted({int(value) for value in values})) if values is not None and len(values) > 1 else None

    def defaults(self, bases: Mapping[str, TrialConfig] | None = None) -> list[Json]:
        """Where the search begins: the paper's setting of FedReLa and what each algorithm starts from otherwise.

        Fields that the space cannot express are left out, for the sampler to choose.
        """
        points = []
        for algorithm in self.algorithms:
            point: Json = {ALGORITHM: algorithm}
            base = (bases or {}).get(algorithm)
            for parameter in self.parameters:
                known, value = _default(parameter.name, base)
                if known and parameter.applies(point) and parameter.contains(value):
                    point[parameter.name] = value
            points.append(self.trial_params(point))
        return points

    def complete(self, point: Mapping[str, Any]) -> bool:
        """Whether a point has every parameter that applies to it, and no other."""
        names = {parameter.name for parameter in self.parameters if parameter.applies(point)}
        return names == set(point) - {ALGORITHM}

    def sample(self, rng: np.random.Generator) -> Json:
        """A point drawn uniformly."""
        point: Json = {ALGORITHM: self.algorithms[int(rng.integers(len(self.algorithms)))]}
        for parameter in self.parameters:
            if parameter.applies(point):
                point[parameter.name] = parameter.draw(rng)
        return point

    def points(self, rng: np.random.Generator) -> Iterator[Json]:
        """Every point of a finite space in random order; an endless stream of draws of a continuous one.

        Points that differ only in parameters that do not apply come several times.
        """
        grids = [(ALGORITHM, self.algorithms), *((p.name, p.grid()) for p in self.parameters)]
        lengths = [len(grid) for _, grid in grids if grid is not None]
        if len(lengths) < len(grids) or math.prod(lengths) > MAX_ENUMERATED:
            while True:
                yield self.sample(rng)
        for index in rng.permutation(math.prod(lengths)):
            yield self.restrict(_digits(int(index), grids))

    def restrict(self, point: Mapping[str, Any]) -> Json:
        """A point without the parameters that do not apply to it."""
        kept: Json = {ALGORITHM: point[ALGORITHM]}
        for parameter in self.parameters:
            if parameter.applies(kept):
                kept[parameter.name] = point[parameter.name]
        return kept

    def point(self, params: Mapping[str, Any]) -> Json:
        """The point of an Optuna trial's parameters, with grid values in their exact spelling."""
        values = {p.name: p.tidy(params[p.name]) for p in self.parameters if p.name in params}
        return {ALGORITHM: params.get(ALGORITHM, self.algorithms[0]), **values}

    def trial_params(self, point: Mapping[str, Any]) -> Json:
        """The part of a point that an Optuna trial carries (a single algorithm is not a parameter)."""
        return {name: value for name, value in point.items() if name != ALGORITHM or len(self.algorithms) > 1}

    def identity(self) -> Json:
        """What makes two searches the same search: everything but names, comments and budgets."""
        fields = {p.name: [p.kind, list(p.values), p.step, *_conditions(p)] for p in self.parameters}
        return {"algorithms": list(self.algorithms), "parameters": fields}

    def describe(self) -> list[str]:
        """Lines for people: algorithms, parameters, size and budget."""
        size = self.size()
        lines = [f"algorithm: {', '.join(self.algorithms)}", *(parameter.text() for parameter in self.parameters)]
        lines += [f"fixed: {name} = {value}" for name, value in self.fixed.items()]
        points = "continuous" if size is None else counted(size, "point")
        seeds = f"seed{'s' * (len(self.seeds) != 1)} {', '.join(map(str, self.seeds))}"
        return [*lines, f"{points}; {counted(self.trials, 'trial')}; {seeds}"]

    def check_algorithms(self, known: Sequence[str]) -> None:
        """Raise ConfigError for algorithms that are not registered."""
        faults = [unknown_name("algorithm", name, name, known) for name in self.algorithms if name not in known]
        faults += self.condition_faults(known)
        if faults:
            raise ConfigError(faults)

    def condition_faults(self, known: Sequence[str]) -> list[str]:
        """Conditions that can never hold, because no algorithm has that name."""
        wanted = [
            (p.name, value) for p in self.parameters for name, values in p.when for value in values if name == ALGORITHM
        ]
        return [
            f"{name}: when: {unknown_name('algorithm', str(v), str(v), known)}" for name, v in wanted if v not in known
        ]


def _default(name: str, base: TrialConfig | None) -> tuple[bool, Any]:
    """Whether a field has a value to begin with, and that value."""
    if name in BEGIN:
        return True, BEGIN[name]
    if base is None or name.startswith("relabel."):
        return False, None
    values: Any = base.model_dump(mode="json")
    for part in name.split("."):
        if not isinstance(values, Mapping) or part not in values:
            return False, None
        values = values[part]
    return True, values


def _conditions(parameter: Parameter) -> list[Json]:
    return [{name: list(values) for name, values in parameter.when}] if parameter.when else []


def _digits(index: int, grids: Sequence[tuple[str, Sequence[Any] | None]]) -> Json:
    point = {}
    for name, grid in grids:
        values = grid or ()
        index, digit = divmod(index, len(values))
        point[name] = values[digit]
    return point


def _same(left: Any, right: Any) -> bool:
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    return math.isclose(left, right, abs_tol=1e-12) if numbers else bool(left == right)
