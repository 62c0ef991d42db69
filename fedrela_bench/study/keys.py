"""Content addresses: a trunk or cell has one key for everything that can change a bit of its result, and nothing else.

A cell's key is a hash over its trunk's key and the steps after the fork, so that forks that share more than the trunk
can be given a node between the two without changing either.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from fedrela_bench.config import TrialConfig, digest


@dataclass(frozen=True)
class Fingerprint:
    """What a result depends on besides its configuration: data, arithmetic and code."""

    data_digest: str
    numerics: tuple[tuple[str, Any], ...]
    simulation_version: str


def numerics(config: TrialConfig, device_class: str, threads: int) -> tuple[tuple[str, Any], ...]:
    """Everything about the arithmetic that can change a bit: precision, device class, threads, torch version."""
    return (
        ("amp", config.training.amp),
        ("device", device_class),
        ("dtype", config.training.dtype),
        ("threads", threads),
        ("torch", version("torch")),
    )


def trunk_key(config: TrialConfig, fingerprint: Fingerprint) -> str:
    """The key of the base run of a configuration (relabelling ignored): 32 hexadecimal digits."""
    values = config.base().model_dump(mode="json")
    del values["relabel"]
    # Images are covered by the digest; the kind of source still chooses the default model.
    values["data"]["source"] = config.data.source.partition(":")[0]
    return digest(
        {
            "config": values,
            "data": fingerprint.data_digest,
            "numerics": dict(fingerprint.numerics),
            "simulation": fingerprint.simulation_version,
        }
    )


def cell_key(config: TrialConfig, fingerprint: Fingerprint) -> str:
    """The key of a run that forks from its trunk: H(trunk key, fork round, relabelling)."""
    return digest({"trunk": trunk_key(config, fingerprint), "fork": config.relabelling()})
