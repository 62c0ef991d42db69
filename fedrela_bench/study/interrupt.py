"""SIGINT and SIGTERM: the first asks every process of the study to stop after its round, the second stops at once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


class Interrupts:
    """Context in which signals set a flag and a file instead of ending the process.

    Args:
        stop_file: exists while the study is to stop; running cells look for it after every round.
        notify: called once with a sentence for the user.
    """

    def __init__(self, stop_file: Path, notify: Callable[[str], None] = lambda text: None) -> None:
        self.stop_file = stop_file
        self.notify = notify
        self.signum: int | None = None
        self.since: float | None = None
        self._old: dict[int, Any] = {}

    @property
    def stopping(self) -> bool:
        """Whether a signal arrived."""
        return self.signum is not None

    @property
    def exit_code(self) -> int:
        """130 or 143 after a signal, else 0."""
        return EXIT_CODES.get(signal.Signals(self.signum), 1) if self.signum is not None else 0

    def overdue(self, seconds: float) -> bool:
        """Whether running cells have had that long to stop by themselves."""
        return self.since is not None and time.monotonic() - self.since > seconds

    def __enter__(self) -> Self:
        self.stop_file.unlink(missing_ok=True)
        self.install()
        return self

    def install(self) -> None:
        """Put the handlers in place (again: Ray replaces that of SIGTERM when it starts)."""
        if threading.current_thread() is not threading.main_thread():
            return
        for signum in EXIT_CODES:
            old = signal.signal(signum, self._handle)
            self._old.setdefault(signum, old)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for signum, handler in self._old.items():
            signal.signal(signum, handler or signal.SIG_DFL)
        self.stop_file.unlink(missing_ok=True)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is not None:
            raise KeyboardInterrupt
        self.signum, self.since = signum, time.monotonic()
        self.stop_file.touch()
        self.notify("stopping after the current rounds; once more stops at once")
