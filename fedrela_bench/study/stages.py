"""The stages that compute: baselines as Ray tasks, then the search as Tune trials."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedrela_bench.config import Json
from fedrela_bench.errors import ConfigError
from fedrela_bench.study.failures import Failure, answer_of, refuse
from fedrela_bench.study.interrupt import Interrupts
from fedrela_bench.study.ledger import Ledger, Proposal
from fedrela_bench.study.plan import Outcome, Plan, Trunk
from fedrela_bench.study.results import label
from fedrela_bench.study.space import ALGORITHM
from fedrela_bench.study.worker import run_trunk_task, trainable
from fedrela_bench.tracking.manifest import Manifest, Record
from fedrela_bench.tracking.progress import Item, Progress

GRACE_SECONDS = 45.0
"""How long running cells may take to finish their round after a stop request."""
TUNE_FOLDER = ".tune"


class Session:
    """One `tune` call's shared parts and its bookkeeping while it computes."""

    def __init__(
        self, plan: Plan, ledger: Ledger, manifest: Manifest, progress: Progress, interrupts: Interrupts
    ) -> None:
        self.plan = plan
        self.ledger = ledger
        self.manifest = manifest
        self.progress = progress
        self.interrupts = interrupts
        self.trunks_computed = 0
        self.cells_computed = 0
        self.rounds_computed = 0

    # bookkeeping -----------------------------------------------------------------------------------------------------

    def list_trunk(self, trunk: Trunk) -> None:
        """Put a baseline on the tracking list."""
        record = Record(
            kind="trunk",
            key=trunk.entry.key,
            folder=self.manifest.relative(trunk.entry.folder),
            algorithm=trunk.algorithm,
            seed=trunk.seed,
            config=trunk.config.model_dump(mode="json"),
            name=f"{trunk.algorithm} baseline seed {trunk.seed}",
            created=time.time(),
            trunk_key=trunk.entry.key,
            tags=self._tags(trunk.algorithm, trunk.seed, f"baseline/{trunk.algorithm}"),
        )
        self.manifest.add(record)

    def _tags(self, algorithm: str, seed: int, config_key: str) -> dict[str, str]:
        profile = self.plan.bases[algorithm].data.profile
        digest = self.plan.digests[algorithm, seed]
        version = self.plan.runtime.engine.version
        facts = {"data_digest": digest, "profile": profile, "simulation_version": version}
        return {**facts, "config_key": config_key}

    def list_cells(self, point: Json, key: str, number: int) -> None:
        """Put a trial's cells on the tracking list."""
        for seed in self.plan.seeds:
            config, entry = self.plan.config(point, seed), self.plan.entry(point, seed)
            if entry.kind != "cell":
                continue
            trunk, *branches, own = self.plan.lineage(point, seed)
            record = Record(
                kind="cell",
                key=entry.key,
                folder=self.manifest.relative(entry.folder),
                algorithm=point[ALGORITHM],
                seed=seed,
                config=config.model_dump(mode="json"),
                name=f"{number:03d} {label(point)} seed {seed}",
                created=time.time(),
                trunk_key=trunk.entry.key,
                trunk_folder=self.manifest.relative(trunk.entry.folder),
                fork_round=config.relabel_round,
                branch_folder=self.manifest.relative(branches[0].entry.folder) if branches else "",
                branch_round=own.first - 1,
                trial=number,
                tags=self._tags(point[ALGORITHM], seed, key),
            )
            self.manifest.add(record)

    def started(self, proposal: Proposal) -> None:
        """A trial begins."""
        self.list_cells(proposal.point, proposal.key, proposal.number)
        own = [self.plan.lineage(proposal.point, seed)[-1] for seed in self.plan.seeds]
        rounds = sum(segment.last - segment.first + 1 for segment in own)
        journals = [self.plan.entry(proposal.point, seed).journal.path for seed in self.plan.seeds]
        self.progress.begin(proposal.key, Item(f"trial {proposal.number} {label(proposal.point)}", journals, rounds))

    def settled(self, proposal: Proposal, outcome: Outcome, rounds: int) -> None:
        """A trial ended with or without a result."""
        self._spend(rounds)
        self.cells_computed += len(outcome.keys)
        if outcome.status == "failed":
            for seed in self.plan.seeds:
                entry = self.plan.entry(proposal.point, seed)
                self.manifest.fail(f"{entry.kind}:{entry.key}", outcome.error)
        values = dict(zip(self.plan.request.objectives, outcome.values, strict=True))
        name = f"trial {proposal.number} {label(proposal.point)}"
        self.progress.totals.reused = self.ledger.reused
        self.progress.end(proposal.key, name, outcome.status, values, outcome.error)

    def _spend(self, rounds: int) -> None:
        self.rounds_computed += rounds
        longest = max(base.federation.rounds for base in self.plan.bases.values())
        self.progress.totals.full_runs += rounds / longest

    # baselines -------------------------------------------------------------------------------------------------------

    def run_trunks(self, trunks: Sequence[Trunk], gpus: float, limit: int) -> None:
        """Compute baselines side by side.

        Raises:
            ConfigError, DataError: the user's input made some fail.
            RunError: some failed for another reason; every message is listed.
        """
        import ray

        self.progress.stage("baselines", len(trunks))
        resources = {"num_cpus": self.plan.request.cpus_per_trial, "num_gpus": gpus, "max_retries": 2}
        task = ray.remote(**resources)(run_trunk_task)
        plan, waiting, running, failures = ray.put(self.plan), list(trunks), dict[Any, Trunk](), list[Failure]()
        while (waiting or running) and not self.interrupts.overdue(GRACE_SECONDS):
            while waiting and len(running) < limit and not self.interrupts.stopping:
                trunk = waiting.pop(0)
                running[task.remote(plan, trunk.algorithm, trunk.seed, gpus)] = trunk
                self._begin_trunk(trunk)
            if not running:
                break
            for call in ray.wait(list(running), timeout=0.5)[0]:
                trunk = running.pop(call)
                failures += self._end_trunk(trunk, answer_of(call, self.plan.folder, trunk.entry.key))
        refuse(failures)

    def _begin_trunk(self, trunk: Trunk) -> None:
        name = f"{trunk.algorithm} baseline seed {trunk.seed}"
        self.progress.begin(trunk.entry.key, Item(name, [trunk.entry.journal.path], trunk.config.federation.rounds))

    def _end_trunk(self, trunk: Trunk, answer: Json) -> list[Failure]:
        name = f"{trunk.algorithm} baseline seed {trunk.seed}"
        result = self.plan.runtime.store.result("trunk", trunk.entry.key)
        if answer["status"] == "stopped":
            self.progress.drop(trunk.entry.key)
            return []
        if result is None:
            error = answer["error"] or "it ended without a result"
            self.manifest.fail(f"trunk:{trunk.entry.key}", error)
            self.progress.end(trunk.entry.key, name, "failed", {}, error)
            return [Failure(name, error, answer.get("kind", ""))]
        self.trunks_computed += 1
        self._spend(answer.get("rounds", 0))
        final = {
            metric: result["final"][metric] for metric in self.plan.request.objectives if metric in result["final"]
        }
        self.progress.end(trunk.entry.key, name, result["status"], final)
        return []

    def check_objectives(self) -> None:
        """Raise ConfigError when a finished baseline shows that an objective is not measured on this data."""
        for algorithm in self.plan.bases:
            outcome = self.plan.baseline(algorithm)
            if outcome is not None and outcome.status == "invalid":
                measured = ", ".join(sorted(outcome.metrics))
                missing = [name for name in self.plan.request.objectives if name not in outcome.metrics]
                raise ConfigError(
                    f"{', '.join(missing)} cannot be measured on {self.plan.request.dataset} (no classes in it); "
                    f"set `objectives` in the search space among {measured}"
                )

    # search ----------------------------------------------------------------------------------------------------------

    def search(self, first: Proposal, gpus: float, limit: int) -> None:
        """Let Tune run trials until the target is reached, the space is exhausted, or a signal arrives."""
        self.progress.stage("search", self.ledger.remaining + len(self.ledger.in_flight))
        out = self.plan.request.out
        with _tune_folder(out) as folder, _log_to(out / "tune.log"):
            tuner = self._tuner(first, gpus, limit, folder)
            tuner.fit()

    def _tuner(self, first: Proposal, gpus: float, limit: int, folder: Path) -> Any:
        from ray import tune

        from fedrela_bench.study.search import SafeOptunaSearch, StopAll

        request, stopping = self.plan.request, lambda: self.interrupts.stopping
        search = SafeOptunaSearch(self.ledger, stopping, first, self.started, self.settled)
        resources = {"cpu": request.cpus_per_trial, "gpu": gpus}
        return tune.Tuner(
            tune.with_resources(trainable(self.plan, gpus), resources),
            tune_config=tune.TuneConfig(
                search_alg=search,
                num_samples=self.ledger.remaining + len(self.ledger.in_flight),
                max_concurrent_trials=limit,
                reuse_actors=True,
                trial_name_creator=lambda trial: trial.trial_id,
                trial_dirname_creator=lambda trial: trial.trial_id,
            ),
            run_config=tune.RunConfig(
                name="search",
                storage_path=str(folder.resolve()),
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=1),
                stop=StopAll(lambda: self.interrupts.overdue(GRACE_SECONDS)),
            ),
        )


def drop_tune_folder(out: Path) -> None:
    """Remove Tune's own records of a study."""
    shutil.rmtree(out / TUNE_FOLDER, ignore_errors=True)


@contextlib.contextmanager
def _tune_folder(out: Path) -> Iterator[Path]:
    """Where Tune keeps its own records, which nothing reads again."""
    drop_tune_folder(out)
    try:
        yield out / TUNE_FOLDER
    finally:
        drop_tune_folder(out)


@contextlib.contextmanager
def _log_to(path: Path) -> Iterator[None]:
    """Ray prints tables and hints even when it is told to be quiet; they belong into a file."""
    with path.open("a", encoding="utf-8") as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        yield
