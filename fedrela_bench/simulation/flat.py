"""One resident network whose parameters and floating buffers are views of flat vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedrela_bench.algorithms.base import ModelSize, Scope
from fedrela_bench.models import Net, Outputs


@dataclass(frozen=True)
class Piece:
    """Where one named tensor lies in its flat vector."""

    name: str
    start: int
    stop: int
    shape: tuple[int, ...]
    scope: Scope

    @property
    def span(self) -> slice:
        """The piece's range in the vector."""
        return slice(self.start, self.stop)

    def view(self, flat: Tensor) -> Tensor:
        """The tensor in its own shape; 4-D weights lie channels-last, as convolutions on a CPU want them."""
        part = flat[self.span]
        if len(self.shape) != 4:
            return part.view(self.shape)
        out, inner, height, width = self.shape
        return part.view(out, height, width, inner).permute(0, 3, 1, 2)


class FlatModel:
    """A network, its flat vectors, and the scope of every piece.

    Args:
        net: materialised network; its parameters and buffers are moved into the flat vectors.
        scope: tells where a name belongs.
    """

    def __init__(self, net: Net, scope: Callable[[str], Scope]) -> None:
        self.net = net
        kept = [(name, value) for name, value in net.named_buffers() if scope(name) != "constant"]
        floating = [(name, value) for name, value in kept if value.is_floating_point()]
        self.param_pieces, self.params = _pack(list(net.named_parameters()), scope)
        self.buffer_pieces, self.buffers = _pack(floating, scope, like=self.params)
        self.counters = [value for _, value in kept if not value.is_floating_point()]
        self._point_network_here()
        self.gradient: Tensor | None = None

    def _point_network_here(self) -> None:
        for piece in self.param_pieces:
            _parent(self.net, piece.name)._parameters[_leaf(piece.name)] = nn.Parameter(piece.view(self.params))
        for piece in self.buffer_pieces:
            _parent(self.net, piece.name)._buffers[_leaf(piece.name)] = piece.view(self.buffers)

    @property
    def has_batch_norm(self) -> bool:
        """Whether any layer's training output depends on the other samples of the batch."""
        return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in self.net.modules())

    def size(self, features: int, classes: int) -> ModelSize:
        """Floats shared and private (parameters and buffers)."""
        shared = sum(piece.stop - piece.start for piece in self._pieces("shared"))
        private = sum(piece.stop - piece.start for piece in self._pieces("client"))
        buffers = sum(piece.stop - piece.start for piece in self.buffer_pieces if piece.scope == "shared")
        return ModelSize(shared, private, features, classes, buffers)

    def _pieces(self, scope: Scope) -> Iterator[Piece]:
        yield from (piece for piece in (*self.param_pieces, *self.buffer_pieces) if piece.scope == scope)

    def load(self, params: Tensor, buffers: Tensor) -> None:
        """Copy values in; the network sees them at once."""
        self.params.copy_(params)
        self.buffers.copy_(buffers)

    def keep_unshared(self, params: Tensor, buffers: Tensor, old_params: Tensor, old_buffers: Tensor) -> None:
        """Put the old values back into everything that is not averaged."""
        for pieces, new, old in (
            (self.param_pieces, params, old_params),
            (self.buffer_pieces, buffers, old_buffers),
        ):
            for piece in pieces:
                if piece.scope != "shared":
                    new[piece.span] = old[piece.span]

    def private(self) -> dict[str, Tensor]:
        """Copies of the live values that belong to the client, by name."""
        named = [(piece, self.params) for piece in self.param_pieces] + [(p, self.buffers) for p in self.buffer_pieces]
        return {piece.name: flat[piece.span].clone() for piece, flat in named if piece.scope == "client"}

    def load_private(self, values: dict[str, Tensor]) -> None:
        """Put a client's own values in place."""
        for pieces, flat in ((self.param_pieces, self.params), (self.buffer_pieces, self.buffers)):
            for piece in pieces:
                if piece.scope == "client":
                    flat[piece.span] = values[piece.name]

    def parameters(self) -> list[nn.Parameter]:
        """The network's parameters, in the order of the flat vector."""
        return list(self.net.parameters())

    def views(self, flat: Tensor) -> list[Tensor]:
        """A (P,) vector as tensors in the shapes and order of `parameters`."""
        return [piece.view(flat) for piece in self.param_pieces]

    def flat_gradient(self) -> Tensor:
        """(P,) vector that backward passes add into from now on."""
        if self.gradient is None:
            self.gradient = torch.zeros_like(self.params)
            for view, parameter in zip(self.views(self.gradient), self.parameters(), strict=True):
                parameter.grad = view
        return self.gradient

    def frozen(self, params: Tensor, buffers: Tensor) -> Callable[[Tensor], Outputs]:
        """The network at other values: eval mode, no gradients, live values and mode untouched."""
        values = {piece.name: piece.view(params) for piece in self.param_pieces}
        values |= {piece.name: piece.view(buffers) for piece in self.buffer_pieces}

        def call(inputs: Tensor) -> Outputs:
            modes = {module: module.training for module in self.net.modules()}
            self.net.eval()
            try:
                with torch.no_grad():
                    outputs: Outputs = functional_call(self.net, values, (inputs,))
            finally:
                for module, training in modes.items():
                    module.training = training
            return outputs

        return call

    def named(self, params: Tensor, buffers: Tensor) -> dict[str, Tensor]:
        """Tensors by their names in the network, as views of the given vectors."""
        values = {piece.name: piece.view(params) for piece in self.param_pieces}
        return values | {piece.name: piece.view(buffers) for piece in self.buffer_pieces}


def _pack(
    named: list[tuple[str, Tensor]], scope: Callable[[str], Scope], like: Tensor | None = None
) -> tuple[list[Piece], Tensor]:
    pieces: list[Piece] = []
    start = 0
    for name, value in named:
        pieces.append(Piece(name, start, start + value.numel(), tuple(value.shape), scope(name)))
        start += value.numel()
    sample = named[0][1] if named else like
    assert sample is not None, "a network has at least one parameter"
    flat = torch.zeros(start, dtype=sample.dtype, device=sample.device)
    for piece, (_, value) in zip(pieces, named, strict=True):
        piece.view(flat).copy_(value.detach())
    return pieces, flat


def _parent(net: nn.Module, name: str) -> nn.Module:
    return net.get_submodule(name.rpartition(".")[0])


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]
