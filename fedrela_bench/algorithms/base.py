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

State is explicit: a client's and the server's are dictionaries of tensors that snapshots carry. Local training may run
in another process than the server, on a copy of it: only `initial_server_state`, `server_probe`, `receive` and
`server_step` may change `server.state`, what clients send goes through the sums of `new_sums`, which are added up block
by block, and an algorithm keeps nothing of a run in itself.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedrela_bench.algorithms.parts import (
    Batch,
    ClientUpdate,
    LocalContext,
    ModelSize,
    NoOptions,
    Options,
    Scope,
    Server,
    ServerData,
    Settings,
    State,
)
from fedrela_bench.models import Net, Outputs

__all__ = [
    "Algorithm",
    "Batch",
    "ClientUpdate",
    "LocalContext",
    "ModelSize",
    "NoOptions",
    "Options",
    "Scope",
    "Server",
    "ServerData",
    "Settings",
    "State",
]


class Algorithm(ABC):
    """Base algorithm: FedAvg's behaviour in every hook; subclasses change what their paper changes."""

    name: ClassVar[str]
    citation: ClassVar[str]
    purpose: ClassVar[str]
    differences: ClassVar[str] = ""
    """Known differences between the paper and public code, and which is the default here."""
    published: ClassVar[Settings] = {}
    """Settings of the authors' own experiments by dotted name, where they are known: shown, never applied by itself."""
    OptionsModel: ClassVar[type[Options]] = NoOptions
    posterior_heads: ClassVar[tuple[str, ...]] = ("scored",)
    """Values of `relabel.posterior_head` that `posterior` knows; the first is the default."""
    search_space: ClassVar[Mapping[str, Any]] = {}
    """How `tune --stage base` tunes it, as `parameters` of a space file; names of options may stand alone. Algorithms
    of the package have files instead."""

    kit: ClassVar[Mapping[str, Any]] = {}
    """What `fedrela_bench.testing` should expect of it: fields of its `Case`, such as ``{"server": "own"}``."""

    separable: ClassVar[bool] = False
    """With hooks of local training overridden: whether the loss of a batch is still the mean of losses that depend on
    one sample, the parameters and what the server sent, and on no other sample's label; DP-SGD needs that."""

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

    def needs_images(self) -> str:
        """Why these options cannot train on the rows of a table, with a remedy where there is one; empty: they can."""
        return ""

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

    def shared_once(self, server: Server, input_floats: int) -> int:
        """Floats that all clients together send in the first round; the server keeps them and sends them to all.

        Args:
            server: knows the clients' sizes.
            input_floats: of one network input.
        """
        return 0

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
        """After the last step: write the client's state, in tensors of its own (those of `update` live on)."""

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
        """Further (B, C) logits that are evaluated beside `score`, by name; metrics are then `test/overall.name`."""
        return {}

    def scores_clients(self) -> bool:
        """Whether every evaluation also measures `personal_score` of every client, as ``test/personal``."""
        return False

    def personal_score(self, net: Net, outputs: Outputs, counts: Tensor) -> Tensor:
        """(B, C) logits of one client's own model.

        Args:
            net: holds the client's private part.
            outputs: of the global model.
            counts: (C,) the client's labels in force.
        """
        return outputs.logits

    def posterior(self, net: Net, outputs: Outputs, server: Server, head: str) -> Tensor:
        """(B, C) logits whose softmax is FedReLa's posterior; `head` is one of `posterior_heads`."""
        return self.score(net, outputs, server)
