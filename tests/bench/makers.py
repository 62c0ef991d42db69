"""Doctored measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedrela_bench.bench.figures import lane_json, ratio_json
from fedrela_bench.bench.results import SCHEMA
from fedrela_bench.bench.timing import Span

MACHINE = {
    "cpu": "Some Processor 1234 with a long name @ 2.00GHz",
    "flags": ["avx2", "fma", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16"],
    "cores": 2,
    "threads": 1,
    "device": "cpu",
    "system": "Linux x86_64",
    "python": "3.11.0",
    "torch": "2.9.0",
    "fedrela_bench": "0.1.0",
}


def spans(*seconds: float) -> list[Span]:
    """Repetitions of a process that nothing disturbed."""
    return [Span(value, value) for value in seconds]


def case(key: str = "fm", ratios: Mapping[str, Sequence[float]] | None = None) -> dict[str, Any]:
    """An entry of a result with the given ratios."""
    values = {"ours/naive": [0.57, 0.58, 0.59], "round/bare": [1.02, 1.03, 1.04]} if ratios is None else ratios
    return {
        "key": key,
        "workload": key.partition(" ")[0],
        "short": key.endswith(" short"),
        "purpose": "a round of something with a description that is longer than a line of a terminal has columns",
        "config": {},
        "images": "synthetic",
        "notes": ["synthetic images"],
        "samples": 12_000,
        "evaluated": 10_000,
        "left_out": [50.0, 5.0],
        "targets": {"ours/naive": 0.57, "round/bare": 1.05},
        "lanes": {
            name: lane_json(spans(1234.5, 1250.0, 1300.0), 12_000, 40.0)
            for name in ("ours", "ours bf16 w16", "naive", "bare")
        },
        "ratios": {name: ratio_json(list(listed)) for name, listed in values.items()},
        "parts": {"none": {"forward": 123.4, "backward": 0.0123, "optimiser": 1.5, "evaluation": 12.0}},
        "floors": {
            amp: {
                "layers_seconds": {"median": 9876.5, "low": 9000.0, "high": 10_000.0},
                "products_seconds": 0.5,
                "flops": 1e12,
                "product_flops_per_second": 1.5e15,
            }
            for amp in ("none", "bf16")
        },
        "memory": {"10": {"start": 1 << 29, "peak": 1 << 30, "state": 0}},
        "peak_rss_mib": 12_345.6,
        "peak_gpu_mib": 12_345.6,
    }


def result(*cases: dict[str, Any]) -> dict[str, Any]:
    """A document."""
    return {"schema": SCHEMA, "command": "fedrela-bench bench fm", "machine": MACHINE, "cases": list(cases)}
