"""Time that is handed out in parts and ends when it ends."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType


class OutOfTime(BaseException):
    """The time is over."""


@dataclass
class Budget:
    """Seconds that run from the moment they are given."""

    seconds: float
    clock: Callable[[], float] = time.monotonic
    _end: float = field(init=False)

    def __post_init__(self) -> None:
        self._end = self.clock() + self.seconds

    @property
    def left(self) -> float:
        """Seconds that remain, never below 0."""
        return max(0.0, self._end - self.clock())

    def part(self, share: float) -> Budget:
        """A share of what remains."""
        return Budget(self.left * share, self.clock)

    def fits(self, seconds: float) -> bool:
        """Whether something of that length ends in time."""
        return seconds <= self.left


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raise `OutOfTime` inside the block after so long; a timer that was set before goes on afterwards.

    Only the main thread of a system with interval timers can be interrupted; elsewhere nothing happens. A call into a
    library ends first.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    started = time.monotonic()
    handler = signal.signal(signal.SIGALRM, _ring)
    before, interval = signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if before:
            signal.setitimer(signal.ITIMER_REAL, max(before - (time.monotonic() - started), 1e-3), interval)


def _ring(number: int, frame: FrameType | None) -> None:
    raise OutOfTime
