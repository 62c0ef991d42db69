"""What a user sees while a study runs: a live table on a terminal, single lines elsewhere, or JSON events."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from fedrela_bench.tracking.journal import Journal

HEARTBEAT_SECONDS = 60.0
REFRESH_SECONDS = 1.0
MARKS = {"futile": "stopped:"}
"""What a status is called where it is not its own name."""


@dataclass
class Item:
    """A baseline or trial being computed."""

    label: str
    journals: Sequence[Path]
    """One journal per seed."""
    rounds: int
    """Rounds of all journals at the end."""
    started: float = field(default_factory=time.monotonic)

    def done(self) -> int:
        """Rounds so far."""
        return sum(len(Journal(path).lines()) for path in self.journals)


@dataclass
class Totals:
    """What the whole study has done."""

    stage: str = "starting"
    goal: int = 0
    finished: int = 0
    failed: int = 0
    reused: int = 0
    full_runs: float = 0.0
    """Rounds computed in this study, divided by the rounds of one run."""
    best: dict[str, float] = field(default_factory=dict)


class Progress:
    """Display of a study.

    Args:
        mode: auto (live on a terminal, else lines), live, lines, json or quiet.
        stream: where to write; kept even when standard output is redirected later.
        heartbeat: seconds between signs of life in the mode lines.
    """

    def __init__(self, mode: str = "auto", stream: TextIO | None = None, heartbeat: float = HEARTBEAT_SECONDS) -> None:
        self.stream = stream or sys.stdout
        self.mode = ("live" if self.stream.isatty() else "lines") if mode == "auto" else mode
        self.totals = Totals()
        self.running: dict[str, Item] = {}
        self._heartbeat = heartbeat
        self._lock = threading.RLock()
        self._searching: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="progress", daemon=True)
        self._live: Any = None

    def __enter__(self) -> Self:
        if self.mode == "live":
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self.stream)
            self._live = Live(console=console, get_renderable=self._table, refresh_per_second=1, transient=True)
            self._live.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._live is not None:
            self._live.stop()

    # events ----------------------------------------------------------------------------------------------------------

    def stage(self, name: str, goal: int = 0) -> None:
        """A stage begins; `goal` is how many things it shall finish."""
        with self._lock:
            self.totals.stage, self.totals.goal = name, goal
            self.totals.finished = self.totals.failed = 0
            self._searching = time.monotonic()
        self._say({"event": "stage", "stage": name, "goal": goal}, f"{name}: {goal} to do" if goal else name)

    def begin(self, key: str, item: Item) -> None:
        """A baseline or trial starts."""
        with self._lock:
            self.running[key] = item
        self._say({"event": "started", "key": key, "label": item.label}, None)

    def end(self, key: str, label: str, status: str, values: dict[str, float], error: str = "") -> None:
        """A baseline or trial is over; without values where it reached none that count."""
        with self._lock:
            item = self.running.pop(key, None)
            seconds = time.monotonic() - item.started if item else 0.0
            self.totals.finished += status != "failed"
            self.totals.failed += status == "failed"
            for name, value in values.items():
                self.totals.best[name] = max(value, self.totals.best.get(name, 0.0))
            text = self._line(label, status, values, seconds, error)
        event = {"event": "finished", "key": key, "label": label, "status": status, "values": values}
        self._say({**event, "seconds": round(seconds, 3), "error": error or None}, text)

    def drop(self, key: str) -> None:
        """A trial was stopped before its end."""
        with self._lock:
            self.running.pop(key, None)

    def note(self, text: str) -> None:
        """A sentence for the user."""
        self._say({"event": "note", "text": text}, text)

    def last_words(self, text: str) -> None:
        """The closing text of a process that is about to end without closing this display."""
        if self._live is not None:
            self._live.stop()
        self._write(text)

    # output ----------------------------------------------------------------------------------------------------------

    def _line(self, label: str, status: str, values: dict[str, float], seconds: float, error: str) -> str:
        reached = "  ".join(f"{name} {100 * value:.2f} %" for name, value in values.items())
        count = f"[{self.totals.finished + self.totals.failed}/{self.totals.goal}]" if self.totals.goal else ""
        mark = "" if status == "completed" else MARKS.get(status, status)
        parts = (f"{count} {label}".strip(), mark, error or reached, f"{seconds:.1f} s")
        return "  ".join(part for part in parts if part)

    def _say(self, event: dict[str, Any], text: str | None) -> None:
        with self._lock:
            if self.mode == "json":
                self._write(json.dumps({**event, "time": round(time.time(), 3)}, allow_nan=False, default=str))
            elif text is None or self.mode == "quiet":
                return
            elif self._live is not None:
                self._live.console.print(text, markup=False, highlight=False)
            else:
                self._write(text)

    def _write(self, text: str) -> None:
        try:
            self.stream.write(text + "\n")
            self.stream.flush()
        except (OSError, ValueError):
            # Nobody reads any more (closed pipe); the study goes on.
            self.mode = "quiet"

    def _tick(self) -> None:
        last = time.monotonic()
        while not self._stop.wait(REFRESH_SECONDS if self._heartbeat > REFRESH_SECONDS else self._heartbeat):
            if self.mode in ("lines", "json") and time.monotonic() - last >= self._heartbeat:
                last = time.monotonic()
                self._say({"event": "heartbeat", **self._state()}, self._pulse())

    def _state(self) -> dict[str, Any]:
        with self._lock:
            running = [{"label": i.label, "rounds": i.done(), "of": i.rounds} for i in self.running.values()]
            totals = self.totals
        return {"stage": totals.stage, "finished": totals.finished, "failed": totals.failed, "running": running}

    def _pulse(self) -> str:
        state = self._state()
        running = ", ".join(f"{item['label']} {item['rounds']}/{item['of']}" for item in state["running"][:4])
        return f"... {state['stage']}: {self._counts()}; running: {running or 'nothing'}"

    def _counts(self) -> str:
        totals, eta = self.totals, self._eta()
        parts = [f"{totals.finished}/{totals.goal} done"]
        parts += [f"{totals.failed} failed"] if totals.failed else []
        parts += [f"{totals.reused} reused"] if totals.reused else []
        parts += [f"{totals.full_runs:.2f} full runs spent"] if totals.full_runs else []
        return ", ".join([*parts, *([f"about {_duration(eta)} left"] if eta is not None else [])])

    def _eta(self) -> float | None:
        done, goal = self.totals.finished + self.totals.failed, self.totals.goal
        if not done or self._searching is None or goal <= done:
            return None
        return (time.monotonic() - self._searching) / done * (goal - done)

    def _table(self) -> Any:
        from rich.table import Table

        with self._lock:
            table = Table(title=f"{self.totals.stage}: {self._counts()}", title_justify="left", expand=False)
            for name in ("running", "rounds", "seconds"):
                table.add_column(name, justify="left" if name == "running" else "right")
            for item in list(self.running.values())[:12]:
                table.add_row(item.label, f"{item.done()}/{item.rounds}", f"{time.monotonic() - item.started:.0f}")
            if self.totals.best:
                best = "  ".join(f"best {name} {100 * value:.2f} %" for name, value in self.totals.best.items())
                table.caption = best
            return table


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
