"""The convolution with a matrix product for its weight gradient is the library's, to rounding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedrela_bench.models import conv as module
from fedrela_bench.models.conv import FEWEST_CHANNELS, Conv2d, weight_gradient


@settings(deadline=None, max_examples=60)
@given(
    batch=st.integers(1, 5),
    inner=st.integers(1, 4),
    out=st.integers(1, 5),
    side=st.tuples(st.integers(5, 9), st.integers(5, 9)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    at_once=st.sampled_from([0, 5000, 1 << 30]),
)
def test_the_weight_gradient_is_the_librarys(
    batch: int,
    inner: int,
    out: int,
    side: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    at_once: int,
) -> None:
    x = torch.randn(batch, inner, *side, dtype=torch.float64)
    layer = nn.Conv2d(inner, out, kernel, stride, padding, dtype=torch.float64)
    result = layer(x)
    slope = torch.randn_like(result)
    result.backward(slope)
    assert layer.weight.grad is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PATCH_BYTES", at_once)
        ours = weight_gradient(slope, x, layer.weight.shape, stride, padding)
    torch.testing.assert_close(ours, layer.weight.grad, rtol=1e-10, atol=1e-10)
    assert ours.is_contiguous(memory_format=torch.channels_last)


def _pair(bias: bool = True) -> tuple[nn.Conv2d, Conv2d, Tensor]:
    library = nn.Conv2d(FEWEST_CHANNELS, 6, 3, padding=1, stride=2, bias=bias, dtype=torch.float64)
    ours = Conv2d(FEWEST_CHANNELS, 6, 3, padding=1, stride=2, bias=bias, dtype=torch.float64)
    ours.load_state_dict(library.state_dict())
    return library, ours, torch.randn(3, FEWEST_CHANNELS, 7, 6, dtype=torch.float64)


@pytest.mark.parametrize("bias", [True, False])
def test_a_training_step_sees_the_same_gradients(bias: bool) -> None:
    library, ours, x = _pair(bias)
    assert ours._by_patches(x)
    inputs = []
    for layer in (library, ours):
        seen = x.clone().requires_grad_()
        layer(seen).square().sum().backward()
        inputs.append(seen.grad)
    torch.testing.assert_close(inputs[1], inputs[0], rtol=1e-10, atol=1e-10)
    for mine, theirs in zip(ours.parameters(), library.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-10, atol=1e-10)


def test_gradients_of_gradients_are_the_librarys() -> None:
    library, ours, x = _pair()
    results = []
    for layer in (library, ours):
        seen = x.clone().requires_grad_()
        slope, weight = torch.autograd.grad(layer(seen).pow(3).sum(), (seen, layer.weight), create_graph=True)
        results.append(torch.autograd.grad(slope.square().sum() + weight.square().sum(), [seen, *layer.parameters()]))
    for mine, theirs in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


def test_scoring_few_channels_and_autocast_stay_with_the_library() -> None:
    _, ours, x = _pair()
    with torch.no_grad():
        assert not ours._by_patches(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not ours._by_patches(x)
    few = Conv2d(FEWEST_CHANNELS - 1, 2, 3, dtype=torch.float64)
    assert not few._by_patches(x[:, 1:])
    assert not Conv2d(FEWEST_CHANNELS, 4, 3, groups=2, dtype=torch.float64)._by_patches(x)
    assert not ours._by_patches(x[0]) and not ours._by_patches(x[:0])
    ours.weight.requires_grad_(False)
    assert not ours._by_patches(x)
