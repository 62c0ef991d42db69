"""What a `tune` call counts, tells and puts on the tracking list on its way."""

from __future__ import annotations

import time
from collections.abc import Sequence

from fedrela_bench.choice import SEARCHED
from fedrela_bench.config import TrialConfig
from fedrela_bench.nested import Json, digest
from fedrela_bench.study.batch import Crew
from fedrela_bench.study.confirm import fixed_arms
from fedrela_bench.study.controls import is_control, relabeler_text
from fedrela_bench.study.interrupt import Interrupts
from fedrela_bench.study.ledger import Ledger, Proposal
from fedrela_bench.study.nodes import Nodes
from fedrela_bench.study.pairing import Baselines
from fedrela_bench.study.plan import Outcome, Plan, Trunk
from fedrela_bench.study.results import Row, label, own_baselines
from fedrela_bench.study.space import ALGORITHM
from fedrela_bench.tracking.manifest import Manifest, Record
from fedrela_bench.tracking.progress import Item, Progress

GRACE_SECONDS = 45.0
"""How long running cells may take to finish their round after a stop request."""
MOST_IN_A_ROW = 10
"""Failed trials in a row after which nothing more is proposed."""


class Books:
    """One `tune` call's shared parts, and what it tells and lists while it computes."""

    def __init__(self, plan: Plan, manifest: Manifest, progress: Progress, interrupts: Interrupts) -> None:
        self.plan = plan
        self.manifest = manifest
        self.progress = progress
        self.interrupts = interrupts
        self.nodes = Nodes(progress.note)
        self.ledgers: list[Ledger] = []
        self._roles = {plan.key(arm.point): arm.role for arm in fixed_arms(plan) if arm.role}
        self.trunks_computed = 0
        self.computed: set[str] = set()
        """Keys of cells that this call computed."""
        self._kept: dict[str, set[str]] = {}
        """Keys of the cells that the store had of a trial when it began."""
        self.rounds_computed = 0
        self.failures: list[str] = []
        """Messages of failures that are no trial's."""
        self.remarks: list[str] = []
        """What a user should know of and no run depends on."""
        self.failed_in_a_row = 0

    @property
    def reused(self) -> int:
        """Trials that the store answered."""
        return sum(ledger.reused for ledger in self.ledgers)

    @property
    def cells_reused(self) -> int:
        """Cells of this call's trials that were there, each counted once."""
        outcomes = [ledger.finished[key] for ledger in self.ledgers for key in ledger.answered & ledger.finished.keys()]
        there = set().union(*self._kept.values(), *(outcome.keys for outcome in outcomes))
        return len(there - self.computed)

    @property
    def ended(self) -> bool:
        """Whether to propose nothing more."""
        return self.interrupts.stopping or self.broken

    @property
    def broken(self) -> bool:
        """Whether so many trials failed in a row that the next would, too."""
        return self.failed_in_a_row >= MOST_IN_A_ROW

    def crew(self, gpus: float, limit: int) -> Crew:
        """Where runs are computed."""
        return Crew(self.plan, self.progress, self.interrupts, self.nodes, gpus, limit, GRACE_SECONDS)

    def list_trunk(self, trunk: Trunk) -> None:
        """Put a baseline on the tracking list."""
        self.manifest.add(
            Record(
                kind="trunk",
                key=trunk.entry.key,
                folder=self.manifest.relative(trunk.entry.folder),
                algorithm=trunk.algorithm,
                seed=trunk.seed,
                config=self._shown(trunk.config),
                name=f"{trunk.algorithm} baseline seed {trunk.seed}",
                created=time.time(),
                trunk_key=trunk.entry.key,
                tags=self._tags(trunk.algorithm, trunk.seed, f"baseline/{trunk.algorithm}"),
            )
        )

    def _shown(self, config: TrialConfig) -> Json:
        """The configuration of a run with the number of clients that its data name."""
        values = config.model_dump(mode="json")
        if not config.federation.clients:
            facts = self.plan.datasets[self.plan.digests[config.federation.algorithm, config.seed]]
            values["federation"]["clients"] = len(facts["client_sizes"])
        return values

    def _tags(self, algorithm: str, seed: int, config_key: str) -> dict[str, str]:
        profile = self.plan.bases[algorithm].data.profile
        digest = self.plan.digests[algorithm, seed]
        version = self.plan.runtime.engine.version
        facts = {"data_digest": digest, "profile": profile, "simulation_version": version}
        return {**facts, "config_key": config_key}

    def list_cells(
        self, point: Json, number: int | None, seeds: Sequence[int] | None = None, name: str = "", role: str = ""
    ) -> None:
        """Put a configuration's runs on the tracking list."""
        key, shown = self.plan.key(point), name or label(point)
        config = self.plan.config(point, self.plan.seeds[0])
        role = role or self._roles.get(key, "") or (SEARCHED if is_control(config) else "")
        said = {"arm": role, "relabeler": relabeler_text(config)}
        for seed in seeds or self.plan.seeds:
            lineage = self.plan.lineage(point, seed)
            trunk, own, branches = lineage[0], lineage[-1], lineage[1:-1]
            if own.entry.kind == "trunk" and self.plan.request.space.relabels:
                continue
            forks = own.entry.kind == "cell"
            self.manifest.add(
                Record(
                    kind=own.entry.kind,
                    key=own.entry.key,
                    folder=self.manifest.relative(own.entry.folder),
                    algorithm=point[ALGORITHM],
                    seed=seed,
                    config=self._shown(own.config),
                    name=f"{shown} seed {seed}" if number is None else f"{number:03d} {label(point)} seed {seed}",
                    created=time.time(),
                    trunk_key=trunk.entry.key,
                    trunk_folder=self.manifest.relative(trunk.entry.folder) if forks else "",
                    fork_round=trunk.last if forks else 0,
                    branch_folder=self.manifest.relative(branches[0].entry.folder) if branches else "",
                    branch_round=own.first - 1,
                    trial=number,
                    tags={**self._tags(point[ALGORITHM], seed, key), **{k: v for k, v in said.items() if v}},
                )
            )

    def list_baselines(self, rows: Sequence[Row], seeds: Sequence[int]) -> None:
        """Put baselines behind the gains of rows on the tracking list where they are not their algorithm's."""
        baselines = Baselines(self.plan, seeds)
        for row in own_baselines(rows, baselines):
            for seed, config, key in baselines.runs(row.point):
                entry = self.plan.runtime.store.entry("trunk", key)
                name = f"baseline/{row.algorithm}/{digest(dict(row.point))[:12]}"
                self.manifest.add(
                    Record(
                        kind="trunk",
                        key=key,
                        folder=self.manifest.relative(entry.folder),
                        algorithm=row.algorithm,
                        seed=seed,
                        config=self._shown(config),
                        name=f"{label(row.point)} baseline seed {seed}",
                        created=time.time(),
                        trunk_key=key,
                        tags=self._tags(row.algorithm, seed, name),
                    )
                )

    def started(self, proposal: Proposal) -> None:
        """A trial begins."""
        self.list_cells(proposal.point, proposal.number)
        own = [self.plan.lineage(proposal.point, seed)[-1] for seed in self.plan.seeds]
        store = self.plan.runtime.store
        there = {s.entry.key for s in own if store.result(s.entry.kind, s.entry.key) is not None}
        self._kept.setdefault(proposal.key, there)
        rounds = sum(segment.last - segment.first + 1 for segment in own)
        journals = [segment.entry.journal.path for segment in own]
        self.progress.begin(proposal.key, Item(f"trial {proposal.number} {label(proposal.point)}", journals, rounds))

    def settled(self, proposal: Proposal, outcome: Outcome, rounds: int) -> None:
        """A trial ended with or without a result."""
        self._spend(rounds)
        self.computed |= set(outcome.keys) - self._kept.get(proposal.key, set())
        self.failed_in_a_row = self.failed_in_a_row + 1 if outcome.status == "failed" else 0
        for seed in self.plan.seeds if outcome.status in ("failed", "futile") else ():
            entry = self.plan.entry(proposal.point, seed)
            note = self.manifest.fail if outcome.status == "failed" else self.manifest.stop
            note(f"{entry.kind}:{entry.key}", outcome.error)
        values = dict(zip(self.plan.request.objectives, outcome.values, strict=True)) if outcome.valid else {}
        name = f"trial {proposal.number} {label(proposal.point)}"
        self.progress.totals.reused = self.reused
        self.progress.end(proposal.key, name, outcome.status, values, outcome.error)

    def _spend(self, rounds: int) -> None:
        self.rounds_computed += rounds
        longest = max(base.federation.rounds for base in self.plan.bases.values())
        self.progress.totals.full_runs += rounds / longest
