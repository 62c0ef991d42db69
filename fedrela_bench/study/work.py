"""What one `tune` call has left to do, stage by stage."""

from __future__ import annotations

import json
from pathlib import Path

from fedrela_bench.study.cluster import cluster_capacity, concurrency
from fedrela_bench.study.connection import ray_session
from fedrela_bench.study.ledger import Ledger, Proposal, open_study
from fedrela_bench.study.models import compute_models, unmodelled
from fedrela_bench.study.plan import Plan, Trunk
from fedrela_bench.study.shared import prove_shared
from fedrela_bench.study.stages import Session

JOURNAL = "optuna.journal"


def open_ledgers(plan: Plan) -> list[Ledger]:
    """The study's books, up to date: one for the search, or one for every algorithm where each is tuned alone.

    None where nothing is searched.
    """
    request = plan.request
    if request.points is not None:
        return []
    where: Path | str = request.optuna_storage or request.out / JOURNAL
    prefix = "" if request.optuna_storage is None else f"{request.out.resolve().name}-{_study_id(plan)}-"
    spaces = {"study": request.space}
    if request.base_only:
        # Equal budgets: a sampler that saw all algorithms would favour one.
        spaces = {f"base-{name}": request.space.with_algorithms([name]) for name in plan.bases}
    ledgers = []
    for name, space in spaces.items():
        study = open_study(where, len(request.objectives), request.sampler, request.search_seed, prefix + name)
        ledgers.append(Ledger(study, plan, space))
        ledgers[-1].start()
    return ledgers


def _study_id(plan: Plan) -> str:
    return str(json.loads((plan.request.out / "study.json").read_text(encoding="utf-8"))["study"])


class Work:
    """Baselines and trials that are missing, by the stages that were asked for."""

    def __init__(self, session: Session) -> None:
        self.session = session
        plan, stages = session.plan, session.plan.request.stages
        searching = "search" in stages or plan.request.base_only
        self.first: list[tuple[Ledger, Proposal]] = []
        for ledger in session.ledgers if searching else ():
            proposal = ledger.next_point()
            if proposal is not None:
                self.first.append((ledger, proposal))
        self.trunks: list[Trunk] = []
        if plan.request.points is not None:
            session.list_points()
        elif not plan.request.base_only:
            for trunk in plan.trunks():
                session.list_trunk(trunk)
            missing = [trunk for trunk in plan.trunks() if self._unfinished(trunk)]
            self.trunks = missing if "trunks" in stages else []
        self.confirming = "confirm" in stages
        self.trying = searching or self.confirming

    @property
    def anything(self) -> bool:
        """Whether there is something to compute at all."""
        return bool(self.first or self.trunks or (self.confirming and self._unconfirmed()) or self._unmodelled())

    def compute(self, gpus: float) -> None:
        """Go through the stages."""
        session = self.session
        request = session.plan.request
        if session.interrupts.stopping:
            return
        with ray_session(request, session.plan.runtime.device, session.interrupts.install):
            folders = (request.store_dir, request.out.resolve())
            prove_shared(folders, session.progress.note, lambda: session.interrupts.stopping)
            capacity = cluster_capacity()
            limit = concurrency(request, gpus, capacity)
            session.nodes.several = len(capacity.nodes) > 1
            if session.interrupts.stopping:
                return
            if self.trunks:
                session.run_trunks(self.trunks, gpus, limit)
            session.check_objectives()
            for ledger, proposal in self.first:
                if not session.ended:
                    session.search(ledger, proposal, gpus, limit)
            if self.confirming and not session.interrupts.stopping:
                session.confirm(gpus, limit)
            if self.trying and not session.interrupts.stopping:
                compute_models(session, gpus, limit)

    def _unfinished(self, trunk: Trunk) -> bool:
        plan = self.session.plan
        if plan.runtime.store.result("trunk", trunk.entry.key) is None:
            return True
        searching = bool(self.first)
        return searching and any(not trunk.entry.snapshot(fork).exists() for fork in trunk.fork_rounds)

    def _unmodelled(self) -> bool:
        return self.trying and bool(unmodelled(self.session))

    def _unconfirmed(self) -> bool:
        return any(any(self.session.unconfirmed(arms, seeds)) for arms, seeds in self.session.choose_arms())
