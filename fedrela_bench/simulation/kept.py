"""What the server and clients keep between rounds: tensors by name, as snapshots and other processes carry them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from fedrela_bench.simulation.local import LocalWork

PACKAGE = __name__.partition(".")[0]


def tensor_faults(algorithm: str, where: str, state: object) -> list[str]:
    """Everything in a state that is no tensor, each with its remedy.

    Args:
        algorithm: its name.
        where: the hook that gave it, or its own name.
        state: what was given.
    """
    if not isinstance(state, Mapping):
        return [f"algorithm {algorithm}: {where} is of type {type(state).__name__}; give a dict of tensors by name"]
    return [
        f"algorithm {algorithm}: {where} has {name!r} of type {type(value).__name__}; keep tensors, such as "
        f"{_as_tensor(value)}"
        for name, value in state.items()
        if not isinstance(value, Tensor)
    ]


def _as_tensor(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return "torch.from_numpy(...)"
    return f"torch.tensor({value!r})" if isinstance(value, int | float) else "torch.tensor(0)"


def first_faults(work: LocalWork) -> list[str]:
    """What is wrong with the states that an algorithm starts from; of clients the first one with samples is asked."""
    algorithm, server = work.algorithm, work.state.server
    faults = tensor_faults(algorithm.name, "initial_server_state", server.state)
    clients = [client for client, samples in enumerate(server.client_sizes) if samples > 0]
    hook: Any = type(algorithm).initial_client_state
    if not clients or hook.__module__.partition(".")[0] == PACKAGE:
        return faults
    return faults + tensor_faults(algorithm.name, "initial_client_state", _first_state(work, clients[0]))


def _first_state(work: LocalWork, client: int) -> object:
    try:
        with torch.random.fork_rng(devices=[]):
            return work.context(client, 0, len(work.data.rows[client])).state
    except Exception:
        # It may lean on what comes before it in a round, where it is called again and tells of its own faults.
        return {}
