"""Checks of what an algorithm declares, and of what its hooks may and may not do."""

from __future__ import annotations

import copy
import dataclasses
from functools import partial
from typing import Any

import numpy as np
import torch

from fedrela_bench.simulation import Simulation
from fedrela_bench.testing import references, states, toys
from fedrela_bench.testing.cases import Case
from fedrela_bench.testing.rules import Check, require
from fedrela_bench.testing.runs import KEEP, RELABEL


def starts(case: Case) -> None:
    """The pieces of a simulation, without a round."""
    Simulation(states.trial(case), toys.four_clients())


def survives_extreme_logits(case: Case, scale: float) -> None:
    """A head with huge weights on flashing images."""
    data = toys.four_clients()
    flashing = (np.random.default_rng(0).random(data.train_images.shape) > 0.5).astype(np.uint8) * 255
    data = dataclasses.replace(data, train_images=flashing)
    simulation = Simulation(states.trial(case, training={"dtype": "float32"}), data)
    simulation.run_round()
    for name, value in states.named(simulation).items():
        if name.startswith("head.") and value.is_floating_point():
            value.mul_(scale)
    slopes = list(references.first_slopes(simulation))
    require(len(slopes) > 3, f"only {len(slopes)} batches")
    finite = all(torch.isfinite(loss) and torch.isfinite(gradient).all() for loss, gradient in slopes)
    require(finite, f"a loss or gradient is not finite with the head's weights times {scale:g}")


def trains_in_low_precision(case: Case) -> None:
    """float32, and bfloat16 autocast."""
    for amp in ("none", "bf16"):
        trial = states.trial(case, federation={"rounds": 2}, training={"dtype": "float32", "amp": amp})
        simulation, results = toys.run(trial, toys.four_clients())
        require(simulation.status == "completed", f"with training.amp = {amp} the run {simulation.status}")
        loss = results[-1].metrics["train/loss"]
        require(loss < 1e3, f"with training.amp = {amp} the loss is {loss:g}")
        kept = simulation.state.server.params.dtype
        require(kept == torch.float32, f"with training.amp = {amp} parameters are {kept}")


def keeps_what_it_declares(case: Case) -> None:
    """State of clients and server, measured after two rounds."""
    trial = states.trial(case, federation={"participation": 1.0, "rounds": 2})
    simulation, _ = toys.run(trial, toys.four_clients())
    declared = simulation.algorithm.client_state_floats(references.size_of(simulation))
    state = simulation.state
    for client in range(4):
        held = state.client_states.get(client, {}) | state.private.get(client, {})
        kept = states.floats(state.client_states.get(client, {})) + states.floats(state.private.get(client, {}))
        told = f"client {client} keeps {kept} floats ({', '.join(held) or 'nothing'}), declared are {declared}"
        require(kept == declared, told)
    if case.keeps_state is not None:
        require((declared > 0) == case.keeps_state, f"a client keeps {declared} floats")
    if case.server_state is not None:
        require(set(state.server.state) == set(case.server_state), f"the server keeps {sorted(state.server.state)}")
    first = Simulation(simulation.config, toys.four_clients()).state.server
    once = simulation.algorithm.shared_once(first, simulation.data.images[0].numel())
    added = states.floats(state.server.state) - states.floats(first.state)
    require(added == once, f"the server's state grows by {added} floats in the run, declared as shared once are {once}")
    sent = simulation.communication.get("once", 0)
    require(sent == once, f"{sent} floats are said to be sent once, declared are {once}")


def sends_what_it_declares(case: Case) -> None:
    """Messages of one client in one round, counted."""
    trial = states.trial(case, federation={"participation": 1.0}, training={"model": "kit_pixels"})
    simulation = Simulation(trial, toys.equal_clients())
    simulation.run_round()
    down, up = references.measured_communication(simulation, case)
    told = simulation.communication
    matches = (told["down"], told["up"]) == (down, up)
    require(matches, f"declared are {told}, measured {down} floats down and {up} up")


def trains_in_processes(case: Case) -> None:
    """Every piece of work done in a copy of the simulation, everything between pickled."""
    trial = states.trial(case, RELABEL)
    simulation = Simulation(trial, toys.four_clients())
    simulation._trainer.crew = references.Apart(simulation)
    results = list(simulation)
    full = states.whole_run(trial)
    require(toys.figures(results) == toys.figures(full.results), "its metrics differ from those of one process")
    differs = states.differing(states.parts(simulation.snapshot()), full.states[-1])
    require(not differs, f"{differs} differ from those of one process")


def trains_locally(case: Case) -> None:
    """Local training twice, in both orders."""
    simulation = Simulation(states.trial(case), toys.four_clients())
    simulation.run_round()
    index, participants, total = states.begin(simulation)
    server, algorithm, data = simulation.state.server, simulation.algorithm, simulation.data
    names = ("the server", "the algorithm", "images", "original labels", "labels in force")
    seen: list[Any] = [vars(server), vars(algorithm), data.images, data.original, simulation.state.labels]
    before = copy.deepcopy(seen)
    first = [states.train(simulation, client, index, total) for client in participants]
    wrong = [name for name, now, then in zip(names, seen, before, strict=True) if not states.same(now, then)]
    require(not wrong, f"local training changes {' and '.join(wrong)}")
    again = [states.train(simulation, client, index, total) for client in reversed(participants)][::-1]
    equal = all(states.same(vars(a), vars(b)) for a, b in zip(first, again, strict=True))
    require(equal, "the same client's training from the same state gives something else the second time")


def adds_up(case: Case) -> None:
    """Uploads of clients alone and together."""
    simulation = Simulation(states.trial(case, federation={"participation": 1.0}), toys.four_clients())
    simulation.run_round()
    index, participants, total = states.begin(simulation)
    empty = simulation.algorithm.new_sums(simulation.state.server)
    require(not any(tensor.any() for tensor in empty.values()), "new_sums is not 0")
    alone = [states.train(simulation, client, index, total).sums for client in participants]
    together = empty
    for client in participants:
        together = states.train(simulation, client, index, total, together).sums
    fresh = simulation.algorithm.new_sums(simulation.state.server)
    for sums in (together, *alone):
        require(set(sums) == set(fresh), f"accumulate makes {sorted(set(sums) ^ set(fresh))}, which new_sums has not")
    for name, tensor in fresh.items():
        pieces = [sums[name] for sums in alone]
        kinds = {(piece.shape, piece.dtype) for piece in pieces}
        require(kinds == {(tensor.shape, tensor.dtype)}, f"{name} changes its shape or type while it is added up")
        total_of = torch.stack(pieces).sum(dim=0)
        require(
            states.same(together[name], total_of, tolerance=1e-12), f"{name} is not the sum of the clients' uploads"
        )


def never_waits(case: Case) -> None:
    """A round on torch's meta device, which holds no values."""
    trial = states.trial(case, federation={"participation": 1.0})
    result = references.round_on_meta(trial, toys.four_clients(), case.host_inputs)
    require(result.is_meta, "server_step left the device of the parameters")


CONTRACT = (
    Check(
        "start",
        "A simulation can be built, and server and clients start from dicts of tensors by name.",
        "return such dicts from initial_server_state and initial_client_state, with tensors such as torch.tensor(0) "
        "for single numbers; the other rules need a simulation, and are looked at once there is one",
        starts,
        first=True,
    ),
    *(
        Check(
            f"extreme-logits-{name}",
            "Loss and gradient stay finite for logits of any size.",
            "use log_softmax, logsumexp or cross_entropy instead of the logarithm of a softmax, clamp what is divided "
            "by",
            partial(survives_extreme_logits, scale=scale),
        )
        for name, scale in (("positive", 1e4), ("negative", -1e4))
    ),
    Check(
        "precision",
        "It trains in float32 and under bfloat16 autocast, and the parameters stay float32.",
        "make tensors with the dtype of what they are added to, such as torch.zeros_like(params)",
        trains_in_low_precision,
    ),
    Check(
        "client-state",
        "What a client keeps between rounds is what the algorithm declares.",
        "return the floats of context.state from client_state_floats, and let initial_client_state make all of them",
        keeps_what_it_declares,
    ),
    Check(
        "messages",
        "What a client gets and sends in a round is what the algorithm declares.",
        "return (down, up) floats per participant from communication: down also counts server state that a client's "
        "hooks read, up everything in sums (what is free, derived, or one entry per client is declared in kit)",
        sends_what_it_declares,
    ),
    Check(
        "processes",
        "Clients may train in processes of their own: copies of algorithm and server give the same bits.",
        f"{KEEP}; the class stands at the top of its module",
        trains_in_processes,
    ),
    Check(
        "local-training",
        "Local training changes neither server nor algorithm nor data, and gives the same bits every time.",
        f"{KEEP}; what a round needs between prepare and loss goes into context.scratch",
        trains_locally,
    ),
    Check(
        "sums",
        "Uploads are running sums of fixed shapes, added up block by block.",
        "make every sum in new_sums, as zeros, and only add to them in accumulate, in place",
        adds_up,
    ),
    Check(
        "device",
        "The hooks of a step never read a value from the device and make no tensor elsewhere.",
        "no float(), item(), bool() or Python if on tensors in loss, criterion, adjust_gradient, accumulate and "
        "server_step, and nothing whose size or result depends on values, such as bincount, nonzero or indexing by a "
        "mask: class counts are context.label_counts; make tensors with device=outputs.logits.device (one that "
        "chooses samples by label on the host declares kit = {'host_inputs': True})",
        never_waits,
    ),
)
