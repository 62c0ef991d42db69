"""Everything a simulation needs to go on, as one value and as one file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from fedrela_bench.config import TrialConfig
from fedrela_bench.nested import digest
from fedrela_bench.neutral import deciding
from fedrela_bench.simulation.sealed import read_values, write_values

KIND = "snapshot"


@dataclass(frozen=True)
class Snapshot:
    """State after `round` completed rounds; tensors are copies on the CPU."""

    version: str
    base_key: str
    """Names the run without its relabelling; a snapshot restores only into the same one."""
    relabel: dict[str, Any] | None
    """The relabel section once it has had any effect, else None: then every relabel setting can fork from here."""
    round: int
    status: str
    params: Tensor
    buffers: Tensor
    counters: list[Tensor]
    server_state: dict[str, Tensor]
    client_states: dict[int, dict[str, Tensor]]
    private: dict[int, dict[str, Tensor]]
    labels: Tensor
    """(n,) labels in force."""
    refreshes: dict[int, int]
    """Last relabel refresh that each client did."""
    best: tuple[float, int]
    """Best selection value so far and evaluations since, for early stopping."""

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        tensors = [self.params, self.buffers, self.labels, *self.counters, *self.server_state.values()]
        for states in (*self.client_states.values(), *self.private.values()):
            tensors += states.values()
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def base_key(config: TrialConfig, data_digest: str) -> str:
    """A name for the training run without relabelling: whatever decides its bits, and nothing else."""
    parts = deciding(config)
    del parts["relabel"]
    if not config.evaluation.early_stop_patience:
        del parts["evaluation"]
    return digest({**parts, "data": data_digest})


def save_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Write one file, atomically, with its digest.

    Raises:
        StoreError: the file cannot be written (full disk, permissions); what was under `path` before is still there.
    """
    write_values(path, KIND, asdict(snapshot))


def load_snapshot(path: Path) -> Snapshot:
    """Read a snapshot and check it against its digest.

    Raises:
        StoreError: missing, damaged or written by another version.
    """
    return read_values(path, KIND, Snapshot)
