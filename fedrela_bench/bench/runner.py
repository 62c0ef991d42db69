"""Runs workloads one after the other into one result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from fedrela_bench.bench.case import Case, prepare
from fedrela_bench.bench.machine import describe
from fedrela_bench.bench.measure import Settings, measure_round
from fedrela_bench.bench.memory import measure_memory
from fedrela_bench.bench.relabeling import measure_relabel
from fedrela_bench.bench.results import SCHEMA
from fedrela_bench.bench.workloads import WORKLOADS
from fedrela_bench.nested import Json

MEASURES = {"round": measure_round, "relabel": measure_relabel, "memory": measure_memory}


def run(
    names: Sequence[str],
    short: bool,
    settings: Settings,
    command: str,
    say: Callable[[str], None],
    data_dir: Path | None = None,
) -> Json:
    """Measure workloads.

    Args:
        names: of `WORKLOADS`.
        short: their short forms.
        settings: repetitions and variants.
        command: what the user typed.
        say: takes lines of progress.
        data_dir: first place to look for real images.

    Returns:
        The document: schema, command, machine, settings and one entry per case.
    """
    torch.set_num_threads(1)
    cases = [measure_case(prepare(WORKLOADS[name], short, settings.device, data_dir), settings, say) for name in names]
    return {
        "schema": SCHEMA,
        "command": command,
        "machine": describe(settings.device),
        "settings": {
            "short": short,
            "rounds": settings.rounds,
            "workers": list(settings.workers),
            "amp": list(settings.amps),
            "device": settings.device,
        },
        "cases": cases,
    }


def measure_case(case: Case, settings: Settings, say: Callable[[str], None]) -> Json:
    """One entry of the document: definition, figures and ratios."""
    return {
        "key": case.key,
        "workload": case.workload.name,
        "short": case.short,
        "purpose": case.workload.purpose,
        "config": case.config.model_dump(mode="json"),
        "images": "real" if case.real_images else "synthetic",
        "notes": case.notes(),
        "samples": case.samples,
        "evaluated": case.evaluated,
        "left_out": list(case.left_out),
        "targets": {} if case.short else dict(case.workload.targets),
        **MEASURES[case.workload.kind](case, settings, say),
    }
