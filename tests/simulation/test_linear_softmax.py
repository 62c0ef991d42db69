"""Two rounds of seven server rules on a linear softmax, against worked numbers.

SCAFFOLD, FedDyn, CLIMB and FedNova are written here as a user would write them: the contract carries per-client and
server state, gradient terms, probes of all clients and server rules other than the mean, with no change to the loop.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedrela_bench.algorithms import Algorithm, ClientUpdate, LocalContext, Server, register
from fedrela_bench.simulation import Simulation
from tests.simulation import toy

State = dict[str, Tensor]


class Uniform(Algorithm):
    citation: ClassVar[str] = "test"
    purpose: ClassVar[str] = "worked example"

    def accumulate(self, sums: State, update: ClientUpdate) -> None:
        sums["params"].add_(update.params)

    def server_step(self, sums: State, server: Server, participants: Sequence[int]) -> Tensor:
        return sums["params"] / len(participants)


@register
class UniformMean(Uniform):
    name: ClassVar[str] = "example_uniform"


@register
class Scaffold(Uniform):
    name: ClassVar[str] = "example_scaffold"

    def initial_server_state(self, server: Server) -> State:
        return {"c": torch.zeros_like(server.params)}

    def initial_client_state(self, context: LocalContext) -> State:
        return {"c": torch.zeros_like(context.server.params)}

    def adjusts_gradient(self) -> bool:
        return True

    def adjust_gradient(self, gradient: Tensor, params: Tensor, context: LocalContext) -> None:
        gradient.add_(context.server.state["c"] - context.state["c"])

    def new_sums(self, server: Server) -> State:
        return {**super().new_sums(server), "c": torch.zeros_like(server.params)}

    def accumulate(self, sums: State, update: ClientUpdate) -> None:
        super().accumulate(sums, update)
        context = update.context
        drift = (context.server.params - update.params) / (update.steps * context.lr)
        sums["c"].add_(drift - context.server.state["c"])
        context.state["c"] = context.state["c"] - context.server.state["c"] + drift

    def server_step(self, sums: State, server: Server, participants: Sequence[int]) -> Tensor:
        server.state["c"] = server.state["c"] + sums["c"] / server.clients
        return super().server_step(sums, server, participants)


@register
class FedDyn(Uniform):
    name: ClassVar[str] = "example_feddyn"
    alpha: ClassVar[float] = 0.1

    def initial_server_state(self, server: Server) -> State:
        return {"drift": torch.zeros_like(server.params)}

    def initial_client_state(self, context: LocalContext) -> State:
        return {"drift": torch.zeros_like(context.server.params)}

    def adjusts_gradient(self) -> bool:
        return True

    def adjust_gradient(self, gradient: Tensor, params: Tensor, context: LocalContext) -> None:
        gradient.add_(context.state["drift"] + params - context.server.params, alpha=self.alpha)

    def new_sums(self, server: Server) -> State:
        return {**super().new_sums(server), "drift": torch.zeros_like(server.params)}

    def accumulate(self, sums: State, update: ClientUpdate) -> None:
        super().accumulate(sums, update)
        step = update.params - update.context.server.params
        update.context.state["drift"] = update.context.state["drift"] + step
        sums["drift"].add_(step)

    def server_step(self, sums: State, server: Server, participants: Sequence[int]) -> Tensor:
        server.state["drift"] = server.state["drift"] + sums["drift"]
        return super().server_step(sums, server, participants) + server.state["drift"] / server.clients


@register
class Climb(Uniform):
    name: ClassVar[str] = "example_climb"
    dual_lr: ClassVar[float] = 2.0
    slack: ClassVar[float] = 0.005

    def initial_server_state(self, server: Server) -> State:
        zeros = torch.zeros(server.clients, dtype=server.params.dtype)
        return {"dual": zeros, "weights": torch.ones_like(zeros)}

    def probe_clients(self, server: Server, participants: Sequence[int]) -> Sequence[int]:
        return range(server.clients)

    def probe(self, net: Any, context: LocalContext) -> State:
        logits = net(context.pipeline.plain(context.images)).logits
        return {"loss": F.cross_entropy(logits, context.labels).detach()}

    def receive(self, server: Server, messages: Mapping[int, State]) -> None:
        losses = torch.stack([messages[k]["loss"] for k in range(server.clients)])
        dual = server.state["dual"]
        server.state["weights"] = 1 + dual - dual.mean()
        server.state["dual"] = (dual + self.dual_lr * (losses - losses.mean() - self.slack) / server.clients).clamp(
            0, 100
        )

    def accumulate(self, sums: State, update: ClientUpdate) -> None:
        step = update.params - update.context.server.params
        sums["params"].add_(step * update.context.server.state["weights"][update.context.client])

    def server_step(self, sums: State, server: Server, participants: Sequence[int]) -> Tensor:
        return server.params + sums["params"] / len(participants)


@register
class FedNova(Algorithm):
    name: ClassVar[str] = "example_fednova"
    citation: ClassVar[str] = "test"
    purpose: ClassVar[str] = "worked example"

    def epoch_rows(self, context: LocalContext, rng: np.random.Generator) -> np.ndarray:
        return np.arange(context.samples)

    def prepare(self, net: Any, context: LocalContext) -> None:
        context.local_epochs = {2: 5, 4: 2}[context.samples]

    def new_sums(self, server: Server) -> State:
        return {"direction": torch.zeros_like(server.params), "steps": torch.zeros((), dtype=server.params.dtype)}

    def accumulate(self, sums: State, update: ClientUpdate) -> None:
        momentum, steps = update.context.momentum, update.steps
        norm = (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
        sums["direction"].add_(update.params - update.context.server.params, alpha=update.weight / norm)
        sums["steps"] += update.weight * norm

    def server_step(self, sums: State, server: Server, participants: Sequence[int]) -> Tensor:
        return server.params + sums["steps"] * sums["direction"]


def _trial(algorithm: str, rounds: int, plain: bool, options: Mapping[str, Any]) -> Any:
    return toy.config(
        federation={"clients": 2, "rounds": rounds, "algorithm": algorithm, "options": dict(options)},
        training={
            "model": "identity_net",
            "local_epochs": 3,
            "batch_size": 8,
            "lr": 0.5,
            "momentum": 0.0 if plain else 0.9,
            "weight_decay": 0.0 if plain else 1e-5,
        },
    )


ROWS = [
    ("fedavg", "fedavg", False, {}),
    ("fedavg_plain", "fedavg", True, {}),
    ("fedavg_plain_uniform", "example_uniform", True, {}),
    ("fedprox_mu0p1", "fedprox", False, {"mu": 0.1}),
    ("fednova_steps_2_5", "example_fednova", False, {}),
    ("scaffold", "example_scaffold", True, {}),
    ("feddyn_alpha0p1", "example_feddyn", True, {}),
    ("climb", "example_climb", True, {}),
]


@pytest.mark.parametrize(("row", "algorithm", "plain", "options"), ROWS)
def test_server_rules_match_the_worked_example(
    row: str, algorithm: str, plain: bool, options: dict[str, Any], golden: Callable[[str], Path]
) -> None:
    example = json.loads(golden("algorithm_examples.json").read_text())["examples"]["linear_softmax_two_rounds"]
    names = [name for name in example["expected"] if name.startswith(row)]
    rounds = example["expected"][names[0]]["after_each_round"]
    labels = [y for client in example["inputs"]["Y"] for y in client]
    images = np.zeros((6, 1, 2, 1), dtype=np.uint8)
    data = toy.dataset(labels, [[0, 1, 2, 3], [4, 5]], 3, images=images)
    simulation = Simulation(_trial(algorithm, len(rounds), plain, options), data)
    inputs = torch.tensor([x for client in example["inputs"]["X"] for x in client], dtype=torch.float64)
    toy.with_floats(simulation, inputs.reshape(6, 1, 1, 2), torch.zeros(12, 1, 1, 2, dtype=torch.float64))
    zeros = {"head.weight": torch.zeros(3, 2, dtype=torch.float64), "head.bias": torch.zeros(3, dtype=torch.float64)}
    toy.set_weights(simulation, zeros)
    for expected in rounds:
        simulation.run_round()
        np.testing.assert_allclose(simulation.state.server.params, expected, atol=1e-8)
