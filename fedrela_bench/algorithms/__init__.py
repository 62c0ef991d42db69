"""Base algorithms, one file each, behind one contract."""

from fedrela_bench.algorithms import fedavg, fedetf, fedetf_dotreg, fedprox
from fedrela_bench.algorithms.base import (
    Algorithm,
    Batch,
    ClientUpdate,
    LocalContext,
    ModelSize,
    Options,
    Scope,
    Server,
)
from fedrela_bench.algorithms.registry import ALGORITHMS, build_algorithm, check_algorithm, register

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Batch",
    "ClientUpdate",
    "LocalContext",
    "ModelSize",
    "Options",
    "Scope",
    "Server",
    "build_algorithm",
    "check_algorithm",
    "fedavg",
    "fedetf",
    "fedetf_dotreg",
    "fedprox",
    "register",
]
