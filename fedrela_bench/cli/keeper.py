"""What survives when a run is stopped: its last state between two rounds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fedrela_bench.cli.common import shielded
from fedrela_bench.errors import StoreError

if TYPE_CHECKING:
    from fedrela_bench.cli.run_folder import RunFolder
    from fedrela_bench.simulation import Simulation
    from fedrela_bench.simulation.snapshot import Snapshot

WRITE_SECONDS = 60.0
SMALL_BYTES = 64 * 2**20
SHARE = 20
"""A large state is copied only after this many times the seconds that its last copy took."""


class Keeper:
    """Holds the state after the last round in memory and writes it now and then, and when the run is stopped.

    Args:
        folder: where to; None keeps nothing.
        simulation: the run, between rounds.
    """

    def __init__(self, folder: RunFolder | None, simulation: Simulation) -> None:
        self.folder, self.simulation = folder, simulation
        self.finished = self.written = simulation.completed_rounds
        self._latest: Snapshot | None = None
        self._cost, self._copied = 0.0, time.perf_counter()
        self._wrote = self._copied

    def round_done(self) -> None:
        """To be called between rounds."""
        self.finished = self.simulation.completed_rounds
        if self.folder is None:
            return
        now = time.perf_counter()
        small = self._latest is None or self._latest.nbytes <= SMALL_BYTES
        if small or now - self._copied >= SHARE * self._cost:
            self._latest = self.simulation.snapshot()
            self._copied = time.perf_counter()
            self._cost = self._copied - now
        if now - self._wrote > WRITE_SECONDS:
            self.write()

    def end(self) -> None:
        """Write the state after the last round."""
        if self.written < self.simulation.completed_rounds:
            self._latest = self.simulation.snapshot()
        self.write()

    def write(self) -> None:
        """Write the state in memory, unless it is on disk already.

        Raises:
            StoreError: it cannot be written.
        """
        if self.folder is not None and self._latest is not None and self._latest.round > self.written:
            self.folder.save_snapshot(self._latest)
            self.written = self._latest.round
        self._wrote = time.perf_counter()

    def stopped(self) -> str:
        """Write what is there and say how the run goes on."""
        if self.folder is None:
            return f"stopped after round {self.finished}; nothing is kept without --out"
        try:
            with shielded():
                self.write()
        except StoreError as error:
            return f"stopped after round {self.finished}; its state could not be kept: {error}"
        if not self.written:
            return "stopped before the end of round 1; the same command starts anew"
        kept = "round 1" if self.written == 1 else f"rounds 1 to {self.written}"
        return f"stopped; {self.folder} keeps {kept}, the same command goes on from there"
