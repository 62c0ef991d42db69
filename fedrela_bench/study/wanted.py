"""Runs that somebody names one by one, as a report does: the request that computes them, and what is there already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedrela_bench.config import TrialConfig
from fedrela_bench.errors import StoreError
from fedrela_bench.nested import Json
from fedrela_bench.study.engine import Runtime
from fedrela_bench.study.lineage import Segment
from fedrela_bench.study.plan import Plan
from fedrela_bench.study.request import TuneRequest
from fedrela_bench.study.results import label
from fedrela_bench.study.space import ALGORITHM, PAPER_DEFAULT, Space
from fedrela_bench.study.store import Entry, Store

State = Literal["there", "begun", "missing"]


def points_of(algorithms: Sequence[str], relabel: Sequence[Mapping[str, Any]]) -> tuple[Json, ...]:
    """Every kind of relabelling with every algorithm; what a kind leaves out is as the paper has it."""
    return tuple({ALGORITHM: name, **PAPER_DEFAULT, **kind} for name in algorithms for kind in relabel)


def request_of(
    name: str,
    dataset: str,
    bases: Mapping[str, TrialConfig],
    relabel: Sequence[Mapping[str, Any]],
    seeds: Sequence[int],
    out: Path,
    **settings: Any,
) -> TuneRequest:
    """The request that computes baselines and named relabelled runs, and nothing else.

    Its identity holds the bases and the first seed: more kinds of relabelling or more seeds later are the same study.

    Args:
        name: of the study.
        dataset: its short name.
        bases: algorithm to configuration.
        relabel: fields of the relabel section for each kind of run.
        seeds: of every run.
        out: study folder.
        settings: other fields of `TuneRequest`.
    """
    space = Space(name, tuple(bases), (), tuple(seeds[:1]), objectives=("overall",))
    points = points_of(list(bases), relabel)
    plain: dict[str, Any] = {"seeds": tuple(seeds[:1]), "confirm_seeds": tuple(seeds), "stages": ("confirm",)}
    return TuneRequest(bases=bases, space=space, out=out, dataset=dataset, points=points, **plain, **settings)


def without_data(request: TuneRequest) -> Plan:
    """The plan of a request whose data cannot be read here: keys are wrong, so that nothing seems to be there."""
    runtime = Runtime(Store(request.store_dir), request.engine, periods=request.periods)
    digests = {(name, seed): "" for name in request.bases for seed in request.every_seed}
    return Plan(request, request.selecting(), runtime, digests, request.out.resolve())


@dataclass(frozen=True)
class RunState:
    """One run for one seed."""

    key: str
    seed: int
    state: State
    cost: float
    """What is left for it, in full runs of its algorithm; shared rounds count with the run that is listed first."""


@dataclass(frozen=True)
class ArmState:
    """A baseline, or one kind of relabelling of an algorithm, over the seeds."""

    name: str
    algorithm: str
    point: Mapping[str, Any]
    """{} for a baseline."""
    runs: tuple[RunState, ...]

    @property
    def missing(self) -> int:
        """Runs that are not finished."""
        return sum(run.state != "there" for run in self.runs)

    @property
    def cost(self) -> float:
        """In full runs."""
        return sum(run.cost for run in self.runs)

    def to_json(self) -> Json:
        """Plain values."""
        runs = [{"seed": r.seed, "state": r.state, "cost": round(r.cost, 4), "key": r.key} for r in self.runs]
        kind = "cell" if self.point else "trunk"
        fields = {name: value for name, value in self.point.items() if name != ALGORITHM}
        facts = {"name": self.name, "kind": kind, "algorithm": self.algorithm, "relabel": fields}
        return {**facts, "runs": runs, "missing": self.missing, "full_runs": round(self.cost, 4)}


@dataclass
class _Account:
    """What is paid for by the runs listed so far."""

    rounds: dict[str, int] = field(default_factory=dict)
    """By entry, those that are there included."""
    repeated: set[tuple[str, int]] = field(default_factory=set)

    def cost(self, lineage: Sequence[Segment]) -> float:
        """Full runs that are left for a run, without what runs before it pay for."""
        rounds = lineage[-1].config.federation.rounds
        return sum(self._left(part) + self._again(part) * (part is not lineage[-1]) for part in lineage) / rounds

    def _left(self, part: Segment) -> int:
        key, length = part.entry.key, part.last - part.first + 1
        have = self.rounds.setdefault(key, len(part.entry.journal.rounds(part.first)))
        self.rounds[key] = max(have, length)
        return max(0, length - have)

    def _again(self, part: Segment) -> int:
        """Rounds to repeat because the state that others branch off was not kept when the run passed there."""
        entry, place = part.entry, (part.entry.key, part.last)
        passed = len(entry.journal.rounds(part.first)) >= part.last - part.first + 1
        if not passed or place in self.repeated or entry.snapshot(part.last).exists():
            return 0
        self.repeated.add(place)
        kept = [round_ for round_ in entry.snapshot_rounds() if part.first <= round_ <= part.last]
        return part.last - max([part.first - 1, *kept])


def arm_states(plan: Plan) -> list[ArmState]:
    """What the request of a plan names, and how much of it the store has."""
    return list(_arms(plan, _Account()))


def _arms(plan: Plan, account: _Account) -> Iterator[ArmState]:
    seeds = plan.request.final_seeds
    for algorithm, base in plan.bases.items():
        trunks = tuple(_state(plan, base.replace({"seed": seed}).base(), algorithm, account) for seed in seeds)
        yield ArmState(algorithm, algorithm, {}, trunks)
        for point in plan.request.points or ():
            if point[ALGORITHM] == algorithm:
                runs = tuple(_state(plan, plan.config(point, seed), algorithm, account) for seed in seeds)
                yield ArmState(label(point), algorithm, point, runs)


def _state(plan: Plan, config: TrialConfig, algorithm: str, account: _Account) -> RunState:
    lineage = plan.runtime.lineage(config, plan.digests[algorithm, config.seed])
    own = lineage[-1].entry
    if _finished(own):
        return RunState(own.key, config.seed, "there", 0.0)
    state: State = "begun" if own.config() is not None else "missing"
    return RunState(own.key, config.seed, state, account.cost(lineage))


def _finished(entry: Entry) -> bool:
    """Whether the result is there and whole; a damaged one is computed again."""
    try:
        return entry.result() is not None
    except StoreError:
        return False
