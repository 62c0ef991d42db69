"""Worker processes: the same work on the same blocks, spread over cores.

Each worker holds the network and maps the images; per task it gets the server's side of the state and its clients'
states, and gives back sums and states. Blocks are dealt longest first to whoever is idle and handed on in their fixed
order, so that the number of workers changes no bit of the result (with one thread per process).
"""

from __future__ import annotations

import multiprocessing
import pickle
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
from torch import Tensor

from fedrela_bench.errors import BenchError, ConfigError, RunError
from fedrela_bench.plugins import active
from fedrela_bench.simulation.blocks import Block, longest_first
from fedrela_bench.simulation.local import LocalWork, Sums, Tensors
from fedrela_bench.simulation.wire import dumps, loads
from fedrela_bench.simulation.worker import Failure, Images, Shared, Start, Task, serve

SHARES = 4
"""Pieces per worker that scoring is cut into."""
STARTING = (
    'a script that uses workers must start its work under `if __name__ == "__main__":`, and its own algorithms and '
    "networks must be importable; the cause is above"
)
WORKING = "resume from the last snapshot, with fewer workers if memory ran out"


@dataclass
class _Hand:
    process: BaseProcess
    line: Connection
    task: int | None = None
    """Index of the task it works on, None when idle."""
    phase: int = 0
    """Of that task; older ones are of a phase that was given up."""
    knows: int = -1
    """The last phase whose shared state it was sent."""


class Workers:
    """A crew of processes.

    Args:
        work: the main process's pieces; its state is read and, for clients' states, written.
        count: processes, at least 2.

    Raises:
        ConfigError: not on the CPU, in a process that may not start others, or a part of the simulation cannot be sent
            to another process.
        RunError: the processes cannot be started, or what they need cannot be written.
    """

    def __init__(self, work: LocalWork, count: int) -> None:
        if work.model.params.device.type != "cpu":
            raise ConfigError(
                f"workers = {count} needs the CPU; on {work.model.params.device} use workers = 1 and run several trials"
            )
        if multiprocessing.current_process().daemon:
            raise ConfigError(
                f"workers = {count}: this process, such as one of multiprocessing.Pool, may not start others; use "
                "workers = 1"
            )
        self.work = work
        self._count = count
        self._phase = 0
        self._hands: list[_Hand] = []
        weakref.finalize(self, _end, self._hands)
        self._hire()

    def _hire(self) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="fedrela-") as folder:
                self._start(Path(folder))
        except (OSError, EOFError) as error:
            _end(self._hands)
            reason = getattr(error, "strerror", None) or str(error) or "no further process"
            raise RunError(
                f"{self._count} workers cannot be started: {reason}; set TMPDIR to a folder with a short path, allow "
                "more open files and processes (ulimit -n, -u), or use fewer workers"
            ) from error
        except BaseException:
            _end(self._hands)
            raise

    def _start(self, folder: Path) -> None:
        try:
            images = Images.keep(folder, self.work.data.images, self.work.data.test_images)
        except OSError as error:
            megabytes = (self.work.data.images.nbytes + self.work.data.test_images.nbytes) >> 20
            raise RunError(
                f"the images for the workers cannot be written to {folder}: {error.strerror or error}; set TMPDIR to a "
                f"folder with {megabytes + 1} MiB free, or use workers = 1"
            ) from None
        start = self._packed(images)
        for _ in range(self._count):
            self._hands.append(_hired(start))
        for hand in self._hands:
            _receive(hand, STARTING)

    def probe(self, clients: Sequence[int], index: int, total: int) -> dict[int, Tensors]:
        """See `Crew`."""
        tasks = [Task("probe", (client,), (client, index, total)) for client in clients]
        return dict(zip(clients, self._in_order(tasks, self._by_size(tasks)), strict=True))

    def train(self, blocks: Sequence[Block], index: int, total: int) -> Iterator[Sums]:
        """See `Crew`."""
        tasks = [Task("train", block, (block, index, total)) for block in blocks]
        return cast(Iterator[Sums], self._in_order(tasks, self._by_size(tasks)))

    def posteriors(self, clients: Sequence[int], index: int, refresh: int) -> Iterator[tuple[int, Tensor]]:
        """See `Crew`."""
        tasks = [Task("posterior", (client,), (client, index, refresh)) for client in clients]
        return zip(clients, self._in_order(tasks, self._by_size(tasks)), strict=True)

    def predict(self) -> dict[str, np.ndarray]:
        """See `Crew`."""
        size, images = self.work.evaluator.batch_size(self.work.algorithm), len(self.work.data.test_images)
        batches = -(-images // size)
        each = size * max(1, -(-batches // (SHARES * self._count)))
        spans = [(start, min(start + each, images)) for start in range(0, images, each)]
        tasks = [Task("predict", (), span) for span in spans]
        parts = list(self._in_order(tasks, list(range(len(tasks)))))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def close(self) -> None:
        """End the processes."""
        _end(self._hands)

    def _by_size(self, tasks: Sequence[Task]) -> list[int]:
        sizes = self.work.state.server.client_sizes
        places = {task.clients: place for place, task in enumerate(tasks)}
        return [places[block] for block in longest_first([task.clients for task in tasks], sizes)]

    def _in_order(self, tasks: Sequence[Task], deal: Sequence[int]) -> Iterator[Any]:
        """Results in the order of `tasks`, which are dealt in the order of `deal`."""
        if not self._hands:
            self._hire()
        try:
            yield from self._dealt(tasks, deal)
        except (BenchError, GeneratorExit):
            raise
        except BaseException:
            # A message may be cut in two, and an answer be taken for another task's: the next phase hires anew.
            _end(self._hands)
            raise

    def _dealt(self, tasks: Sequence[Task], deal: Sequence[int]) -> Iterator[Any]:
        self._phase += 1
        shared = dumps(Shared.of(self.work.state))
        waiting, done, due = list(reversed(deal)), dict[int, Any](), 0
        while due < len(tasks):
            for hand in self._hands:
                if waiting and hand.task is None:
                    self._give(hand, waiting.pop(), tasks, shared)
            for place, value in self._hear():
                done[place] = value
            while due in done:
                yield done.pop(due)
                due += 1

    def _give(self, hand: _Hand, place: int, tasks: Sequence[Task], shared: bytes) -> None:
        state, task = self.work.state, tasks[place]
        states = {client: state.client_states[client] for client in task.clients if client in state.client_states}
        private = {client: state.private[client] for client in task.clients if client in state.private}
        try:
            if hand.knows != self._phase:
                hand.line.send_bytes(shared)
                hand.knows = self._phase
            hand.line.send_bytes(dumps(task.with_states(states, private)))
        except OSError:
            _lost(hand, WORKING)
        hand.task, hand.phase = place, self._phase

    def _hear(self) -> Iterator[tuple[int, Any]]:
        busy = {hand.line: hand for hand in self._hands if hand.task is not None}
        for line in wait(list(busy)):
            hand = busy[cast(Connection, line)]
            place, phase = cast(int, hand.task), hand.phase
            reply = _receive(hand, WORKING)
            hand.task = None
            if phase != self._phase:
                continue
            if isinstance(reply, Failure):
                reply.throw()
            self.work.state.client_states |= reply.states
            self.work.state.private |= reply.private
            yield place, reply.value

    def _packed(self, images: Images) -> bytes:
        try:
            return dumps(Start.of(self.work, images))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ConfigError(
                f"workers need to import algorithm and network by name, and this one cannot be sent: {error}; "
                "define its class at the top of a module, or use workers = 1"
            ) from None


def _hired(start: bytes) -> _Hand:
    # A fork of this process could not run backward passes; one of a server that has only imported can, at once.
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["fedrela_bench.simulation.worker"])
    here, there = server.Pipe()
    process = server.Process(target=serve, args=(there, active()), daemon=True, name="fedrela-bench worker")
    process.start()
    there.close()
    hand = _Hand(process, here)
    try:
        here.send_bytes(start)
    except OSError:
        _lost(hand, STARTING)
    return hand


def _receive(hand: _Hand, remedy: str) -> Any:
    try:
        return loads(hand.line.recv_bytes())
    except (EOFError, OSError):
        _lost(hand, remedy)


def _lost(hand: _Hand, remedy: str) -> NoReturn:
    hand.process.join(timeout=5)
    code = hand.process.exitcode
    how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
    raise RunError(f"a worker process {how}; {remedy}")


def _end(hands: list[_Hand]) -> None:
    for hand in hands:
        hand.line.close()
    for hand in hands:
        hand.process.join(timeout=2)
        if hand.process.is_alive():
            hand.process.terminate()
            hand.process.join(timeout=2)
    hands.clear()
