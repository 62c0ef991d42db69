"""fedrela-bench: federated learning under class imbalance, with and without FedReLa's label re-allocation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedrela_bench.config import TrialConfig

if TYPE_CHECKING:
    from fedrela_bench.data import load_dataset
    from fedrela_bench.simulation import Simulation

__version__ = "0.1.0"
__all__ = ["Simulation", "TrialConfig", "__version__", "load_dataset"]


def __getattr__(name: str) -> object:
    """Import the heavy names on first use, so that reading a configuration does not import torch."""
    if name == "load_dataset":
        from fedrela_bench.data import load_dataset

        return load_dataset
    if name == "Simulation":
        from fedrela_bench.simulation import Simulation

        return Simulation
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
