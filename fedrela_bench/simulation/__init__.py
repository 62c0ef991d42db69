"""The federated simulator; knows nothing of tuning, tracking or reports."""

from fedrela_bench.algorithms import default_options
from fedrela_bench.simulation.firstpass import PosteriorFolder, PosteriorStore
from fedrela_bench.simulation.loop import Simulation
from fedrela_bench.simulation.metrics import RoundResult, shot_groups
from fedrela_bench.simulation.snapshot import Snapshot, load_snapshot, save_snapshot
from fedrela_bench.simulation.state import SIMULATION_VERSION

__all__ = [
    "SIMULATION_VERSION",
    "PosteriorFolder",
    "PosteriorStore",
    "RoundResult",
    "Simulation",
    "Snapshot",
    "default_options",
    "load_snapshot",
    "save_snapshot",
    "shot_groups",
]
