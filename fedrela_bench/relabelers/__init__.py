"""Relabelers, one file each, behind one contract: FedReLa, its controls, and label correction by loss."""

from fedrela_bench.relabelers import fedrela, loss, none, random
from fedrela_bench.relabelers.base import Client, Options, Relabeler, Relabelled, run
from fedrela_bench.relabelers.registry import (
    RELABELERS,
    build_relabeler,
    is_control,
    register_relabeler,
    relabeler_faults,
)

__all__ = [
    "RELABELERS",
    "Client",
    "Options",
    "Relabeler",
    "Relabelled",
    "build_relabeler",
    "fedrela",
    "is_control",
    "loss",
    "none",
    "random",
    "register_relabeler",
    "relabeler_faults",
    "run",
]
