"""A worker process and the messages it understands."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
import torch
from torch import Tensor

from fedrela_bench.algorithms import Algorithm, Server
from fedrela_bench.config import TrialConfig
from fedrela_bench.errors import BenchError, RunError
from fedrela_bench.models import Net
from fedrela_bench.plugins import Plugin, activate
from fedrela_bench.simulation.blocks import Block
from fedrela_bench.simulation.devices import keep_freed_memory
from fedrela_bench.simulation.flat import FlatModel
from fedrela_bench.simulation.local import LocalWork, Tensors
from fedrela_bench.simulation.mapped import Mapped
from fedrela_bench.simulation.setup import Resident
from fedrela_bench.simulation.state import RunState
from fedrela_bench.simulation.wire import dumps, loads


@dataclass(frozen=True)
class Images:
    """Training and test images as files that every process maps; the pages are shared."""

    train: Path | Mapped
    test: Path | Mapped

    @classmethod
    def keep(cls, folder: Path, train: Tensor, test: Tensor) -> Images:
        """Write both into the folder, but for those that are mapped from a file already."""
        return cls(_kept(folder / "train.npy", train), _kept(folder / "test.npy", test))

    def load(self) -> tuple[Tensor, Tensor]:
        """Both, mapped; a write would stay private to the process."""
        return _loaded(self.train), _loaded(self.test)


def _kept(path: Path, images: Tensor) -> Path | Mapped:
    if isinstance(images, Mapped):
        return images
    np.save(path, images.numpy())
    return path


def _loaded(kept: Path | Mapped) -> Tensor:
    return cast(Tensor, kept) if isinstance(kept, Mapped) else torch.from_numpy(np.load(kept, mmap_mode="c"))


@dataclass(frozen=True)
class Start:
    """What a worker is built from, once."""

    config: TrialConfig
    algorithm: Algorithm
    net: Net
    images: Images
    data: Resident
    """Without its images."""
    server: Server
    counters: list[Tensor]

    @classmethod
    def of(cls, work: LocalWork, images: Images) -> Start:
        """The main process's pieces."""
        nothing = torch.empty(0, dtype=torch.uint8)
        data = replace(work.data, images=nothing, test_images=nothing, server=None)
        state = work.state
        return cls(work.config, work.algorithm, work.model.net, images, data, state.server, state.counters)

    def build(self) -> LocalWork:
        """A worker's pieces, with the images mapped."""
        train, test = self.images.load()
        data = replace(self.data, images=train, test_images=test)
        model = FlatModel(self.net, self.algorithm.scope)
        state = RunState(self.server, self.counters, data.original.clone())
        return LocalWork(self.config, data, model, self.algorithm, state)


@dataclass(frozen=True)
class Shared:
    """The server's side of the state between two of its steps."""

    params: Tensor
    buffers: Tensor
    server_state: Tensors
    round: int
    counters: list[Tensor]
    labels: Tensor

    @classmethod
    def of(cls, state: RunState) -> Shared:
        """As it stands."""
        server = state.server
        return cls(server.params, server.buffers, server.state, server.round, state.counters, state.labels)

    def put(self, state: RunState) -> None:
        """Make it the worker's."""
        server = state.server
        server.params, server.buffers, server.state, server.round = (
            self.params,
            self.buffers,
            self.server_state,
            self.round,
        )
        state.counters, state.labels = self.counters, self.labels


@dataclass(frozen=True)
class Task:
    """A method of `LocalWork`, its arguments, and the clients whose states it needs."""

    verb: str
    clients: Block
    arguments: tuple[Any, ...]
    states: dict[int, Tensors] = field(default_factory=dict)
    private: dict[int, Tensors] = field(default_factory=dict)

    def with_states(self, states: dict[int, Tensors], private: dict[int, Tensors]) -> Task:
        """The task with what its clients kept."""
        return replace(self, states=states, private=private)

    def do(self, work: LocalWork) -> Reply:
        """Do it; the worker forgets the clients' states afterwards."""
        work.state.client_states, work.state.private = self.states, self.private
        value = getattr(work, self.verb)(*self.arguments)
        return Reply(value, work.state.client_states, work.state.private)


@dataclass(frozen=True)
class Reply:
    """What a task yields, and the states of its clients after it."""

    value: Any
    states: dict[int, Tensors]
    private: dict[int, Tensors]


@dataclass(frozen=True)
class Failure:
    """What went wrong instead."""

    error: BenchError | None
    """Errors with a remedy of their own pass through as they are."""
    text: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """From the exception being handled."""
        return cls(error if isinstance(error, BenchError) else None, traceback.format_exc())

    def throw(self) -> NoReturn:
        """Raise it in the main process."""
        raise self.error or RunError(f"a worker process failed:\n{self.text}")


READY = "ready"


def serve(line: Connection, plugins: Sequence[Plugin] = ()) -> None:
    """Answer tasks until the line closes; an interrupt from the terminal is the main process's business.

    Args:
        line: to the main process.
        plugins: that hold the classes of what it sends.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    keep_freed_memory()
    activate(plugins)
    try:
        work = loads(line.recv_bytes()).build()
        line.send_bytes(dumps(READY))
        while True:
            message = loads(line.recv_bytes())
            if isinstance(message, Shared):
                message.put(work.state)
            else:
                line.send_bytes(dumps(_answer(message, work)))
    except (EOFError, OSError):
        return


def _answer(task: Task, work: LocalWork) -> Reply | Failure:
    try:
        return task.do(work)
    except Exception as error:
        return Failure.of(error)
