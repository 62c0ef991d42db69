"""Trials, local models and quadratic clients for the tests of server rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedrela_bench.algorithms import Algorithm, ClientUpdate, Server
from fedrela_bench.simulation import Simulation
from tests.simulation import toy

Golden = Callable[[str], Path]
PLAIN = {"momentum": 0.0, "weight_decay": 0.0}


def example_of(golden: Golden, name: str) -> dict[str, Any]:
    return dict(json.loads(golden("algorithm_examples.json").read_text())["examples"][name])


def trial(algorithm: str, options: Mapping[str, Any] | None = None, **sections: Any) -> Any:
    federation = {"algorithm": algorithm, "options": dict(options or {}), "clients": 4, "rounds": 4}
    return toy.config(federation=federation | sections.pop("federation", {}), **sections)


def local_models(simulation: Simulation) -> dict[int, tuple[Tensor, Tensor]]:
    """Local parameters and buffers of the clients of the next round, filled while it runs."""
    found: dict[int, tuple[Tensor, Tensor]] = {}
    accumulate = simulation.algorithm.accumulate

    def record(sums: dict[str, Tensor], update: ClientUpdate) -> None:
        found[update.context.client] = (update.params.clone(), update.buffers.clone())
        accumulate(sums, update)

    simulation.algorithm.accumulate = record  # type: ignore[method-assign]
    return found


@dataclass
class Quadratic:
    """Clients with 0.5 sum_j a_j (w_j - b_j)^2, stepped through an algorithm's hooks."""

    algorithm: Algorithm
    inputs: dict[str, Any]
    momentum: float = 0.0

    def __post_init__(self) -> None:
        self.a, self.b = (torch.tensor(self.inputs[name], dtype=torch.float64) for name in "ab")
        sizes = np.array(self.inputs.get("n", np.ones(len(self.a))))
        start = torch.tensor(self.inputs["w0"], dtype=torch.float64)
        self.server = Server(start, torch.zeros(0), {}, sizes, 2, seed=0)
        self.server.state = self.algorithm.initial_server_state(self.server)
        self.states: dict[int, dict[str, Tensor]] = {}
        self.locals: list[Tensor] = []

    def round(self, steps: Sequence[int]) -> Tensor:
        sums, self.locals = self.algorithm.new_sums(self.server), []
        for client, count in enumerate(steps):
            update = ClientUpdate(self._context(client), self.server.params.clone(), torch.zeros(0), count)
            self._train(client, update)
            self.algorithm.finish(update)
            self.algorithm.accumulate(sums, update)
            self.states[client] = update.context.state
            self.locals.append(update.params)
        self.server.params = self.algorithm.server_step(sums, self.server, range(len(steps)))
        return self.server.params

    def _context(self, client: int) -> Any:
        sizes = self.server.client_sizes
        context: Any = SimpleNamespace(
            client=client,
            server=self.server,
            weight=sizes[client] / sizes.sum(),
            samples=sizes[client],
            lr=self.inputs["lr"],
            momentum=self.momentum,
            scratch={},
        )
        known = self.states.get(client)
        context.state = self.algorithm.initial_client_state(context) if known is None else known
        return context

    def _train(self, client: int, update: ClientUpdate) -> None:
        self.algorithm.prepare(torch.nn.Identity(), update.context)  # type: ignore[arg-type]
        velocity = torch.zeros_like(update.params)
        for _ in range(update.steps):
            gradient = self.a[client] * (update.params - self.b[client])
            if self.algorithm.adjusts_gradient():
                self.algorithm.adjust_gradient(gradient, update.params, update.context)
            velocity.mul_(self.momentum).add_(gradient)
            update.params.sub_(self.inputs["lr"] * velocity)


def close(actual: Any, expected: Any, tolerance: float = 1e-9) -> None:
    actual = torch.stack(list(actual)) if isinstance(actual, list) else actual
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def losses_of(values: Sequence[float]) -> dict[int, dict[str, Tensor]]:
    return {client: {"loss": torch.tensor(value, dtype=torch.float64)} for client, value in enumerate(values)}
