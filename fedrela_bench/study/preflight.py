"""Everything that can be known about a study before it starts, looked at without writing anything."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from fedrela_bench.config import TrialConfig
from fedrela_bench.study.address import address_of, knock
from fedrela_bench.study.cluster import (
    check_cpus,
    cluster_capacity,
    concurrency,
    is_connected,
    local_capacity,
    pick_device,
)
from fedrela_bench.study.engine import Runtime
from fedrela_bench.study.faults import Faults
from fedrela_bench.study.forecast import branch_bytes, disk_bytes, free_bytes, model_bytes, space_faults
from fedrela_bench.study.identity import check_identity
from fedrela_bench.study.paths import path_faults
from fedrela_bench.study.plan import Plan
from fedrela_bench.study.request import MOST, TuneRequest, seed_faults
from fedrela_bench.study.store import Store
from fedrela_bench.study.survey import Survey, with_objectives

STOP_FILE = ".stop"
SPARE = 0.5
"""Share of the space beyond the study's needs that may be used to compute less."""
CONCURRENT = 8
"""Trials at a time that the disk forecast reckons with where --max-concurrent does not say."""


@dataclass(frozen=True)
class Checked:
    """A request that can work."""

    plan: Plan
    gpus: float
    """GPUs that each trial asks for."""


def preflight(request: TuneRequest) -> Checked:
    """Check request, machine, paths, datasets and models; writes nothing.

    Raises:
        ConfigError, DataError: every fault that can be known together, in one message.
    """
    request, faults = request.rooted(), Faults()
    faults.add(request.faults())
    faults.add(path_faults(request.out, request.store, request.tracking_uri))
    device, gpus = _place(request, faults)
    if seed_faults(request.all_seeds) or seed_faults(request.every_seed):
        faults.refuse()
    plan = make_plan(request, request.selecting(), device or "cpu", faults)
    faults.refuse()
    check_identity(plan)
    faults.add(memory_faults(plan, gpus))
    plan = fitting(plan)
    faults.add(space_faults(request.store_dir, disk_bytes(plan, request.max_concurrent or CONCURRENT)))
    faults.refuse()
    return Checked(plan, gpus)


def _place(request: TuneRequest, faults: Faults) -> tuple[str, float]:
    """Device and GPUs of a trial; what no machine here can run is refused at once, before images are read."""
    address, connected = address_of(request), is_connected()
    sound, local = 1 <= request.cpus_per_trial <= MOST, address is None and not connected
    if address is not None and not connected:
        faults.require(lambda: knock(address))
    if sound and local:
        faults.require(lambda: check_cpus(request))
    device, gpus = faults.attempt(("", 0.0), lambda: pick_device(request))
    if sound and device and (local or connected):
        faults.require(lambda: concurrency(request, gpus, cluster_capacity() if connected else local_capacity(device)))
    return device, gpus


def memory_faults(plan: Plan, gpus: float) -> list[str]:
    """Why trials cannot share a GPU so: the share is below what a finished baseline of this study held at its peak."""
    faults: dict[str, str] = {}
    for trunk in plan.trunks() if 0 < gpus < 1 else ():
        result = plan.runtime.store.result("trunk", trunk.entry.key) or {}
        total, peak = (result.get("gpu_memory", {}).get(name, 0) / 2**20 for name in ("total_bytes", "peak_bytes"))
        # A share is written with four digits.
        if 1.001 * gpus * total < peak:
            most = max(1, int(total / peak))
            faults[trunk.algorithm] = (
                f"--gpus-per-trial {gpus:.4g} gives a trial {gpus * total:,.0f} of a GPU's {total:,.0f} MiB, but the "
                f"{trunk.algorithm} baseline with seed {trunk.seed} held {peak:,.0f} MiB; use {1 / most:.4g} or more "
                f"(at most {most} on a GPU)"
            )
    return list(faults.values())


def fitting(plan: Plan) -> Plan:
    """The plan without scored models of every trial, and without states for periodic runs to branch off, where the
    disk has no room to spare for them.
    """
    bare = replace(plan, runtime=replace(plan.runtime, model_seed=None))
    needed = disk_bytes(bare, plan.request.max_concurrent or CONCURRENT)
    if model_bytes(plan) > SPARE * (free_bytes(plan.request.store_dir) - needed):
        plan = bare
    if plan.runtime.periods is None:
        return plan
    needed = disk_bytes(plan, plan.request.max_concurrent or CONCURRENT)
    if branch_bytes(plan) <= SPARE * (free_bytes(plan.request.store_dir) - needed):
        return plan
    return replace(plan, runtime=replace(plan.runtime, periods=None))


def make_plan(
    request: TuneRequest, bases: Mapping[str, TrialConfig], device: str, faults: Faults | None = None
) -> Plan:
    """Load the datasets once to know their digests, build every model without memory, and fix what keys depend on.

    Args:
        request: rooted.
        bases: with images to select on.
        device: of trials.
        faults: takes faults of data and models; without it they are raised.

    Raises:
        ConfigError: a model does not suit its dataset.
        DataError: a dataset is missing or cannot be split as asked.
    """
    found = faults if faults is not None else Faults()
    survey = Survey(request)
    for base in bases.values():
        found.attempt(None, partial(survey.look, base))
    if faults is None:
        found.refuse()
    request, told = with_objectives(request, survey.measured)
    runtime = Runtime(
        store=Store(request.store_dir),
        engine=request.engine,
        device=device,
        device_class=_device_class(device),
        threads=request.cpus_per_trial,
        rolling_seconds=request.rolling_seconds,
        rolling_rounds=request.rolling_rounds,
        periods=request.periods,
        starts=request.space.shared_starts(bases),
        futility=request.futility and replace(request.futility, objectives=request.objectives),
        stop_file=request.out.resolve() / STOP_FILE,
        model_seed=request.search_seeds[0] if request.log_models == "best" else None,
    )
    return Plan(
        request,
        dict(bases),
        runtime,
        survey.digests,
        request.out.resolve(),
        snapshot_bytes={name: size.snapshot for name, size in survey.sizes.items()},
        posterior_bytes={name: size.posteriors for name, size in survey.sizes.items()},
        data_notes=tuple(dict.fromkeys([*survey.notes, *told])),
        model_bytes={name: size.model for name, size in survey.sizes.items()},
        datasets=survey.facts,
    )


def _device_class(device: str) -> str:
    if device == "cpu":
        return f"cpu {platform.machine()}"
    import torch

    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else device
