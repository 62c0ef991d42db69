"""The contract between the federated loop and an algorithm.

The loop owns data, batches, optimiser steps, sums over clients, evaluation and relabelling. An algorithm says what a
client minimises, what it keeps between rounds, what it sends besides parameters, how the server combines, and which
logits are scored. A round runs in this order::

    server    where it holds images of its own (`server_images`), `server_probe` at the global model
    probe     every client of `probe_clients` computes `probe` at the global model; the server gets `receive`
    local     for each participant: `prepare`, then per batch `loss` (and `adjust_gradient`), then `finish`
    sums      `accumulate` adds the client's upload to running sums, in client order
    server    `server_step` turns the sums into the next global parameters
    score     `score` gives the logits that are evaluated, `posterior` those that the relabeler leans on

State is explicit: `client_state` and `server.state` are dictionaries of tensors that snapshots carry.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from fedrela_bench.models import Net, Outputs
from fedrela_bench.rng import generator

if TYPE_CHECKING:
    from fedrela_bench.data.transforms import Pipeline

Scope = Literal["shared", "client", "reset", "constant"]
"""shared: sent and averaged; client: kept by its client; reset: back to its first value at every local start and never
sent; constant: the same for all, never changed."""

State = dict[str, Tensor]


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
    """(n_k, H, W, C) uint8."""
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


@dataclass(frozen=True)
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


class Algorithm(ABC):
    """Base algorithm: FedAvg's behaviour in every hook; subclasses change what their paper changes."""

    name: ClassVar[str]
    citation: ClassVar[str]
    purpose: ClassVar[str]
    differences: ClassVar[str] = ""
    """Known differences between the paper and public code, and which is the default here."""
    OptionsModel: ClassVar[type[Options]] = NoOptions
    posterior_heads: ClassVar[tuple[str, ...]] = ("scored",)
    """Values of `relabel.posterior_head` that `posterior` knows."""

    def __init__(self, options: Options, num_classes: int) -> None:
        self.options = options
        self.num_classes = num_classes

    # network ---------------------------------------------------------------------------------------------------------

    def make_head(self, feature_dim: int) -> nn.Module:
        """The head on (B, d) features; its output is `Outputs.logits`. Built on the meta device."""
        return nn.Linear(feature_dim, self.num_classes)

    def scope(self, name: str) -> Scope:
        """Where the parameter or buffer of that name belongs."""
        return "constant" if name.rsplit(".", 1)[-1] == "etf" else "shared"

    # state and cost --------------------------------------------------------------------------------------------------

    def initial_server_state(self, server: Server) -> State:
        """The server's own state before the first round."""
        return {}

    def initial_client_state(self, context: LocalContext) -> State:
        """A client's state at its first participation."""
        return {}

    def client_state_floats(self, size: ModelSize) -> int:
        """Floats a client keeps between rounds."""
        return size.private

    def communication(self, size: ModelSize) -> tuple[int, int]:
        """Floats sent (down, up) per participant and round."""
        return size.shared, size.shared

    # before local training -------------------------------------------------------------------------------------------

    def server_images(self) -> int:
        """Images per class that the server holds itself; 0, as in FedReLa's setting: none."""
        return 0

    def server_probe(self, net: Net, server: Server, data: ServerData) -> None:
        """What the server computes from its own images; the network is in eval mode at the global model.

        Called once a round, before the clients' `probe`, where `server_images` is above 0; may change `server.state`.
        """

    def probe_clients(self, server: Server, participants: Sequence[int]) -> Sequence[int]:
        """The clients that answer `probe` this round."""
        return ()

    def probe(self, net: Net, context: LocalContext) -> State:
        """A client's message about the global model before training; the network is in eval mode at it."""
        return {}

    def receive(self, server: Server, messages: Mapping[int, State]) -> None:
        """The server reads the messages of `probe`, in client order."""

    # local training --------------------------------------------------------------------------------------------------

    def prepare(self, net: Net, context: LocalContext) -> None:
        """Once per client and round, before the first step."""

    def epoch_rows(self, context: LocalContext, rng: np.random.Generator) -> np.ndarray:
        """(m,) rows of the client's arrays in the order of one epoch: a permutation by default."""
        return rng.permutation(context.samples)

    def draw(self, context: LocalContext, rng: np.random.Generator, count: int) -> np.ndarray:
        """(count, d) random numbers of one epoch's augmentation, drawn at once."""
        return context.pipeline.draws(rng, count)

    def inputs(self, context: LocalContext, images: Tensor, draws: Tensor) -> Any:
        """What the network sees of (b, H, W, C) uint8 images: one tensor or a tuple of views, first axis b."""
        return context.pipeline.train(images, draws)

    def loss(self, net: Net, batch: Batch, context: LocalContext) -> Tensor:
        """The scalar a step descends: batch mean of the local loss."""
        outputs: Outputs = net(batch.inputs)
        return self.criterion(outputs, batch.labels, context)

    def criterion(self, outputs: Outputs, labels: Tensor, context: LocalContext) -> Tensor:
        """Cross-entropy by default; `loss` is the wider hook."""
        return F.cross_entropy(outputs.logits, labels)

    def adjusts_gradient(self) -> bool:
        """Whether `adjust_gradient` must be called; when not, the step is bit for bit the plain one."""
        return False

    def adjust_gradient(self, gradient: Tensor, params: Tensor, context: LocalContext) -> None:
        """Change the flat gradient in place before momentum and weight decay.

        Args:
            gradient: (P,) gradient of the batch loss.
            params: (P,) current local parameters, in the order of `Server.params`.
            context: the client.
        """

    def finish(self, update: ClientUpdate) -> None:
        """After the last step: write the client's state."""

    # server ----------------------------------------------------------------------------------------------------------

    def new_sums(self, server: Server) -> State:
        """Empty running sums of what clients upload."""
        return {"params": torch.zeros_like(server.params)}

    def accumulate(self, sums: State, update: ClientUpdate) -> None:
        """Add one client's upload; the sum is over the participants in client order."""
        sums["params"].add_(update.params, alpha=update.weight)

    def server_step(self, sums: State, server: Server, participants: Sequence[int]) -> Tensor:
        """The next global parameters (P,), from the sums."""
        return sums["params"]

    # scoring ---------------------------------------------------------------------------------------------------------

    def eval_batch(self) -> int | None:
        """Batch size at evaluation where it is part of the definition; None: whatever is fast."""
        return None

    def prepare_eval(self, net: Net, purpose: Literal["test", "posterior"]) -> None:
        """Put the network into the mode it is scored in."""
        net.eval()

    def score(self, net: Net, outputs: Outputs, server: Server) -> Tensor:
        """(B, C) logits whose argmax is the prediction."""
        return outputs.logits

    def extra_scores(self, net: Net, outputs: Outputs, server: Server) -> dict[str, Tensor]:
        """Further (B, C) logits that are evaluated beside `score`, by name; metrics are then `test/overall@name`."""
        return {}

    def posterior(self, net: Net, outputs: Outputs, server: Server, head: str) -> Tensor:
        """(B, C) logits whose softmax is FedReLa's posterior; `head` is one of `posterior_heads`."""
        return self.score(net, outputs, server)
