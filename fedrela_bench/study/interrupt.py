"""SIGINT and SIGTERM: the first asks every process of the study to stop after its round, the second stops at once."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
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
        self._heard = 0
        self._beginning = threading.Lock()
        self._old_wakeup = -1
        self._wire: tuple[socket.socket, socket.socket] | None = None
        self._last_resort: tuple[float, Callable[[], None]] | None = None
        self._timer: threading.Timer | None = None

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

    def bound(self, seconds: float, last_resort: Callable[[], None]) -> None:
        """End the process that long after the first signal, whatever hangs, after one call of `last_resort`."""
        self._last_resort = (seconds, last_resort)

    def __enter__(self) -> Self:
        self.stop_file.unlink(missing_ok=True)
        self.install()
        self._listen()
        return self

    def _listen(self) -> None:
        """Hear of signals in a thread, too: a native call that hangs keeps the main thread from its handlers."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._wire = socket.socketpair()
        self._wire[1].setblocking(False)
        self._old_wakeup = signal.set_wakeup_fd(self._wire[1].fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._hear, args=(self._wire[0],), name="signals", daemon=True).start()

    def _hear(self, wire: socket.socket) -> None:
        with wire:
            while numbers := wire.recv(64):
                for number in set(numbers) & set(EXIT_CODES):
                    self._begin(number)

    def install(self) -> None:
        """Put the handlers in place (again: Ray replaces that of SIGTERM when it starts)."""
        if threading.current_thread() is not threading.main_thread():
            return
        for signum in EXIT_CODES:
            old = signal.signal(signum, self._handle)
            self._old.setdefault(signum, old)

    def adopt(self, error: BaseException) -> bool:
        """Whether this error is how a signal ended the work; Ray's own handler of SIGTERM exits while Ray starts."""
        if isinstance(error, SystemExit) and error.code == signal.SIGTERM and not self.stopping:
            self._begin(signal.SIGTERM)
        return self.stopping and isinstance(error, KeyboardInterrupt | SystemExit)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._wire is not None:
            signal.set_wakeup_fd(self._old_wakeup)
            self._wire[1].close()
        for signum, handler in self._old.items():
            signal.signal(signum, handler or signal.SIG_DFL)
        self.stop_file.unlink(missing_ok=True)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        self._heard += 1
        if self._heard > 1:
            raise KeyboardInterrupt
        self._begin(signum)

    def _begin(self, signum: int) -> None:
        # A handler may interrupt the main thread in here; it must not wait for itself.
        if not self._beginning.acquire(blocking=False):
            return
        self.signum, self.since = signum, time.monotonic()
        self.stop_file.touch()
        if self._last_resort is not None:
            self._timer = threading.Timer(self._last_resort[0], self._give_up)
            self._timer.daemon = True
            self._timer.start()
        self.notify("stopping after the current rounds; once more stops at once")

    def _give_up(self) -> None:
        try:
            if self._last_resort is not None:
                self._last_resort[1]()
        finally:
            self.stop_file.unlink(missing_ok=True)
            # What hangs (a dead cluster, a native call) would also hang an orderly exit.
            os._exit(self.exit_code)


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Processes started inside never receive SIGINT or SIGTERM; here those that arrive are delivered afterwards.

    A terminal, `timeout`, a batch system or systemd signals every process of a job at once. A study's helpers must
    outlive that signal for as long as its driver needs them.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    old = signal.pthread_sigmask(signal.SIG_BLOCK, EXIT_CODES)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


@contextlib.contextmanager
def handlers_kept() -> Iterator[None]:
    """What is done inside does not change what signals do: Ray replaces the handler of SIGTERM when it starts."""
    main = threading.current_thread() is threading.main_thread()
    old = {signum: signal.getsignal(signum) for signum in EXIT_CODES} if main else {}
    try:
        yield
    finally:
        for signum, handler in old.items():
            signal.signal(signum, handler or signal.SIG_DFL)
