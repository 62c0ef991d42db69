"""What a study will cost and write, before it starts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedrela_bench.host import free_disk
from fedrela_bench.nested import Json
from fedrela_bench.rng import generator
from fedrela_bench.study.compute import POSTERIORS
from fedrela_bench.study.confirm import RACE_SEEDS, RACE_SHARE, Arm, fixed_arms, with_controls
from fedrela_bench.study.plan import Plan, Trunk
from fedrela_bench.study.results import label
from fedrela_bench.study.space import ALGORITHM, Space

FLOOR = 50 * 2**20
"""MLflow's database and Ray's logs of a small study."""
LINE_BYTES = 900
"""Of a journal line besides its counts per class."""
CELL_BYTES = 64 * 2**10
"""Result, configuration and relabel records of one run."""
DRAWS = 200
"""Draws in a row that give no new point before a space counts as exhausted."""


@dataclass(frozen=True)
class Forecast:
    """Upper bounds, for trials drawn evenly from the space."""

    full_runs: float
    """Rounds to compute, divided by the rounds of one run."""
    trunks_only: float
    """The same if only baselines were shared, not the rounds between the fork and a first differing refresh."""
    unshared: float
    """The same if every run started at round 1."""
    disk: int
    """Bytes."""
    runs: Mapping[str, float]
    """`full_runs` by algorithm."""
    passes: Mapping[str, int]
    """First relabelling passes by algorithm."""
    confirmed: int = 0
    """Configurations of the confirm stage."""
    confirm_runs: float = 0.0
    """What that stage adds to `full_runs`."""


class _Bill:
    """Rounds to compute, each once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rounds = max(base.federation.rounds for base in plan.bases.values())
        self.shared: dict[str, int] = {}
        self.alone: dict[str, int] = {}
        """Of every run, the rounds behind its fork."""
        self.owners: dict[str, str] = {}
        self.forks: set[str] = set()
        self.stems: set[str] = set()
        """Trunks that runs fork from."""

    @property
    def full_runs(self) -> float:
        return sum(self.shared.values()) / self.rounds

    @property
    def trunks_only(self) -> float:
        stems = sum(self.shared[key] for key in self.stems - self.alone.keys())
        return (sum(self.alone.values()) + stems) / self.rounds

    def add_trunks(self, seeds: Sequence[int]) -> None:
        for trunk in self.plan.trunks(seeds) if seeds else ():
            self.owners[trunk.entry.key] = trunk.algorithm
            self.shared[trunk.entry.key] = self.alone[trunk.entry.key] = trunk.config.federation.rounds

    def add(self, points: Iterable[Json], seeds: Sequence[int]) -> None:
        for point, seed in ((point, seed) for point in points for seed in seeds):
            lineage = self.plan.lineage(point, seed)
            self.owners |= {part.entry.key: point[ALGORITHM] for part in lineage}
            if lineage[1:]:
                self.forks.add(lineage[-1].entry.key)
                self.stems.add(lineage[0].entry.key)
            self.alone.setdefault(lineage[-1].entry.key, self.rounds - lineage[0].last if lineage[1:] else self.rounds)
            for part in lineage:
                self.shared[part.entry.key] = max(self.shared.get(part.entry.key, 0), part.last - part.first + 1)


def forecast(plan: Plan, concurrent: int) -> Forecast:
    """What the whole study takes, counted on points drawn from its space as random search would."""
    request, bill = plan.request, _Bill(plan)
    searching = request.base_only or "search" in request.stages
    confirming = "confirm" in request.stages and not request.base_only
    if "trunks" in request.stages:
        bill.add_trunks(plan.seeds)
    points = _searched(plan)
    bill.add(points if searching else (), plan.seeds)
    before, arms = bill.full_runs, list[Json]()
    if confirming:
        bill.add_trunks(request.final_seeds)
        arms = _confirmed(plan, points, bill)
    return Forecast(
        full_runs=bill.full_runs,
        trunks_only=bill.trunks_only,
        unshared=float(len(bill.alone)),
        disk=disk_bytes(plan, concurrent),
        runs={
            name: sum(count for key, count in bill.shared.items() if bill.owners[key] == name) / bill.rounds
            for name in plan.bases
        },
        passes=Counter(bill.owners[key] for key in bill.forks),
        confirmed=len(arms),
        confirm_runs=bill.full_runs - before,
    )


def _confirmed(plan: Plan, points: Sequence[Json], bill: _Bill) -> list[Json]:
    """Add what the confirm stage computes; gives the configurations that get all its seeds."""
    request = plan.request
    known = "search" in request.stages or (request.out / "study.json").exists()
    heat = points[: -(-len(points) // RACE_SHARE)] if known and request.race else ()
    bill.add(heat, request.final_seeds[:RACE_SEEDS])
    # Any points of the right number stand for the best ones.
    best = points[: request.best_confirmed * len(plan.bases)] if known else ()
    listed = with_controls(plan, [*(Arm(label(point), point) for point in best), *fixed_arms(plan)])
    arms = {plan.key(arm.point): arm.point for arm in listed}
    bill.add(arms.values(), request.final_seeds)
    return list(arms.values())


def _searched(plan: Plan) -> list[Json]:
    """Distinct points, as many as the study shall have."""
    space = plan.request.space
    spaces = [space.with_algorithms([name]) for name in plan.bases] if plan.request.base_only else [space]
    return [point for part in spaces for point in _points(plan, part)]


def _points(plan: Plan, space: Space) -> list[Json]:
    rng = generator(plan.request.search_seed, "forecast")
    queued = [space.point(params) for params in space.defaults(plan.bases)]
    found: dict[str, Json] = {}
    fruitless = 0
    while len(found) < plan.request.target and fruitless < DRAWS:
        point = _filled(space, queued.pop(0), rng) if queued else space.sample(rng)
        key = plan.key(point)
        fruitless = fruitless + 1 if key in found else 0
        found.setdefault(key, point)
    return list(found.values())


def _filled(space: Space, part: Json, rng: np.random.Generator) -> Json:
    """A point that says only some fields, with the others drawn."""
    drawn = space.sample(rng)
    while drawn[ALGORITHM] != part[ALGORITHM]:
        drawn = space.sample(rng)
    return {**drawn, **{name: value for name, value in part.items() if name in drawn}}


def disk_bytes(plan: Plan, concurrent: int) -> int:
    """Bytes the study still adds: missing snapshots of its baselines, rolling states, journals and results.

    A snapshot holds the model, the server's state, and whatever the algorithm keeps for every client.
    """
    sizes = plan.snapshot_bytes
    total = 0
    for trunk in plan.trunks():
        missing = sum(not trunk.entry.snapshot(fork).exists() for fork in trunk.fork_rounds)
        total += missing * sizes[trunk.algorithm]
    if _missing_trials(plan):
        kept = {name: sizes[name] + plan.posterior_bytes[name] for name in sizes}
        more = len(set(plan.request.trunk_seeds) - set(plan.seeds))
        total += more * (plan.request.best_confirmed + 1) * sum(kept.values())
        total += sum(_passes(plan, trunk) * plan.posterior_bytes[trunk.algorithm] for trunk in plan.trunks())
    return total + _running_bytes(plan, concurrent, max(sizes.values())) + model_bytes(plan)


def model_bytes(plan: Plan) -> int:
    """Scored models of the first seed of trials to come, until the study is finished."""
    missing = 0 if plan.runtime.model_seed is None else _missing_trials(plan)
    return (missing + len(plan.bases)) * max(plan.model_bytes.values()) if missing else 0


def _passes(plan: Plan, trunk: Trunk) -> int:
    """First relabelling passes whose posteriors a baseline will keep: one for each T and way to compute them."""
    names = [parameter.name for parameter in plan.request.space.parameters]
    several = any(name.startswith(("relabel.posterior_", "relabel.author_resume")) for name in names)
    wanted = plan.request.target if several else min(plan.request.target, len(trunk.fork_rounds))
    return max(0, wanted - len(list((trunk.entry.folder / POSTERIORS).glob("*.npz"))))


def branch_bytes(plan: Plan) -> int:
    """States that runs relabelling once keep for periodic ones until the study is finished, at most."""
    periods = [period for period in plan.runtime.periods or () if period]
    return _missing_trials(plan) * len(plan.seeds) * len(periods) * max(plan.snapshot_bytes.values())


def _running_bytes(plan: Plan, concurrent: int, snapshot: int) -> int:
    """Rolling states (old and new side by side while one is written) and small files of what is not there yet."""
    missing = _missing_trials(plan) * len(plan.seeds)
    unfinished = sum(not (trunk.entry.folder / "result.json").exists() for trunk in plan.trunks())
    if not missing and not unfinished:
        return 0
    rounds = max(base.federation.rounds for base in plan.bases.values())
    journals = (missing + unfinished) * (rounds * LINE_BYTES + CELL_BYTES)
    # MLflow keeps a second copy of journals and arrays.
    return FLOOR + 2 * journals + 2 * min(concurrent, missing + unfinished) * snapshot


def _missing_trials(plan: Plan) -> int:
    """Trials to come; none when the recorded study is finished and was as large."""
    try:
        known = json.loads((plan.request.out / "study.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return plan.request.target
    done = known.get("trials", 0) if known.get("status") == "finished" else 0
    return max(0, plan.request.target - done)


def free_bytes(folder: Path) -> int:
    """Free space where a folder is or will be."""
    return free_disk(folder) or 0


def space_faults(folder: Path, needed: int) -> list[str]:
    """Why the disk cannot hold what a study will keep there, with both figures; nothing is written."""
    free = free_bytes(folder)
    if free >= needed:
        return []
    return [
        f"{folder} has {free / 2**20:.0f} MiB free and the study needs about {needed / 2**20:.0f} MiB for snapshots "
        "and results; free space (`fedrela-bench gc`), choose another --out, or search fewer values of relabel.start"
    ]
