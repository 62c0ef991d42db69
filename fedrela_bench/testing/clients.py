"""Checks of clients: empty ones, small ones, absent ones, their order, and plain SGD where there is only one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch

from fedrela_bench.simulation import Simulation
from fedrela_bench.testing import references, states, toys
from fedrela_bench.testing.cases import Case
from fedrela_bench.testing.rules import Check, require
from fedrela_bench.testing.runs import RELABEL

ODD = "think of batches of one sample, of classes without samples (counts of 0), and divide only by what is not 0"


def survives_odd_clients(case: Case, short_batch: str) -> None:
    """An empty client, one with one sample, one with one class; a class that nobody has."""
    trial = states.trial(case, RELABEL, federation={"participation": 1.0}, training={"short_batch": short_batch})
    simulation, results = toys.run(trial, toys.odd_clients())
    require(simulation.status == "completed", f"the run {simulation.status} after round {len(results)}")
    require(results[0].participants == (1, 2, 3), f"clients {results[0].participants} took part, not 1, 2, 3")
    losses = [result.metrics["train/loss"] for result in results]
    require(all(np.isfinite(loss) for loss in losses), f"losses {losses}")
    require(0 not in simulation.state.client_states, "the empty client has state")


def leaves_the_absent_alone(case: Case) -> None:
    """Half of the clients in every round."""
    simulation = Simulation(states.trial(case, federation={"participation": 0.5}), toys.four_clients())
    while simulation.completed_rounds < 4:
        before = states.parts(simulation.snapshot())
        result = simulation.run_round()
        after = states.parts(simulation.snapshot())
        require(len(result.participants) == 2, f"{len(result.participants)} clients took part, not 2")
        for kept in ("client_states", "private"):
            for client in set(before[kept]) - set(result.participants):
                same = client in after[kept] and states.same(before[kept][client], after[kept][client])
                require(same, f"what absent client {client} keeps changed in round {result.round}")
        require(torch.isfinite(after["params"]).all(), f"parameters are not finite after round {result.round}")


def does_not_scale_down(case: Case) -> None:
    """One client of four in every round."""
    simulation = Simulation(states.trial(case, federation={"participation": 0.25}), toys.four_clients())
    if case.server in ("own", "other"):
        list(simulation)
        require(simulation.status == "completed", f"the run {simulation.status}")
        return
    for _ in range(3):
        twin = states.twin_of(simulation)
        index, (client,), total = states.begin(twin)
        expected = states.train(twin, client, index, total).params
        simulation.run_round()
        for piece in simulation.model.param_pieces:
            if piece.scope == "shared":
                got = simulation.state.server.params[piece.span]
                equal = states.same(got, expected[piece.span], 0.0 if case.server == "mean" else 1e-12)
                require(equal, f"{piece.name} is not the only participant's after round {index + 1}")


def is_centralised_sgd(case: Case) -> None:
    """One client with all data, one epoch."""
    if case.server == "other":
        return
    federation = {"clients": 1, "rounds": 1, "participation": 1.0}
    trial = states.trial(case, federation=federation, training={"local_epochs": 1, "batch_size": 4})
    start, expected = references.centralised(Simulation(trial, toys.single_client()))
    simulation = Simulation(trial, toys.single_client())
    simulation.run_round()
    expected = expected + case.overshoot * (expected - start)
    for piece in simulation.model.param_pieces:
        if piece.scope == "shared":
            exact = case.server == "mean" and not case.overshoot
            got = simulation.state.server.params[piece.span]
            equal = states.same(got, expected[piece.span], 0.0 if exact else 1e-12)
            require(equal, f"{piece.name} is not what plain SGD on the loss gives")


def ignores_the_order(case: Case) -> None:
    """Participants forwards and backwards."""
    trial = states.trial(case, RELABEL, federation={"rounds": 3})
    forwards, backwards = (Simulation(trial, toys.four_clients()) for _ in range(2))
    draw = backwards._trainer.participants
    backwards._trainer.participants = lambda index: draw(index)[::-1]  # type: ignore[method-assign]
    for simulation in (forwards, backwards):
        list(simulation)
    ends = [states.parts(simulation.snapshot()) for simulation in (forwards, backwards)]
    wrong = [name for name in ends[0] if not states.same(ends[0][name], ends[1][name], tolerance=1e-9)]
    require(not wrong, f"{', '.join(wrong)} differ when clients are taken in another order")


def _odd() -> Iterator[Check]:
    for short_batch in ("join", "keep"):
        yield Check(
            f"odd-clients-{short_batch}",
            "Empty clients, one sample, one class, and classes that nobody has are ordinary in federated data.",
            ODD,
            partial(survives_odd_clients, short_batch=short_batch),
        )


CLIENTS = (
    *_odd(),
    Check(
        "partial-participation",
        "A round changes nothing that belongs to clients that are not in it.",
        "write only context.state of the client at hand, in finish; the server reads uploads from sums",
        leaves_the_absent_alone,
    ),
    Check(
        "single-participant",
        "With one participant the next model is that participant's: absent clients do not pull towards 0.",
        "weight by update.weight, which adds up to 1 over the participants, not by the number of all clients; a server "
        "that combines otherwise is declared: kit = {'server': 'rounding' | 'own' | 'other'}",
        does_not_scale_down,
    ),
    Check(
        "centralised",
        "One client with all data and one epoch is plain SGD on the loss.",
        "change the local objective in loss, criterion or adjust_gradient, the server's step in server_step; a step "
        "that is no mean of the clients' parameters is declared: kit = {'server': 'other'}, or overshoot",
        is_centralised_sgd,
    ),
    Check(
        "order",
        "The order of clients in a round matters only to rounding.",
        "add up in accumulate; nothing may depend on which client came first or last",
        ignores_the_order,
    ),
)
