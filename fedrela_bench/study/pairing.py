"""Which baseline a configuration's gain is over: the run of the same configuration and seed that relabels nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedrela_bench.config import TrialConfig
from fedrela_bench.nested import Json
from fedrela_bench.study.plan import Outcome, Plan
from fedrela_bench.study.space import ALGORITHM
from fedrela_bench.tracking.payload import flatten

Differences = Mapping[str, tuple[Any, Any]]
"""Dotted field to its value in a configuration and in its algorithm's baseline; None stands for no value."""
RELABEL = "relabel."


class Baselines:
    """Baselines of a study over some seeds, each read once."""

    def __init__(self, plan: Plan, seeds: Sequence[int] | None = None) -> None:
        """Take a plan, and the seeds that every baseline must have; by default those of the search."""
        self.plan, self.seeds = plan, tuple(seeds or plan.seeds)
        self._known: dict[tuple[str, ...], Outcome | None] = {}

    def of(self, point: Mapping[str, Any]) -> Outcome | None:
        """The finished baseline of a point's own configuration.

        That is its algorithm's where they differ in relabelling alone, and otherwise whatever the store has.
        """
        keys = tuple(self.plan.runtime.trunk(config, digest).key for config, digest in self._configs(point))
        if keys not in self._known:
            self._known[keys] = self.plan.finished(keys)
        return self._known[keys]

    def unlike(self, point: Mapping[str, Any]) -> Differences:
        """Fields, relabelling aside, in which a point is not like its algorithm's baseline.

        An option that the point names at the algorithm's default is none of them.
        """
        if all(name == ALGORITHM or name.startswith(RELABEL) for name in point):
            return {}
        seed = self.seeds[0]
        own, base = self.plan.config(point, seed).base(), self._base(point, seed)
        if own == base:
            return {}
        ours, theirs = _said(own), _said(base)
        names = [name for name in {**theirs, **ours} if ours.get(name) != theirs.get(name)]
        return {name: (ours.get(name), theirs.get(name)) for name in names}

    def _configs(self, point: Mapping[str, Any]) -> list[tuple[TrialConfig, str]]:
        """The baseline's configuration for each seed, with the digest of its data."""
        apart = bool(self.unlike(point))
        return [
            (
                self.plan.config(point, seed).base() if apart else self._base(point, seed),
                self.plan.digests[point[ALGORITHM], seed],
            )
            for seed in self.seeds
        ]

    def _base(self, point: Mapping[str, Any], seed: int) -> TrialConfig:
        return self.plan.bases[point[ALGORITHM]].replace({"seed": seed}).base()

    def runs(self, point: Mapping[str, Any]) -> list[tuple[int, TrialConfig, str]]:
        """Seed, configuration and store key of every run of a point's baseline."""
        listed = zip(self.seeds, self._configs(point), strict=True)
        return [(seed, config, self.plan.runtime.trunk(config, digest).key) for seed, (config, digest) in listed]


def without_relabelling(point: Mapping[str, Any]) -> Json:
    """The part of a point that its baseline shares with it."""
    return {name: value for name, value in point.items() if not name.startswith(RELABEL)}


def _said(config: TrialConfig) -> Json:
    """Every field but those of relabelling, with the options that the algorithm has without being told."""
    from fedrela_bench.simulation import default_options

    values = config.model_dump(mode="json")
    del values["relabel"]
    federation = values["federation"]
    federation["options"] = {**default_options(config.federation.algorithm), **federation["options"]}
    return dict(flatten(values))
