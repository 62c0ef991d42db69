"""The kit's second half: what an algorithm declares, and what its hooks may and may not do."""

from __future__ import annotations

import copy

import pytest
import torch

from fedrela_bench.simulation import Simulation
from tests import kit_references as references
from tests import kit_tools as tools
from tests.kits import ROWS, Row
from tests.simulation import toy

RELABEL = {"tau": 0.3, "start": 2}


@pytest.fixture(params=ROWS, ids=lambda row: row.title)
def row(request: pytest.FixtureRequest) -> Row:
    """Every algorithm in turn."""
    found: Row = request.param
    return found


# declared figures ----------------------------------------------------------------------------------------------------


def test_what_clients_keep_is_what_is_declared(row: Row) -> None:
    simulation, _ = toy.run(tools.trial(row, federation={"participation": 1.0, "rounds": 2}), tools.skewed())
    declared = simulation.algorithm.client_state_floats(references.size_of(simulation))
    state = simulation.state
    for client in range(4):
        kept = tools.floats(state.client_states.get(client, {})) + tools.floats(state.private.get(client, {}))
        assert kept == declared
    assert (declared > 0) == row.keeps_state
    assert set(state.server.state) == set(row.server_state)


def test_communication_is_what_messages_hold(row: Row) -> None:
    trial = tools.trial(row, federation={"participation": 1.0}, training={"model": "identity_net"})
    simulation = Simulation(trial, tools.equal_clients())
    simulation.run_round()
    down, up = references.measured_communication(simulation, row)
    assert simulation.communication == {"down": down, "up": up}


# many processes, other devices ---------------------------------------------------------------------------------------


def test_clients_may_train_in_processes_of_their_own(row: Row) -> None:
    data, trial = tools.skewed(), tools.trial(row, RELABEL)
    simulation = Simulation(trial, data)
    simulation._trainer.crew = references.Apart(simulation)
    results = list(simulation)
    full = tools.whole_run(trial)
    assert toy.figures(results) == toy.figures(full.results)
    assert tools.same(tools.parts(simulation.snapshot()), full.states[-1])


def test_local_training_changes_neither_server_nor_algorithm_nor_data(row: Row) -> None:
    simulation = Simulation(tools.trial(row), tools.skewed())
    simulation.run_round()
    index, participants, total = tools.begin(simulation)
    server, algorithm, data = simulation.state.server, simulation.algorithm, simulation.data
    seen = [vars(server), vars(algorithm), data.images, data.original, simulation.state.labels]
    before = copy.deepcopy(seen)
    first = [tools.train(simulation, client, index, total) for client in participants]
    assert tools.same(seen, before)
    again = [tools.train(simulation, client, index, total) for client in reversed(participants)][::-1]
    assert all(tools.same(vars(a), vars(b)) for a, b in zip(first, again, strict=True))


def test_uploads_add_up_in_fixed_shapes(row: Row) -> None:
    simulation = Simulation(tools.trial(row, federation={"participation": 1.0}), tools.skewed())
    simulation.run_round()
    index, participants, total = tools.begin(simulation)
    empty = simulation.algorithm.new_sums(simulation.state.server)
    assert not any(tensor.any() for tensor in empty.values())
    alone = [tools.train(simulation, client, index, total).sums for client in participants]
    together = empty
    for client in participants:
        together = tools.train(simulation, client, index, total, together).sums
    for name, tensor in simulation.algorithm.new_sums(simulation.state.server).items():
        pieces = [sums[name] for sums in alone]
        assert {(piece.shape, piece.dtype) for piece in pieces} == {(tensor.shape, tensor.dtype)}
        assert tools.same(together[name], torch.stack(pieces).sum(dim=0), tolerance=1e-12)
    assert set(together) == set(empty) == set(alone[0])


def test_hooks_of_a_step_never_wait_for_the_device(row: Row) -> None:
    trial = tools.trial(row, federation={"participation": 1.0})
    assert references.round_on_meta(trial, tools.skewed(), row.host_inputs).is_meta
