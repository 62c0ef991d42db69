"""Everything a simulation needs to go on, as one value and as one file."""

from __future__ import annotations

import hashlib
import io
import pickle
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedrela_bench.config import TrialConfig, digest
from fedrela_bench.errors import StoreError
from fedrela_bench.files import write_atomically

MAGIC = b"fedrela-bench snapshot "


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
    parts = {name: getattr(config, name).model_dump(mode="json") for name in ("federation", "training")}
    if config.evaluation.early_stop_patience:
        parts["evaluation"] = config.evaluation.model_dump(mode="json")
    return digest({**parts, "seed": config.seed, "data": data_digest})


def save_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Write one file, atomically: temporary name, fsync, rename. Its first line holds the digest of the rest.

    Raises:
        StoreError: the file cannot be written (full disk, permissions); what was under `path` before is still there.
    """
    buffer = io.BytesIO()
    torch.save(asdict(snapshot), buffer)
    data = buffer.getvalue()
    try:
        write_atomically(path, MAGIC + _digest(data).encode() + b"\n" + data)
    except OSError as error:
        raise StoreError(
            f"cannot write snapshot {path}: {error.strerror or error}; free space or choose --out"
        ) from error


def load_snapshot(path: Path) -> Snapshot:
    """Read a snapshot and check it against its digest.

    Raises:
        StoreError: missing, damaged or written by another version.
    """
    try:
        head, _, data = path.read_bytes().partition(b"\n")
    except OSError as error:
        raise StoreError(f"cannot read snapshot {path}: {error.strerror or error}") from error
    if head != MAGIC + _digest(data).encode():
        raise StoreError(f"snapshot {path} is damaged (its digest does not match); delete it to compute it again")
    try:
        return Snapshot(**torch.load(io.BytesIO(data), weights_only=True))
    except (TypeError, RuntimeError, pickle.UnpicklingError) as error:
        raise StoreError(f"snapshot {path} was written by another version; delete it to compute it again") from error


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
