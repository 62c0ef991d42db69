"""What a simulation carries from round to round, and its way into a snapshot and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, cast

import torch
from torch import Tensor

from fedrela_bench.algorithms import Server
from fedrela_bench.config import TrialConfig
from fedrela_bench.errors import ConfigError, RunError
from fedrela_bench.simulation.kept import tensor_faults
from fedrela_bench.simulation.snapshot import Snapshot, base_key

SIMULATION_VERSION = "2"
"""Changes whenever the same configuration may give other bits; part of every key."""

Status = Literal["running", "completed", "diverged", "stopped"]
Tensors = dict[str, Tensor]


@dataclass
class RunState:
    """Everything that changes; the rest of a simulation follows from configuration and dataset."""

    server: Server
    counters: list[Tensor]
    """Integer buffers of the global model: the largest count of any participant."""
    labels: Tensor
    """(n,) labels in force."""
    client_states: dict[int, Tensors] = field(default_factory=dict)
    private: dict[int, Tensors] = field(default_factory=dict)
    """Parameters and buffers that stay with their client."""
    refreshes: dict[int, int] = field(default_factory=dict)
    """Index of the last relabel refresh each client did; 0 is the one at T."""
    completed_rounds: int = 0
    status: Status = "running"
    best: tuple[float, int] = (-1.0, 0)
    """Best selection value so far and evaluations since, for early stopping."""


def capture(state: RunState, config: TrialConfig, data_digest: str) -> Snapshot:
    """A copy on the CPU.

    Raises:
        ConfigError: an algorithm keeps something on the server that is no tensor.
    """
    faults = tensor_faults(config.federation.algorithm, "server.state", state.server.state)
    if faults:
        raise ConfigError(faults)
    touched = config.relabel.active(config.federation.rounds) and state.completed_rounds > config.relabel_round
    return Snapshot(
        version=SIMULATION_VERSION,
        base_key=base_key(config, data_digest),
        relabel=config.relabelling() if touched else None,
        round=state.completed_rounds,
        status=state.status,
        params=_copy(state.server.params),
        buffers=_copy(state.server.buffers),
        counters=[_copy(counter) for counter in state.counters],
        server_state=_copies(state.server.state),
        client_states={client: _copies(tensors) for client, tensors in state.client_states.items()},
        private={client: _copies(tensors) for client, tensors in state.private.items()},
        labels=_copy(state.labels),
        refreshes=dict(state.refreshes),
        best=state.best,
    )


def reinstate(state: RunState, snapshot: Snapshot, config: TrialConfig, data_digest: str) -> None:
    """Put a snapshot's values in place.

    Raises:
        RunError: the snapshot is of another run or version, or lies past the round this run relabels at.
    """
    fault = _misfit(snapshot, config, data_digest)
    if fault:
        raise RunError(fault)
    device = state.labels.device
    state.server.params = _own(snapshot.params, device)
    state.server.buffers = _own(snapshot.buffers, device)
    state.server.state = _owns(snapshot.server_state, device)
    state.counters = [_own(counter, device) for counter in snapshot.counters]
    state.client_states = {client: _owns(tensors, device) for client, tensors in snapshot.client_states.items()}
    state.private = {client: _owns(tensors, device) for client, tensors in snapshot.private.items()}
    state.labels = _own(snapshot.labels, device)
    state.refreshes = dict(snapshot.refreshes)
    state.completed_rounds = snapshot.round
    state.status = cast(Status, snapshot.status) if snapshot.status in ("diverged", "stopped") else "running"
    state.best = (snapshot.best[0], snapshot.best[1])


def _misfit(snapshot: Snapshot, config: TrialConfig, data_digest: str) -> str | None:
    if snapshot.version != SIMULATION_VERSION:
        return f"the snapshot is of simulation version {snapshot.version}, this is {SIMULATION_VERSION}; run anew"
    if snapshot.base_key != base_key(config, data_digest):
        return "the snapshot belongs to another run: data, federation, training or seed differ"
    if snapshot.relabel is not None:
        same = snapshot.relabel == config.relabelling()
        return None if same else "the snapshot has already relabelled under other settings; use one from before T"
    active = config.relabel.active(config.federation.rounds)
    if active and snapshot.round > config.relabel_round:
        past = f"round {snapshot.round}, past this run's relabelling at {config.relabel_round}"
        return f"the snapshot is of {past}; use an earlier one"
    return None


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)


def _copies(tensors: Tensors) -> Tensors:
    return {name: _copy(tensor) for name, tensor in tensors.items()}


def _own(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor.to(device, copy=True)


def _owns(tensors: Tensors, device: torch.device) -> Tensors:
    return {name: _own(tensor, device) for name, tensor in tensors.items()}
