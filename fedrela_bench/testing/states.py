"""Runs as comparable values, and one client's local training, for the kit's checks."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from fedrela_bench.algorithms import ALGORITHMS, ClientUpdate
from fedrela_bench.config import TrialConfig
from fedrela_bench.data.federated import FederatedDataset
from fedrela_bench.nested import canonical_json
from fedrela_bench.simulation import RoundResult, Simulation, Snapshot, load_snapshot, save_snapshot
from fedrela_bench.simulation.state import capture, reinstate
from fedrela_bench.testing import toys
from fedrela_bench.testing.cases import Case

T = TypeVar("T")


def trial(case: Case, relabel: Mapping[str, Any] | None = None, **sections: Mapping[str, Any]) -> TrialConfig:
    """A small trial of the case's algorithm: 4 clients, 3 of them in each of 4 rounds, batch norm, float64."""
    federation = {
        "algorithm": case.name,
        "options": dict(case.options),
        "clients": 4,
        "rounds": 4,
        "participation": 0.75,
        **sections.pop("federation", {}),
    }
    training = {"batch_size": 12, **case.training, **sections.pop("training", {})}
    return toys.config(federation=federation, training=training, relabel=relabel or {}, **sections)


def same(left: Any, right: Any, tolerance: float = 0.0) -> bool:
    """Whether two nested values are equal: tensors bit for bit, or within a relative and absolute tolerance."""
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        if left.shape != right.shape or left.dtype != right.dtype:
            return False
        if tolerance and left.is_floating_point():
            return torch.allclose(left, right, rtol=tolerance, atol=tolerance)
        return torch.equal(left, right)
    if isinstance(left, np.ndarray):
        return np.array_equal(left, right)
    if isinstance(left, Mapping):
        return left.keys() == right.keys() and all(same(left[key], right[key], tolerance) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(same(a, b, tolerance) for a, b in zip(left, right, strict=True))
    return bool(left == right)


def differing(left: Mapping[str, Any], right: Mapping[str, Any]) -> str:
    """Names of the parts in which two states differ."""
    return ", ".join(name for name in left if name not in right or not same(left[name], right[name]))


def named_tensors(net: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers of a network, detached."""
    return {name: tensor.detach() for name, tensor in (*net.named_parameters(), *net.named_buffers())}


def parts(snapshot: Snapshot) -> dict[str, Any]:
    """What a run carries, without what its relabel section is called."""
    kept = ("params", "buffers", "counters", "server_state", "client_states", "private", "labels", "round")
    return {name: getattr(snapshot, name) for name in kept}


@dataclass(frozen=True)
class Run:
    """A whole run: its state before the first round and after each, and what each round reported."""

    states: list[dict[str, Any]]
    results: list[RoundResult]


_RUNS: dict[tuple[type, str], Run] = {}


def whole_run(config: TrialConfig) -> Run:
    """The run of a configuration on the skewed federation, computed once."""
    key = ALGORITHMS[config.federation.algorithm], canonical_json(config.model_dump(mode="json"))
    if key not in _RUNS:
        simulation = Simulation(config, toys.four_clients())
        states, results = [parts(simulation.snapshot())], []
        for result in simulation:
            states.append(parts(simulation.snapshot()))
            results.append(result)
        _RUNS[key] = Run(states, results)
    return _RUNS[key]


def through_file(simulation: Simulation, config: TrialConfig, data: FederatedDataset, path: Path) -> Simulation:
    """A new simulation that goes on from the other's snapshot on disk."""
    save_snapshot(path, simulation.snapshot())
    again = Simulation(config, data)
    again.restore(load_snapshot(path))
    return again


def twin_of(simulation: Simulation) -> Simulation:
    """Another simulation in the same state that shares no tensor with it, as a process of its own has it."""
    twin = Simulation(simulation.config, simulation.dataset)
    twin.algorithm = twin._trainer.algorithm = twin._trainer.solver.algorithm = copied(simulation.algorithm)
    reinstate(twin.state, copied(capture(simulation.state, twin.config, "")), twin.config, "")
    twin.state.server.round = simulation.state.server.round
    return twin


def copied(value: T) -> T:
    """What arrives in another process."""
    return cast(T, pickle.loads(pickle.dumps(value)))


def named(simulation: Simulation) -> dict[str, Tensor]:
    """Global parameters and buffers by name."""
    server = simulation.state.server
    return simulation.model.named(server.params, server.buffers)


def floats(tensors: Mapping[str, Tensor]) -> int:
    """Numbers held."""
    return sum(tensor.numel() for tensor in tensors.values())


# local training ------------------------------------------------------------------------------------------------------


@dataclass
class Left:
    """What one client's local training leaves behind, copied."""

    params: Tensor
    buffers: Tensor
    state: dict[str, Tensor]
    sums: dict[str, Tensor]
    loss: Tensor


def begin(simulation: Simulation) -> tuple[int, list[int], int]:
    """Do the next round's exchange before training; gives its index, participants and their samples."""
    trainer, index = simulation._trainer, simulation.completed_rounds
    participants = trainer.participants(index)
    total = int(simulation.state.server.client_sizes[participants].sum())
    simulation.state.server.round = index
    trainer._probe(index, participants, total)
    return index, participants, total


def train(simulation: Simulation, client: int, index: int, total: int, sums: dict[str, Tensor] | None = None) -> Left:
    """One client's local training and upload; its kept state stays as it was."""
    trainer, algorithm, model = simulation._trainer, simulation._trainer.solver.algorithm, simulation.model
    trainer.load_client(client)
    context = trainer.context(client, index, total)
    context.state = copy.deepcopy(context.state)
    result = trainer.solver.train(context)
    with torch.no_grad():
        update = ClientUpdate(context, model.params, model.buffers, result.steps)
        algorithm.finish(update)
        added = algorithm.new_sums(simulation.state.server) if sums is None else sums
        algorithm.accumulate(added, update)
    return Left(model.params.clone(), model.buffers.clone(), context.state, added, result.loss_sum)
