"""A study worked out: which trunks and cells it consists of, and what the store already answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from fedrela_bench.config import TrialConfig
from fedrela_bench.nested import Json, digest
from fedrela_bench.study.engine import Runtime
from fedrela_bench.study.lineage import Segment
from fedrela_bench.study.request import TuneRequest
from fedrela_bench.study.space import ALGORITHM
from fedrela_bench.study.store import Entry

WORST = 0.0
"""Objectives are accuracies to maximise; what cannot be measured counts as this."""


@dataclass(frozen=True)
class Trunk:
    """One baseline of the study."""

    algorithm: str
    seed: int
    config: TrialConfig
    entry: Entry
    fork_rounds: tuple[int, ...]


@dataclass(frozen=True)
class Outcome:
    """What is known of one configuration over all seeds."""

    status: str
    """completed, diverged, stopped (early), futile (ended for its small gain), invalid (an objective could not be
    measured) or failed."""
    values: tuple[float, ...]
    """Objectives, means over seeds; `WORST` where the status is not completed or stopped."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Means over seeds of the final metrics."""
    std: Mapping[str, float] = field(default_factory=dict)
    """Sample standard deviations over seeds; {} for one seed."""
    keys: tuple[str, ...] = ()
    """Store keys, one per seed."""
    rounds: int = 0
    """Rounds behind the fork points, over all seeds."""
    error: str = ""
    per_seed: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Final metrics of every seed, in the order of `keys`."""

    @property
    def valid(self) -> bool:
        """Whether the values may be compared."""
        return self.status in ("completed", "stopped")


def failed(objectives: int, error: str) -> Outcome:
    """The outcome of a configuration that could not be computed."""
    return Outcome("failed", (WORST,) * objectives, error=error)


def combine(results: Sequence[Json], objectives: Sequence[str]) -> Outcome:
    """Mean over seeds of finished results (the content of their ``result.json``)."""
    statuses = [result["status"] for result in results]
    status = next((bad for bad in ("diverged", "stopped") if bad in statuses), "completed")
    names = set.intersection(*(set(result["final"]) for result in results))
    columns = {name: [result["final"][name] for result in results] for name in sorted(names)}
    metrics = {name: fmean(column) for name, column in columns.items()}
    std = {name: _std(column) for name, column in columns.items()} if len(results) > 1 else {}
    values = tuple(metrics.get(name, math.nan) for name in objectives)
    if status != "diverged" and not all(math.isfinite(value) for value in values):
        status = "invalid"
    if status in ("diverged", "invalid"):
        values = (WORST,) * len(objectives)
    rounds = sum(result["computed_rounds"] for result in results)
    keys = tuple(result["key"] for result in results)
    per_seed = {name: tuple(column) for name, column in columns.items()}
    return Outcome(status, values, metrics, std, keys, rounds, per_seed=per_seed)


def _std(values: Sequence[float]) -> float:
    mean = fmean(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


@dataclass(frozen=True)
class Plan:
    """A request with everything resolved that keys depend on."""

    request: TuneRequest
    bases: Mapping[str, TrialConfig]
    runtime: Runtime
    digests: Mapping[tuple[str, int], str]
    """Data digest by algorithm and seed (the partition may follow the seed)."""
    folder: Path
    """The study folder as an absolute path, for processes in other working directories."""
    snapshot_bytes: Mapping[str, int] = field(default_factory=dict)
    """Size of one snapshot of every base algorithm."""
    posterior_bytes: Mapping[str, int] = field(default_factory=dict)
    """What a trunk of every base algorithm keeps of one first relabelling pass."""
    data_notes: tuple[str, ...] = ()
    """What a reader of any number must know about the data."""
    model_bytes: Mapping[str, int] = field(default_factory=dict)
    """Size of one scored model of every base algorithm."""
    datasets: Mapping[str, Json] = field(default_factory=dict)
    """What a reader should know of every dataset, by its digest."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of every configuration that the search proposes."""
        return self.request.search_seeds

    def config(self, point: Mapping[str, Any], seed: int) -> TrialConfig:
        """A point's configuration for one seed."""
        return self.request.space.config(self.bases, point, seed)

    def entry(self, point: Mapping[str, Any], seed: int) -> Entry:
        """A point's place in the store for one seed."""
        return self.runtime.entry(self.config(point, seed), self.digests[point[ALGORITHM], seed])

    def lineage(self, point: Mapping[str, Any], seed: int) -> list[Segment]:
        """Where a point's rounds are for one seed."""
        return self.runtime.lineage(self.config(point, seed), self.digests[point[ALGORITHM], seed])

    def key(self, point: Mapping[str, Any]) -> str:
        """Equal for points that compute the same cells."""
        return digest([self.entry(point, seed).key for seed in self.seeds])

    def answer(self, point: Mapping[str, Any], seeds: Sequence[int] | None = None) -> Outcome | None:
        """The point's outcome when the store holds all its seeds (those of the search where none are given)."""
        results = []
        for seed in seeds or self.seeds:
            entry = self.entry(point, seed)
            result = self.runtime.store.result(entry.kind, entry.key)
            if result is None:
                return self._futile(point, seeds or self.seeds)
            results.append(result)
        return combine(results, self.request.objectives)

    def futile(self, point: Mapping[str, Any]) -> Outcome | None:
        """The outcome of a point that the search ended by `Runtime.futility`, even if it was completed since."""
        return self._futile(point, self.seeds, completed=True)

    def _futile(self, point: Mapping[str, Any], seeds: Sequence[int], completed: bool = False) -> Outcome | None:
        rule = self.runtime.futility
        for seed in seeds if rule is not None else ():
            lineage = self.lineage(point, seed)
            entry = lineage[-1].entry
            judged = entry.kind == "cell" and (completed or not (entry.folder / "result.json").exists())
            why = rule.verdict(lineage) if rule is not None and judged else None
            if why is not None:
                return Outcome("futile", (WORST,) * len(self.request.objectives), error=why)
        return None

    def trunks(self, seeds: Sequence[int] | None = None, forks: Sequence[int] | None = None) -> list[Trunk]:
        """The baselines: every algorithm with every seed.

        Args:
            seeds: by default those of the search.
            forks: rounds to keep snapshots of; by default those at which the space's trials fork.
        """
        found = []
        for algorithm, base in self.bases.items():
            rounds = tuple(self.request.space.fork_rounds(base) if forks is None else forks)
            for seed in seeds or self.seeds:
                config = base.replace({"seed": seed}).base()
                entry = self.runtime.trunk(config, self.digests[algorithm, seed])
                found.append(Trunk(algorithm, seed, config, entry, rounds))
        return found

    def baseline(self, algorithm: str, seeds: Sequence[int] | None = None) -> Outcome | None:
        """An algorithm's baseline over all seeds, when it is finished."""
        trunks = [trunk for trunk in self.trunks(seeds) if trunk.algorithm == algorithm]
        return self.finished([trunk.entry.key for trunk in trunks])

    def finished(self, keys: Sequence[str]) -> Outcome | None:
        """The outcome of baselines by their keys in the store, one per seed, when all of them are finished."""
        results = [self.runtime.store.result("trunk", key) for key in keys]
        known = [result for result in results if result is not None]
        return combine(known, self.request.objectives) if len(known) == len(results) else None
