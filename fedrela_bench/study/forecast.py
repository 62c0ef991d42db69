"""What a study will write, before it starts."""

from __future__ import annotations

from fedrela_bench.study.plan import Plan

FLOOR = 50 * 2**20
"""Journals, results, MLflow's database and Ray's logs of a small study."""


def disk_bytes(plan: Plan, concurrent: int) -> int:
    """Bytes the study still adds: missing snapshots of its baselines, rolling states, and small files.

    Counts the model and the server; what an algorithm keeps per client comes on top when it has trained.
    """
    total = FLOOR
    for algorithm in plan.bases:
        trunks = [trunk for trunk in plan.trunks() if trunk.algorithm == algorithm]
        missing = [sum(not trunk.entry.snapshot(fork).exists() for fork in trunk.fork_rounds) for trunk in trunks]
        if any(missing):
            config = trunks[0].config
            dataset = plan.runtime.engine.dataset(config, plan.request.data_dir, plan.request.cache_dir)
            run = plan.runtime.engine.simulation(config, dataset, "cpu")
            total += (sum(missing) + 2 * concurrent) * int(run.snapshot().nbytes)
    return total
