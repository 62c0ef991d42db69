"""A convolution whose weight gradient is one matrix product, for training on a CPU.

Small batches on a CPU spend most of a step in the weight gradient of the library's convolution. Written as
(output gradient)^T x (input patches) it runs at the speed of the matrix product: `fedrela-bench bench` shows the two
side by side. Forward pass and input gradient stay with the library, as does every other device and number format.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

PATCH_BYTES = 8 << 20
"""Input patches laid out at once."""
FEWEST_CHANNELS = 128
"""With fewer input channels the library's weight gradient is as fast."""


class Conv2d(nn.Conv2d):
    """`torch.nn.Conv2d` with the weight gradient as a matrix product where that is faster."""

    patches = True
    """False: always the library's, as gradients per sample need it."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, H, W) -> (B, out_channels, H', W')."""
        if not self._by_patches(x):
            return super().forward(x)
        padding, stride = cast(tuple[int, int], self.padding), cast(tuple[int, int], self.stride)
        result: Tensor = _PatchConv.apply(x, self.weight, self.bias, stride, padding)
        return result

    def _by_patches(self, x: Tensor) -> bool:
        return (
            self.patches
            and torch.is_grad_enabled()
            and self.weight.requires_grad
            and self.in_channels >= FEWEST_CHANNELS
            and x.dim() == 4
            and len(x) > 0
            and x.device.type == "cpu"
            and x.dtype == self.weight.dtype
            and x.dtype in (torch.float32, torch.float64)
            and not torch.is_autocast_enabled("cpu")
            and self.groups == 1
            and self.dilation == (1, 1)
            and self.padding_mode == "zeros"
            and isinstance(self.padding, tuple)
        )


class _PatchConv(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, int], padding: tuple[int, int]
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.padding, ctx.with_bias = stride, padding, bias is not None
        return functional.conv2d(x, weight, bias, stride, padding)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        (gradient,) = gradients
        x, weight = ctx.saved_tensors
        for_x = for_weight = for_bias = None
        if ctx.needs_input_grad[0]:
            for_x = input_gradient(gradient, x, weight, ctx.stride, ctx.padding)
        if ctx.needs_input_grad[1]:
            for_weight = weight_gradient(gradient, x, weight.shape, ctx.stride, ctx.padding)
        if ctx.with_bias and ctx.needs_input_grad[2]:
            for_bias = gradient.sum(dim=(0, 2, 3))
        return for_x, for_weight, for_bias, None, None


def input_gradient(
    gradient: Tensor, x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]
) -> Tensor:
    """(B, in, H, W) from the library."""
    wanted = (True, False, False)
    parts = torch.ops.aten.convolution_backward(
        gradient, x, weight, None, stride, padding, (1, 1), False, (0, 0), 1, wanted
    )
    return cast(Tensor, parts[0])


def weight_gradient(
    gradient: Tensor, x: Tensor, shape: torch.Size, stride: tuple[int, int], padding: tuple[int, int]
) -> Tensor:
    """Sum over images and positions of output gradient times input patch.

    Args:
        gradient: (B, out, H', W') of the loss with respect to the output.
        x: (B, in, H, W) input.
        shape: of the weight, (out, in, kh, kw).
        stride: of the convolution.
        padding: zeros around the input.

    Returns:
        (out, in, kh, kw) in the strides of channels_last.
    """
    out, inner, height, width = shape
    rows = functional.pad(x, (padding[1], padding[1], padding[0], padding[0])).permute(0, 2, 3, 1)
    slopes = gradient.permute(0, 2, 3, 1)
    step = max(1, PATCH_BYTES // (slopes[0, :, :, 0].numel() * inner * height * width * x.element_size()))
    total: Tensor | None = None
    for start in range(0, len(x), step):
        patches = _patches(rows[start : start + step], (height, width), stride)
        flat = slopes[start : start + step].reshape(len(patches), out)
        total = flat.t() @ patches if total is None else torch.addmm(total, flat.t(), patches)
    assert total is not None, "a batch has at least one image"
    return total.view(out, height, width, inner).permute(0, 3, 1, 2)


def _patches(rows: Tensor, kernel: tuple[int, int], stride: tuple[int, int]) -> Tensor:
    """(B, H, W, in) -> (B * H' * W', kh * kw * in)."""
    windows = rows.unfold(1, kernel[0], stride[0]).unfold(2, kernel[1], stride[1])
    batch, high, wide, inner = windows.shape[:4]
    return windows.permute(0, 1, 2, 4, 5, 3).reshape(batch * high * wide, kernel[0] * kernel[1] * inner)
