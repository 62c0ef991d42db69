"""What the arithmetic alone would cost: the workload's own layers without a loop, and plain matrix products."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedrela_bench.bench.timing import timed
from fedrela_bench.models import Net

GEMM_SIDE = 1024
LEAST_SECONDS = 0.01
"""A shorter piece is repeated until it took that long."""
BLOCKS = 3


@dataclass(frozen=True)
class Layer:
    """A convolution or linear layer and what enters it."""

    weight: tuple[int, ...]
    bias: bool
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    entering: tuple[int, ...]
    """Shape of one sample's input, without the batch."""
    first: bool
    """The gradient of the images themselves is never needed."""

    def flops(self, training: bool) -> float:
        """Floating-point operations of one sample: forward, and with `training` both backward products."""
        size = 2.0
        for extent in (*self.weight, *self.leaving[1:]):
            size *= extent
        return size * ((2 if self.first else 3) if training else 1)

    @property
    def leaving(self) -> tuple[int, ...]:
        """Shape of one sample's output."""
        if len(self.weight) == 2:
            return (self.weight[0],)
        sides = zip(self.entering[1:], self.weight[2:], self.stride, self.padding, strict=True)
        return (self.weight[0], *((side + 2 * pad - kernel) // step + 1 for side, kernel, step, pad in sides))


def layers_of(net: Net, shape: tuple[int, int, int], device: torch.device, dtype: torch.dtype) -> Counter[Layer]:
    """The convolutions and linear layers that one image passes, equal ones counted.

    Args:
        net: materialised; left as it was.
        shape: (C, H, W) of an image.
        device: of the network.
        dtype: of the network.
    """
    found: list[Layer] = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(module, kinds), "hooks are on these layers only"
        stride, padding = ((), ()) if isinstance(module, nn.Linear) else (module.stride, module.padding)
        assert not isinstance(padding, str), "paddings are numbers in every model here"
        weight, entering = tuple(module.weight.shape), tuple(inputs[0].shape[1:])
        found.append(Layer(weight, module.bias is not None, stride, padding, entering, not found))

    kinds = (nn.Conv2d, nn.Linear)
    hooks = [module.register_forward_pre_hook(note) for module in net.modules() if isinstance(module, kinds)]
    training = net.training
    net.eval()
    with torch.no_grad():
        net(torch.zeros(1, *shape, device=device, dtype=dtype))
    net.train(training)
    for hook in hooks:
        hook.remove()
    return Counter(found)


class LayerFloor:
    """Times layers one by one, forward or forward and backward, in the better of two memory layouts.

    Args:
        layers: from `layers_of`.
        batch: images at a time.
        training: with backward.
        device: where.
        dtype: of weights and inputs.
    """

    def __init__(
        self, layers: Counter[Layer], batch: int, training: bool, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.batch = batch
        self.pieces = [
            (count, [Piece(_call(layer, batch, training, device, dtype, layout), device) for layout in _layouts(layer)])
            for layer, count in layers.items()
        ]

    def seconds_per_image(self) -> float:
        """Sum over layers of the faster layout's seconds, for one image of a batch."""
        return sum(count * min(piece.seconds() for piece in pieces) for count, pieces in self.pieces) / self.batch


def _layouts(layer: Layer) -> tuple[torch.memory_format, ...]:
    return (torch.channels_last, torch.contiguous_format) if len(layer.weight) == 4 else (torch.contiguous_format,)


def _call(
    layer: Layer,
    batch: int,
    training: bool,
    device: torch.device,
    dtype: torch.dtype,
    layout: torch.memory_format,
) -> Callable[[], None]:
    def make(*shape: int) -> Tensor:
        tensor = torch.ones(shape, device=device, dtype=dtype).mul_(0.01)
        return tensor.contiguous(memory_format=layout) if len(shape) == 4 else tensor

    weight, entering = make(*layer.weight), make(batch, *layer.entering)
    bias = make(layer.weight[0]) if layer.bias else None
    above = make(batch, *layer.leaving)
    wanted = [tensor for tensor in (weight, bias, None if layer.first else entering) if tensor is not None]

    def forward() -> Tensor:
        if len(layer.weight) == 2:
            return functional.linear(entering, weight, bias)
        return functional.conv2d(entering, weight, bias, layer.stride, layer.padding)

    def infer() -> None:
        with torch.inference_mode():
            forward()

    def train() -> None:
        torch.autograd.grad(forward(), wanted, above)

    if training:
        for tensor in wanted:
            tensor.requires_grad_()
    return train if training else infer


class Piece:
    """A call that is timed in blocks long enough for the clock.

    Args:
        call: what is timed.
        device: where it computes; on a CPU only the seconds of its cores count.
    """

    def __init__(self, call: Callable[[], object], device: torch.device) -> None:
        self.call = call
        self.device = device
        self.times = 0

    def seconds(self) -> float:
        """Seconds of one call: the least of a few blocks."""
        if not self.times:
            self.times = 1
            while self._block() < LEAST_SECONDS:
                self.times *= 2
        return min(self._block() for _ in range(BLOCKS)) / self.times

    def _block(self) -> float:
        span = timed(self.call, self.device, self.times) * self.times
        return span.cpu if self.device.type == "cpu" else span.wall


def product_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Floating-point operations per second of square matrix products."""
    first = torch.ones(GEMM_SIDE, GEMM_SIDE, device=device, dtype=dtype)
    second = torch.ones_like(first)
    return 2.0 * GEMM_SIDE**3 / Piece(lambda: first @ second, device).seconds()


def total_flops(layers: Counter[Layer], trained: int, evaluated: int) -> float:
    """Operations of a round that trains on and evaluates so many images."""
    parts: Sequence[tuple[int, bool]] = ((trained, True), (evaluated, False))
    return sum(count * images * layer.flops(training) for layer, count in layers.items() for images, training in parts)
