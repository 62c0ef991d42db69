"""What passes between the loop and an algorithm: options, sizes, the server, a client's round, batches, updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from fedrela_bench.models import Outputs
from fedrela_bench.rng import generator

if TYPE_CHECKING:
    from fedrela_bench.data.transforms import Pipeline

Scope = Literal["shared", "client", "reset", "constant"]
"""shared: sent and averaged; client: kept by its client; reset: back to its first value at every local start and never
sent; constant: the same for all, never changed."""

State = dict[str, Tensor]

Settings = Mapping[str, float | str]
"""Values of configuration fields by dotted name."""


class Options(BaseModel):
    """Hyperparameters of an algorithm; unknown names are faults."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False, strict=True)


class NoOptions(Options):
    """For algorithms without hyperparameters of their own."""


@dataclass(frozen=True)
class ModelSize:
    """What the cost of an algorithm depends on, in floats."""

    shared: int
    private: int
    features: int
    classes: int
    buffers: int = 0
    """Of `shared`, the floats of running statistics: averaged, not trained."""


@dataclass
class Server:
    """The server between rounds: global model, its own state, and what it knows of the clients."""

    params: Tensor
    """(P,) global parameters."""
    buffers: Tensor
    """(B,) global floating buffers (running statistics)."""
    state: State
    client_sizes: np.ndarray
    """(K,) samples of each client."""
    num_classes: int
    seed: int
    round: int = 0
    """Index of the round being run, from 0."""

    @property
    def clients(self) -> int:
        """K, the number of clients, empty ones included."""
        return len(self.client_sizes)


@dataclass(frozen=True)
class ServerData:
    """Images that the server holds itself, for algorithms that ask for them by `server_images`."""

    images: tuple[Tensor, ...]
    """Per class (m, H, W, C) uint8; a class that the source has few or no images of has fewer or none."""
    pipeline: Pipeline


@dataclass
class LocalContext:
    """One client in one round."""

    client: int
    round: int
    seed: int
    weight: float
    """p_k = n_k / total samples of the participants."""
    images: Tensor
    """(n_k, H, W, C) uint8. Index it by the rows that are wanted: of a set too large for memory only those are read."""
    labels: Tensor
    """(n_k,) labels in force, relabelled or not."""
    label_counts: Tensor
    """(C,) local class counts for losses that use them."""
    server: Server
    state: State
    """Kept by this client between rounds; starts as `initial_client_state`."""
    lr: float
    momentum: float
    local_epochs: int
    batch_size: int
    pipeline: Pipeline
    frozen: Callable[[Tensor, Tensor], Callable[[Tensor], Outputs]]
    """`frozen(params, buffers)` is the network at those values, in eval mode and without gradients."""
    scratch: dict[str, Any] = field(default_factory=dict)
    """Whatever `prepare` wants `loss` to find; gone after the round."""

    @property
    def samples(self) -> int:
        """n_k."""
        return len(self.labels)

    def generator(self, purpose: str) -> np.random.Generator:
        """Randomness of this client and round, keyed (seed, purpose, round, client)."""
        return generator(self.seed, purpose, self.round, self.client)


@dataclass(slots=True)
class Batch:
    """One step's samples: inputs from `Algorithm.inputs`, labels, and rows of the client's own arrays."""

    inputs: Any
    labels: Tensor
    rows: Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class ClientUpdate:
    """What local training leaves behind. The tensors are views of the resident model: valid during the call only."""

    context: LocalContext
    params: Tensor
    """(P,) parameters after local training."""
    buffers: Tensor
    steps: int
    """Optimiser steps taken, K_k."""

    @property
    def weight(self) -> float:
        """p_k."""
        return self.context.weight
