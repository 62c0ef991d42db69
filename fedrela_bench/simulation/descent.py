"""Heavy-ball SGD on the pieces of a flat model."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.sgd import sgd

from fedrela_bench.simulation.flat import FlatModel


class HeavyBall:
    """v <- m v + (g + wd w), w <- w - lr v, in one fused call over all parameters.

    The velocities are views of one vector that every client starts from zero: the first step's v is then g, as for an
    empty buffer, and nothing is allocated between steps. A parameter without gradient is left alone.

    Args:
        model: whose live values descend.
        momentum: m; 0 keeps no velocities.
        weight_decay: wd, coupled.
    """

    def __init__(self, model: FlatModel, momentum: float, weight_decay: float) -> None:
        self.momentum = momentum
        self.weight_decay = weight_decay
        self._parameters = model.parameters()
        self._values = [parameter.detach() for parameter in self._parameters]
        self._velocity = torch.zeros_like(model.params) if momentum else None
        views = model.views(self._velocity) if self._velocity is not None else [None] * len(self._values)
        self._velocities: list[Tensor | None] = list(views)

    def start(self) -> None:
        """Forget what an earlier client left behind."""
        if self._velocity is not None:
            self._velocity.zero_()

    def drop_gradients(self) -> None:
        """The next backward pass begins with none."""
        for parameter in self._parameters:
            parameter.grad = None

    def step(self, lr: float) -> None:
        """Descend along the gradients that the backward pass left."""
        rows = zip(self._values, self._parameters, self._velocities, strict=True)
        moved = [(value, parameter.grad, velocity) for value, parameter, velocity in rows if parameter.grad is not None]
        if not moved:
            return
        with torch.no_grad():
            sgd(
                [value for value, _, _ in moved],
                [gradient for _, gradient, _ in moved],
                [velocity for _, _, velocity in moved],
                fused=True,
                weight_decay=self.weight_decay,
                momentum=self.momentum,
                lr=lr,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )
