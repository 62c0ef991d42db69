"""What several server rules share: operations on flat parameter vectors and counts of clients."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from fedrela_bench.algorithms.base import ModelSize, Server


def clients_with_data(server: Server) -> int:
    """K of a server rule: clients that can ever send something; empty ones would only dilute its means."""
    return int(np.count_nonzero(server.client_sizes))


def trained_floats(size: ModelSize) -> int:
    """Shared floats that are trained: variates and duals have no entries for running statistics."""
    return size.shared - size.buffers


def step_towards(start: Tensor, mean: Tensor, server_lr: float) -> Tensor:
    """The point start + server_lr (mean - start); at 1 exactly the mean.

    Args:
        start: (P,) global parameters before the round.
        mean: (P,) what a step of length 1 gives.
        server_lr: length of the step.
    """
    return mean if server_lr == 1 else start + server_lr * (mean - start)


def clip_norm(gradient: Tensor, limit: float) -> None:
    """Scale a (P,) gradient in place to at most the given 2-norm; a shorter one keeps every bit."""
    gradient.mul_((limit / gradient.norm().clamp(min=1e-30)).clamp(max=1))


@torch.no_grad()
def load_flat(net: nn.Module, values: Tensor) -> None:
    """Copy (P,) parameters, in the order and layout of `Server.params`, into a network."""
    start = 0
    for parameter in net.parameters():
        part, shape = values[start : start + parameter.numel()], parameter.shape
        start += parameter.numel()
        if len(shape) == 4:
            parameter.copy_(part.view(shape[0], shape[2], shape[3], shape[1]).permute(0, 3, 1, 2))
        else:
            parameter.copy_(part.view(shape))
