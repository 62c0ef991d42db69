"""The stages that compute: baselines, search, confirmation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedrela_bench.errors import ConfigError
from fedrela_bench.nested import Json
from fedrela_bench.study import tuner
from fedrela_bench.study.batch import Job, run_jobs
from fedrela_bench.study.books import Books
from fedrela_bench.study.confirm import RACE_SEEDS, Arm, first_heat, fixed_arms, leaders, winners, with_controls
from fedrela_bench.study.failures import Failure, refuse
from fedrela_bench.study.ledger import Ledger, Proposal
from fedrela_bench.study.plan import Trunk
from fedrela_bench.study.results import label
from fedrela_bench.study.worker import run_cell_task, run_trunk_task

DEFAULTS_ONLY = (
    "no trial of a search is finished here, so only the paper's default is confirmed; run the search stage, too, to "
    "confirm the best configurations"
)


class Session(Books):
    """One `tune` call while it computes."""

    # baselines -------------------------------------------------------------------------------------------------------

    def run_trunks(self, trunks: Sequence[Trunk], gpus: float, limit: int) -> None:
        """Compute baselines side by side.

        Raises:
            ConfigError, DataError: the user's input made some fail.
            RunError: some failed for another reason; every message is listed.
        """
        self.progress.stage("baselines", len(trunks))
        failures: list[Failure] = []
        jobs = {}
        for trunk in trunks:
            name, rounds = f"{trunk.algorithm} baseline seed {trunk.seed}", trunk.config.federation.rounds
            arguments = (trunk.algorithm, trunk.seed, trunk.fork_rounds)
            job = Job(name, trunk.entry.key, trunk.entry.journal.path, rounds, arguments)
            jobs[job.key] = job
        run_jobs(
            self.crew(gpus, limit),
            list(jobs.values()),
            run_trunk_task,
            lambda job, answer: failures.extend(self._ended("trunk", job, answer)),
        )
        refuse(failures)

    def _ended(self, kind: Any, job: Job, answer: Json) -> list[Failure]:
        """A run that is no trial's ended; gives its failure, if it failed."""
        result = self.plan.runtime.store.result(kind, job.key)
        self._spend(answer.get("rounds", 0))
        if answer["status"] == "stopped":
            self.progress.drop(job.key)
            return []
        if result is None:
            error = answer["error"] or "it ended without a result"
            self.manifest.fail(f"{kind}:{job.key}", error)
            self.progress.end(job.key, job.name, "failed", {}, error)
            return [Failure(job.name, error, answer.get("kind", ""))]
        self.trunks_computed += kind == "trunk"
        self.computed |= {job.key} if kind == "cell" else set()
        shown = {name: result["final"][name] for name in self.plan.request.objectives if name in result["final"]}
        self.progress.end(job.key, job.name, result["status"], shown)
        return []

    def named(self, point: Json) -> str:
        """A point in a few words."""
        return label(point)

    def modelled(self, job: Job, answer: Json) -> None:
        """A model was computed again, or not."""
        self._spend(answer.get("rounds", 0))
        if answer["status"] == "finished":
            self.progress.end(job.key, job.name, "completed", {})
        else:
            self.progress.drop(job.key)
            self.remarks += [f"no {job.name}: {answer['error']}"] if answer["error"] else []

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

    def search(self, ledger: Ledger, first: Proposal | None, gpus: float, limit: int) -> None:
        """Let Tune run a ledger's trials."""
        name = "search" if len(self.ledgers) == 1 else f"search {', '.join(ledger.space.algorithms)}"
        self.progress.stage(name, ledger.remaining + len(ledger.in_flight))
        tuner.search(self.crew(gpus, limit), ledger, first, self.started, self.settled, lambda: self.ended)

    # confirmation ----------------------------------------------------------------------------------------------------

    def choose_arms(self) -> list[tuple[list[Arm], tuple[int, ...]]]:
        """What the confirm stage computes next, with its seeds; in a race the second heat needs the first's results."""
        request = self.plan.request
        if request.points is not None:
            return [([Arm(label(point), point) for point in request.points], request.final_seeds)]
        if not self.ledgers:
            return []
        ledger = self.ledgers[0]
        if not request.race:
            arms = [*leaders(self.plan, ledger), *fixed_arms(self.plan)]
            return [(with_controls(self.plan, arms), request.final_seeds)]
        heat, few = first_heat(self.plan, ledger), request.final_seeds[:RACE_SEEDS]
        best = winners(self.plan, heat, few)
        return [(heat, few), (with_controls(self.plan, [*best, *fixed_arms(self.plan)]), request.final_seeds)]

    def unconfirmed(self, arms: Sequence[Arm], seeds: Sequence[int]) -> tuple[list[Trunk], list[tuple[Arm, int]]]:
        """Baselines and cells that the store does not have yet."""
        store, plan = self.plan.runtime.store, self.plan
        missing: dict[str, tuple[Arm, int]] = {}
        for arm in arms:
            for seed in seeds:
                entry = plan.entry(arm.point, seed)
                if entry.kind == "cell" and store.result("cell", entry.key) is None:
                    missing.setdefault(entry.key, (arm, seed))
        cells = list(missing.values())
        forks = sorted({plan.lineage(arm.point, seed)[0].last for arm, seed in cells})
        trunks = [trunk for trunk in plan.trunks(seeds, forks) if store.result("trunk", trunk.entry.key) is None]
        return trunks, cells

    def list_points(self) -> None:
        """Put the baselines and runs that the request names on the tracking list, those of the store included."""
        for arms, seeds in self.choose_arms():
            for trunk in self.plan.trunks(seeds, ()):
                self.list_trunk(trunk)
            for arm in arms:
                self.list_cells(arm.point, arm.number, seeds, arm.name, arm.role)

    def confirm(self, gpus: float, limit: int) -> None:
        """Compute the best configurations and the fixed arms on all seeds."""
        if self.confirms_defaults_only:
            self.progress.note(DEFAULTS_ONLY)
        for heat in range(len(self.choose_arms())):
            arms, seeds = self.choose_arms()[heat]
            trunks, cells = self.unconfirmed(arms, seeds)
            for trunk in self.plan.trunks(seeds, ()):
                self.list_trunk(trunk)
            if trunks:
                self.run_trunks(trunks, gpus, limit)
            if self.interrupts.stopping:
                return
            self.progress.stage("confirmation" if self.plan.request.points is None else "forks", len(cells))
            jobs = [self._job(arm, seed) for arm, seed in cells]
            run_jobs(self.crew(gpus, limit), jobs, run_cell_task, self._confirmed)

    @property
    def confirms_defaults_only(self) -> bool:
        """Whether no search gives the confirm stage anything to choose from."""
        asked = "confirm" in self.plan.request.stages and self.plan.request.space.relabels
        return asked and not any(ledger.finished for ledger in self.ledgers)

    def confirmed_arms(self) -> list[Arm]:
        """What the confirm stage has to show."""
        return [arm for arms, _ in self.choose_arms()[-1:] for arm in arms]

    def confirmed_runs(self) -> list[tuple[Json, int]]:
        """Points and seeds that the confirm stage has finished, those of a first heat included."""
        runs = [(arm.point, seed) for arms, seeds in self.choose_arms() for arm in arms for seed in seeds]
        return [run for run in runs if (self.plan.entry(*run).folder / "result.json").exists()]

    def _job(self, arm: Arm, seed: int) -> Job:
        self.list_cells(arm.point, arm.number, [seed], arm.name, arm.role)
        own = self.plan.lineage(arm.point, seed)[-1]
        name, rounds = f"{arm.name} seed {seed}", own.last - own.first + 1
        return Job(name, own.entry.key, own.entry.journal.path, rounds, (arm.point, seed))

    def _confirmed(self, job: Job, answer: Json) -> None:
        self.failures += [f"{failure.name}: {failure.error}" for failure in self._ended("cell", job, answer)]
