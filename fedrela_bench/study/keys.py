"""Content addresses: a trunk or cell has one key for everything that can change a bit of its result, and nothing else.

A cell's key is a hash over its trunk's key and the steps after the fork, so that forks that share more than the trunk
can be given a node between the two without changing either.

Keys last longer than versions of this package. Where one of them comes to know more (a field of the configuration, a
fact about data or arithmetic), what was computed before keeps its key: a field by `fedrela_bench.neutral`, a fact by
being absent where it changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from fedrela_bench.config import TrialConfig
from fedrela_bench.nested import digest
from fedrela_bench.neutral import deciding


@dataclass(frozen=True)
class Fingerprint:
    """What a result depends on besides its configuration: data, arithmetic and code."""

    data_digest: str
    numerics: tuple[tuple[str, Any], ...]
    simulation_version: str
    plugins: tuple[str, ...] = ()
    """Digests of code of one's own that the base run needs; () keeps the keys of runs without any."""
    relabel_plugins: tuple[str, ...] = ()
    """The same of relabelling, which only cells depend on."""


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
    values = deciding(config.base())
    del values["relabel"]
    # Images are covered by the digest; the kind of source still chooses the default model.
    values["data"]["source"] = config.data.source.partition(":")[0]
    return digest(
        {
            "config": values,
            "data": fingerprint.data_digest,
            "numerics": dict(fingerprint.numerics),
            "simulation": fingerprint.simulation_version,
            **({"plugins": list(fingerprint.plugins)} if fingerprint.plugins else {}),
        }
    )


def cell_key(config: TrialConfig, fingerprint: Fingerprint) -> str:
    """The key of a run that forks from its trunk: H(trunk key, fork round, relabelling)."""
    own = {"plugins": list(fingerprint.relabel_plugins)} if fingerprint.relabel_plugins else {}
    return digest({"trunk": trunk_key(config, fingerprint), "fork": config.relabelling(), **own})
