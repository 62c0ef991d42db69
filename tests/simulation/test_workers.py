"""Worker processes change no bit, whatever the algorithm keeps, and say what went wrong when one dies."""

from __future__ import annotations

import multiprocessing
import os
import signal
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedrela_bench.algorithms import Algorithm, Batch, ClientUpdate, LocalContext, register
from fedrela_bench.errors import ConfigError, RunError
from fedrela_bench.simulation import Simulation
from fedrela_bench.simulation import workers as crews_module
from fedrela_bench.simulation.blocks import fixed_blocks, longest_first
from fedrela_bench.simulation.loop import Workers
from tests.simulation import test_linear_softmax, toy


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """Workers have one thread each; the reference has as many."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _trial(algorithm: str, clients: int = 5, **more: Any) -> Any:
    federation = {"algorithm": algorithm, "clients": clients, "rounds": 4, "participation": 0.8}
    relabel = {"tau": 0.3, "start": 1, "period": 2, **more.pop("relabel", {})}
    training = {"dtype": "float32", **more.pop("training", {})}
    return toy.config(federation=federation, relabel=relabel, training=training, **more)


@pytest.mark.parametrize(
    ("algorithm", "crews"),
    [
        ("fedavg", (2, 4)),
        ("fedetf_dotreg", (2, 4)),
        ("example_scaffold", (2,)),
        ("example_feddyn", (2,)),
        ("example_climb", (2,)),
        ("example_fednova", (2,)),
    ],
)
def test_one_two_and_four_workers_give_the_same_bits(algorithm: str, crews: tuple[int, ...]) -> None:
    data = toy.skewed(clients=5)
    if algorithm == "example_fednova":
        data = toy.dataset(
            [0, 0, 1, 1, 2, 2, 3, 3, 0, 1, 2, 3, 0, 1], [[0, 2], [1, 3], [4, 5, 6, 7], [8, 9], [10, 11]], 4
        )
    trial = _trial(algorithm, relabel={"tau": 0.0} if algorithm == "example_fednova" else {})
    alone, results = toy.run(trial, data)
    for count in crews:
        with Simulation(trial, data, workers=count) as crew:
            assert toy.figures(list(crew)) == toy.figures(results)
            assert toy.same_model(crew, alone)
            for kept in ("client_states", "private"):
                _same_states(getattr(crew.state, kept), getattr(alone.state, kept))
    assert results[-1].metrics.get("relabel/changed", 1) > 0
    assert test_linear_softmax.Scaffold.name == "example_scaffold"


def _same_states(first: dict[int, dict[str, Tensor]], second: dict[int, dict[str, Tensor]]) -> None:
    assert first.keys() == second.keys()
    for client, tensors in first.items():
        assert all(torch.equal(value, second[client][name]) for name, value in tensors.items())


def test_more_clients_than_blocks_and_more_workers_than_clients() -> None:
    many = toy.skewed(clients=40, largest=120)
    alone, results = toy.run(_trial("fedavg", 40), many)
    with Simulation(_trial("fedavg", 40), many, workers=3) as crew:
        assert toy.figures(list(crew)) == toy.figures(results)
        assert toy.same_model(crew, alone)
    few = toy.skewed(clients=1)
    alone, results = toy.run(_trial("fedavg", 1), few)
    with Simulation(_trial("fedavg", 1), few, workers=2) as crew:
        assert toy.figures(list(crew)) == toy.figures(results)


def test_a_snapshot_passes_between_crews_of_any_size() -> None:
    data, trial = toy.skewed(clients=5), _trial("fedetf_dotreg")
    _, results = toy.run(trial, data)
    with Simulation(trial, data, workers=2) as first:
        first.run_round()
        first.run_round()
        kept = first.snapshot()
    second = Simulation(trial, data)
    second.restore(kept)
    assert toy.figures(list(second)) == toy.figures(results)[2:]
    with Simulation(trial, data, workers=2) as third:
        third.restore(kept)
        assert toy.figures(list(third)) == toy.figures(results)[2:]


def test_after_close_the_simulation_goes_on_alone() -> None:
    data, trial = toy.skewed(clients=5), _trial("fedavg")
    _, results = toy.run(trial, data)
    crew = Simulation(trial, data, workers=2)
    crew.run_round()
    hands = crew._trainer.crew
    assert isinstance(hands, Workers)
    processes = [hand.process for hand in hands._hands]
    crew.close()
    assert not any(process.is_alive() for process in processes)
    assert toy.figures(list(crew)) == toy.figures(results)[1:]


def test_a_killed_worker_is_reported_and_the_snapshot_still_serves() -> None:
    data, trial = toy.skewed(clients=5), _trial("fedavg")
    _, results = toy.run(trial, data)
    with Simulation(trial, data, workers=2) as crew:
        crew.run_round()
        kept = crew.snapshot()
        assert isinstance(crew._trainer.crew, Workers)
        victim = crew._trainer.crew._hands[0].process
        os.kill(victim.pid or 0, signal.SIGKILL)
        victim.join()
        with pytest.raises(RunError, match=r"killed by signal 9.*fewer workers"):
            crew.run_round()
    after = Simulation(trial, data)
    after.restore(kept)
    assert toy.figures(list(after)) == toy.figures(results)[1:]


@register
class Stumbles(Algorithm):
    name: ClassVar[str] = "example_stumbles"
    citation: ClassVar[str] = "test"
    purpose: ClassVar[str] = "fails on one client"

    def loss(self, net: Any, batch: Batch, context: LocalContext) -> Tensor:
        if context.client == 1 and context.round == 1:
            raise ValueError("client 1 stumbled")
        return super().loss(net, batch, context)


def test_an_error_in_a_worker_shows_its_cause_and_leaves_the_crew_usable() -> None:
    data, trial = toy.skewed(clients=5), _trial("example_stumbles")
    with Simulation(trial, data, workers=2) as crew:
        crew.run_round()
        kept = crew.snapshot()
        with pytest.raises(RunError, match="client 1 stumbled"):
            list(crew)
        with pytest.raises(RunError, match="restore a snapshot"):
            crew.run_round()
        crew.restore(kept)
        assert crew.completed_rounds == 1
        with pytest.raises(RunError, match="client 1 stumbled"):
            list(crew)


class _Interrupted:
    """A worker's line on which an interrupt arrives around the second message."""

    def __init__(self, line: Any, way: str) -> None:
        self.line, self.way, self.messages = line, way, 0

    def fileno(self) -> int:
        return int(self.line.fileno())

    def close(self) -> None:
        self.line.close()

    def send_bytes(self, message: bytes) -> None:
        self.messages += 1
        self.line.send_bytes(message)
        if self.messages == 2 and self.way == "sent":
            raise KeyboardInterrupt

    def recv_bytes(self) -> bytes:
        if self.way == "half read":
            os.read(self.line.fileno(), 100)
            raise KeyboardInterrupt
        return bytes(self.line.recv_bytes())


@pytest.mark.parametrize("way", ["sent", "half read"])
def test_after_an_interrupt_between_processes_a_new_crew_goes_on_from_the_snapshot(way: str) -> None:
    data, trial = toy.skewed(clients=5), _trial("fedavg")
    _, results = toy.run(trial, data)
    with Simulation(trial, data, workers=2) as crew:
        crew.run_round()
        kept = crew.snapshot()
        hands = crew._trainer.crew
        assert isinstance(hands, Workers)
        first = [hand.process for hand in hands._hands]
        hands._hands[0].line = _Interrupted(hands._hands[0].line, way)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            crew.run_round()
        assert not any(process.is_alive() for process in first)
        crew.restore(kept)
        assert toy.figures(list(crew)) == toy.figures(results)[1:]
        second = [hand.process for hand in hands._hands]
    assert len(second) == 2 and not any(process.is_alive() for process in second)


def test_a_process_that_may_not_start_others_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"multiprocessing\.Pool, may not start others; use workers = 1"):
        Simulation(_trial("fedavg"), toy.skewed(clients=5), workers=2)


@pytest.mark.parametrize(
    "error", [OSError("AF_UNIX path too long"), OSError(24, "Too many open files"), EOFError()], ids=str
)
def test_processes_that_cannot_be_started_are_said_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr(crews_module, "_hired", fails)
    with pytest.raises(RunError, match=r"2 workers cannot be started: .+; set TMPDIR .+ fewer workers"):
        Simulation(_trial("fedavg"), toy.skewed(clients=5), workers=2)


def test_what_cannot_be_sent_or_made_is_refused() -> None:
    class Local(Algorithm):
        name: ClassVar[str] = "example_local_class"
        citation: ClassVar[str] = "test"
        purpose: ClassVar[str] = "cannot be imported by name"

    register(Local)
    data = toy.skewed(clients=5)
    with pytest.raises(ConfigError, match="top of a module, or use workers = 1"):
        Simulation(_trial("example_local_class"), data, workers=2)
    with pytest.raises(ConfigError, match="workers = 0 must be at least 1"):
        Simulation(_trial("fedavg"), data, workers=0)


@pytest.mark.parametrize("error", [OSError(28, "No space left"), OSError("9 requested and 4 written")], ids=str)
def test_a_full_disk_is_said_with_its_remedy(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(RunError, match=r"(No space left|9 requested and 4 written); set TMPDIR"):
        Simulation(_trial("fedavg"), toy.skewed(clients=5), workers=2)


@given(
    sizes=st.lists(st.integers(0, 50), min_size=1, max_size=90),
    chosen=st.sets(st.integers(0, 89)),
    limit=st.integers(1, 40),
)
def test_blocks_hold_every_participant_once_and_share_the_load(sizes: list[int], chosen: set[int], limit: int) -> None:
    counts, participants = np.array(sizes), sorted(c for c in chosen if c < len(sizes))
    blocks = fixed_blocks(participants, counts, limit)
    assert sorted(client for block in blocks for client in block) == participants
    assert len(blocks) == min(limit, len(participants))
    assert blocks == sorted(blocks) and all(list(block) == sorted(block) for block in blocks)
    assert blocks == fixed_blocks(list(reversed(participants)), counts, limit)
    if blocks:
        loads = [sum(max(1, sizes[client]) for client in block) for block in blocks]
        longest = max(max(1, sizes[client]) for client in participants)
        assert max(loads) <= sum(loads) / len(loads) + longest
        dealt = longest_first(blocks, counts)
        assert sorted(dealt) == blocks
        assert [-sum(sizes[c] for c in block) for block in dealt] == sorted(-sum(sizes[c] for c in b) for b in blocks)


@register
class KeepsViews(Algorithm):
    name: ClassVar[str] = "example_keeps_views"
    citation: ClassVar[str] = "test"
    purpose: ClassVar[str] = "keeps the client's parameters without copying them"

    def finish(self, update: ClientUpdate) -> None:
        update.context.state["mine"] = update.params


@register
class KeepsNumbers(KeepsViews):
    name: ClassVar[str] = "example_keeps_numbers"

    def finish(self, update: ClientUpdate) -> None:
        update.context.state["steps"] = update.steps  # type: ignore[assignment]


def test_a_kept_view_of_the_model_stays_what_it_was_with_any_crew() -> None:
    data, trial = toy.skewed(clients=5), _trial("example_keeps_views")
    alone, _ = toy.run(trial, data)
    kept = alone.state.client_states
    assert len({float(state["mine"].norm()) for state in kept.values()}) == len(kept) > 1
    with Simulation(trial, data, workers=2) as crew:
        list(crew)
        _same_states(crew.state.client_states, kept)
    with pytest.raises(ConfigError, match=r"example_keeps_numbers: context.state has 'steps' of type int"):
        toy.run(_trial("example_keeps_numbers"), data)
