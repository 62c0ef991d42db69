"""What runs in Ray's processes: trunks as tasks, trials as reused actors. Nothing here knows of MLflow or Optuna."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fedrela_bench.config import TrialConfig
from fedrela_bench.errors import RunError
from fedrela_bench.nested import Json, canonical_json
from fedrela_bench.plugins import activate
from fedrela_bench.study.cell import run_cell, run_model
from fedrela_bench.study.engine import Stopped
from fedrela_bench.study.failures import describe
from fedrela_bench.study.futility import Futile
from fedrela_bench.study.plan import Plan, combine
from fedrela_bench.study.space import ALGORITHM
from fedrela_bench.study.trunk import run_trunk

_DATASETS: dict[str, Any] = {}
"""Datasets of this process; arrays are memory-mapped, so that they cost little."""


def run_trunk_task(plan: Plan, algorithm: str, seed: int, forks: Sequence[int], gpu_share: float) -> Json:
    """Compute one baseline; the result is in the store, the return value says how it went."""
    trunk = next(t for t in plan.trunks([seed], forks) if t.algorithm == algorithm)

    def work() -> Json:
        run_trunk(trunk.config, dataset_of(plan, trunk.config, algorithm), plan.runtime, trunk.fork_rounds)
        return {}

    return _guarded(plan, trunk.entry.key, gpu_share, work)


def run_cell_task(plan: Plan, point: Json, seed: int, gpu_share: float) -> Json:
    """Compute one configuration for one seed."""
    # What is to be confirmed is computed to its end.
    runtime = replace(plan.runtime, futility=None)

    def work() -> Json:
        config = plan.config(point, seed)
        run_cell(config, dataset_of(plan, config, point[ALGORITHM]), runtime)
        return {}

    return _guarded(plan, plan.entry(point, seed).key, gpu_share, work)


def run_model_task(plan: Plan, point: Json, seed: int, gpu_share: float) -> Json:
    """Compute the scored model of a finished run again."""

    def work() -> Json:
        config = plan.config(point, seed)
        run_model(config, dataset_of(plan, config, point[ALGORITHM]), plan.runtime)
        return {}

    return _guarded(plan, plan.entry(point, seed).key, gpu_share, work)


def run_trial(plan: Plan, suggestion: Json, gpu_share: float) -> Json:
    """Compute one configuration for every seed; the results are in the store."""
    point = suggestion["point"]

    def work() -> Json:
        results = []
        for seed in plan.seeds:
            config = plan.config(point, seed)
            results.append(run_cell(config, dataset_of(plan, config, point[ALGORITHM]), plan.runtime))
        values = combine(results, plan.request.objectives).values
        return dict(zip(plan.request.objectives, values, strict=True))

    return _guarded(plan, suggestion["key"], gpu_share, work)


def trainable(plan: Plan, gpu_share: float) -> Callable[[Json], Json]:
    """The function that Tune calls; it carries paths and settings, never data."""

    def fedrela_trial(config: Json) -> Json:
        return run_trial(plan, config, gpu_share)

    return fedrela_trial


def dataset_of(plan: Plan, config: TrialConfig, algorithm: str) -> Any:
    """The configuration's dataset, loaded once per process.

    Raises:
        RunError: this node's images differ from the driver's.
    """
    partition = config.data.partition_seed if config.data.partition_seed is not None else config.seed
    name = canonical_json([config.data.model_dump(mode="json"), config.federation.clients, partition])
    if name not in _DATASETS:
        request = plan.request
        _DATASETS[name] = plan.runtime.engine.dataset(config, request.data_dir, request.cache_dir)
    dataset = _DATASETS[name]
    if dataset.digest != plan.digests[algorithm, config.seed]:
        raise RunError(
            "this node reads other images than the driver (digests differ); give all nodes the same --data-dir"
        )
    return dataset


def _where() -> Json:
    """The node that this process is on."""
    import ray

    if not ray.is_initialized():
        return {}
    return {"node": ray.get_runtime_context().get_node_id(), "host": socket.gethostname()}


def _guarded(plan: Plan, key: str, gpu_share: float, work: Callable[[], Json]) -> Json:
    """Run in a prepared process; a failure becomes text, so that the process can be used again."""
    meter, where = plan.runtime.meter, _where()
    meter.rounds = 0
    try:
        activate(plan.request.plugins)
        with plan.runtime.engine.process(plan.runtime.threads, gpu_share):
            return {"status": "finished", "error": None, **where, **work(), "rounds": meter.rounds}
    except Stopped:
        return {"status": "stopped", "error": None, **where, "rounds": meter.rounds}
    except Futile as why:
        return {"status": "futile", "error": str(why), **where, "rounds": meter.rounds}
    except Exception as error:
        return {**describe(error, plan.folder, key), **where, "rounds": meter.rounds}
