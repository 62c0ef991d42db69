"""Posteriors of the first relabelling pass, shared by runs that differ in what they make of them.

At T every fork of a base run has the same global model, so the posterior of the pass at T does not depend on tau or on
any other option of the re-allocation: it is computed once. Later passes see models that have already parted.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fedrela_bench.config import TrialConfig
from fedrela_bench.files import write_atomically
from fedrela_bench.nested import digest
from fedrela_bench.neutral import deciding
from fedrela_bench.simulation.snapshot import base_key
from fedrela_bench.simulation.state import SIMULATION_VERSION

LARGEST_BYTES = 64 << 20
"""Larger passes are computed anew: keeping them would cost more disk than time."""
SEAL_BYTES = 16
"""Digest at the end of a file: the format itself reads some damaged headers as other numbers."""


class PosteriorStore(Protocol):
    """Keeps the posteriors of a pass by a key that names everything they depend on."""

    def load(self, key: str) -> dict[int, np.ndarray] | None:
        """(n_k, C) float64 per client, or None."""

    def save(self, key: str, posteriors: dict[int, np.ndarray]) -> None:
        """Keep them; may do nothing."""


class PosteriorFolder:
    """A store of files, one per pass; a file that cannot be read counts as absent.

    Args:
        folder: made when first written to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, key: str) -> dict[int, np.ndarray] | None:
        """See `PosteriorStore`."""
        try:
            data = (self.folder / f"{key}.npz").read_bytes()
        except OSError:
            return None
        content, seal = data[:-SEAL_BYTES], data[-SEAL_BYTES:]
        if _seal(content) != seal:
            return None
        with np.load(io.BytesIO(content)) as file:
            return {int(name): file[name] for name in file.files}

    def save(self, key: str, posteriors: dict[int, np.ndarray]) -> None:
        """See `PosteriorStore`; a full disk costs the file, not the run."""
        if sum(values.nbytes for values in posteriors.values()) > LARGEST_BYTES:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            content = _packed(posteriors)
            write_atomically(self.folder / f"{key}.npz", content + _seal(content))
        except OSError:
            return


class FirstPass:
    """The pass at T of one run.

    Args:
        config: the trial.
        data_digest: of its dataset.
        device: of the run; kinds of devices differ in bits.
        store: where passes are kept; None computes every pass.
    """

    def __init__(
        self, config: TrialConfig, data_digest: str, device: torch.device, store: PosteriorStore | None
    ) -> None:
        self.config = config
        self.data_digest = data_digest
        self.device = device
        self.store = store

    def recall(self, clients: Sequence[int]) -> list[tuple[int, Tensor]] | None:
        """The clients' posteriors as kept by an earlier run, or None."""
        kept = None if self.store is None else self.store.load(self._key(clients))
        if kept is None or sorted(kept) != sorted(clients):
            return None
        return [(client, torch.from_numpy(kept[client]).to(self.device)) for client in clients]

    def keep(self, posteriors: Iterator[tuple[int, Tensor]], first: bool) -> Iterator[tuple[int, Tensor]]:
        """Hand posteriors on, and keep those of the first pass when all have come."""
        if self.store is None or not first:
            yield from posteriors
            return
        passed: dict[int, np.ndarray] = {}
        for client, posterior in posteriors:
            passed[client] = posterior.cpu().numpy()
            yield client, posterior
        self.store.save(self._key(list(passed)), passed)

    def _key(self, clients: Sequence[int]) -> str:
        relabel = deciding(self.config.relabel)
        options = {name: value for name, value in relabel.items() if name.startswith("posterior_")}
        options["author_resume"] = relabel["author_resume"]
        base = base_key(self.config, self.data_digest)
        parts = {"base": base, "version": SIMULATION_VERSION, "device": self.device.type}
        return digest({**parts, "round": self.config.relabel_round, "options": options, "clients": list(clients)})


def _seal(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=SEAL_BYTES).digest()


def _packed(posteriors: dict[int, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **{str(client): values for client, values in posteriors.items()})  # type: ignore[arg-type]
    return buffer.getvalue()
