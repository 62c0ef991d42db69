"""The batched pipeline against one image at a time, and against torchvision's normalisation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.transforms import functional

from fedrela_bench.data.inputs import PUBLISHED
from fedrela_bench.data.transforms import GRID, Pipeline, crop_flip, resized_crop
from fedrela_bench.rng import generator
from tests.data.makers import pixels


def one_by_one(images: np.ndarray, draws: np.ndarray) -> np.ndarray:
    result = np.empty_like(images)
    height, width = images.shape[1:3]
    for i, (top, left, flip) in enumerate(draws):
        padded = np.pad(images[i], ((4, 4), (4, 4), (0, 0)))
        crop = padded[top : top + height, left : left + width]
        result[i] = crop[:, ::-1] if flip else crop
    return result


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 9), st.integers(1, 12), st.integers(1, 12), st.sampled_from([1, 3]), st.integers(0, 99))
def test_crop_and_flip_are_exact(batch: int, height: int, width: int, channels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (batch, height, width, channels), dtype=np.uint8)
    draws = Pipeline(None, "crop_flip", torch.float32).draws(rng, batch)
    found = crop_flip(torch.from_numpy(images), torch.from_numpy(draws))
    np.testing.assert_array_equal(found.numpy(), one_by_one(images, draws))


@pytest.mark.parametrize("draw", [(0, 0, 0), (8, 8, 0), (0, 8, 1), (4, 4, 1), (4, 4, 0)])
def test_corners(draw: tuple[int, int, int]) -> None:
    images, draws = pixels(1), np.array([draw])
    found = crop_flip(torch.from_numpy(images), torch.from_numpy(draws)).numpy()
    np.testing.assert_array_equal(found, one_by_one(images, draws))
    if draw == (4, 4, 0):
        np.testing.assert_array_equal(found, images)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["imagenet", "cifar100"])
def test_normalisation_is_torchvisions(name: str, dtype: torch.dtype) -> None:
    images, (mean, std) = pixels(5), PUBLISHED[name]
    scaled = torch.from_numpy(images).permute(0, 3, 1, 2).to(dtype) / 255
    expected = functional.normalize(scaled, list(mean), list(std))
    found = Pipeline(PUBLISHED[name], "none", dtype).plain(torch.from_numpy(images))
    assert found.dtype == dtype
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6 if dtype == torch.float32 else 1e-14)


@pytest.mark.parametrize("channels", [1, 3])
def test_scaling_alone_is_to_tensor_and_strides_are_channels_last(channels: int) -> None:
    images = pixels(3, 9, channels)
    pipeline = Pipeline(None, "crop_flip", torch.float32)
    plain = pipeline.plain(torch.from_numpy(images))
    expected = torch.stack([functional.to_tensor(image) for image in images])
    assert torch.equal(plain, expected)
    draws = torch.from_numpy(pipeline.draws(generator(1, "augment"), 3))
    for output in (plain, pipeline.train(torch.from_numpy(images), draws)):
        assert output.is_contiguous(memory_format=torch.channels_last)
        assert output.shape == (3, channels, 9, 9)


def test_padding_is_black_before_normalisation() -> None:
    pipeline = Pipeline(((0.5,), (0.25,)), "crop_flip", torch.float64)
    white = torch.full((1, 6, 6, 1), 255, dtype=torch.uint8)
    out = pipeline.train(white, torch.tensor([[0, 0, 0]]))
    assert torch.equal(out[0, 0, :4], torch.full((4, 6), -2.0, dtype=torch.float64))
    assert torch.equal(out[0, 0, 4:, 4:], torch.full((2, 2), 2.0, dtype=torch.float64))


def test_draws() -> None:
    pipeline = Pipeline(None, "crop_flip", torch.float32)
    draws = pipeline.draws(generator(1, "augment"), 5000)
    assert draws.shape == (5000, 3)
    assert draws.dtype == np.int64
    assert draws.min(0).tolist() == [0, 0, 0]
    assert draws.max(0).tolist() == [8, 8, 1]
    np.testing.assert_allclose(draws.mean(0), [4, 4, 0.5], atol=0.15)
    np.testing.assert_array_equal(draws, pipeline.draws(generator(1, "augment"), 5000))


def test_without_augmentation_nothing_is_drawn_or_changed() -> None:
    pipeline = Pipeline(PUBLISHED["imagenet"], "none", torch.float32)
    rng = np.random.default_rng(0)
    draws = pipeline.draws(rng, 7)
    assert draws.shape == (7, 0)
    assert rng.integers(0, 2**62) == np.random.default_rng(0).integers(0, 2**62)
    images = torch.from_numpy(pixels(7))
    assert torch.equal(pipeline.train(images, torch.from_numpy(draws)), pipeline.plain(images))
    np.testing.assert_array_equal(images.numpy(), pixels(7))


def test_empty_batch() -> None:
    pipeline = Pipeline(PUBLISHED["imagenet"], "crop_flip", torch.float32)
    empty = torch.empty((0, 32, 32, 3), dtype=torch.uint8)
    assert pipeline.train(empty, torch.empty((0, 3), dtype=torch.int64)).shape == (0, 3, 32, 32)


def test_rows_of_a_table_pass_unchanged_as_a_copy() -> None:
    rows = torch.randn(3, 1, 5, 1)
    for dtype in (torch.float32, torch.float64):
        inputs = Pipeline(None, "none", dtype, rows=True).train(rows, torch.empty(3, 0))
        assert inputs.shape == (3, 1, 1, 5)
        assert inputs.dtype == dtype
        assert torch.equal(inputs[:, 0, 0], rows[:, 0, :, 0].to(dtype))
        before = rows.clone()
        inputs.zero_()
        assert torch.equal(rows, before)


# resized crops -------------------------------------------------------------------------------------------------------


def crops(images: torch.Tensor, *draws: tuple[float, float, float, float, int]) -> torch.Tensor:
    """Shares in [0, 1) of area, ratio, top and left, and flip."""
    whole = [[*(min(int(share * GRID), GRID - 1) for share in row[:4]), row[4]] for row in draws]
    return resized_crop(images, torch.tensor(whole))


def test_a_crop_of_the_whole_image_is_the_image() -> None:
    images = torch.from_numpy(pixels(3, 12))
    assert torch.equal(crops(images, *[(1, 0.5, 0.3, 0.7, 0)] * 3), images)
    assert torch.equal(crops(images, *[(1, 0.5, 0.3, 0.7, 1)] * 3), images.flip(2))


def test_crops_are_what_interpolation_of_the_part_gives() -> None:
    # Colours that rise evenly downwards and to the right: bilinear interpolation is exact.
    rise = torch.arange(64, dtype=torch.float64)
    images = torch.stack([rise[:, None].expand(64, 64), rise[None].expand(64, 64)], dim=2)[None].to(torch.float32)
    share = math.sqrt(0.08 + 0.92 * 0.25)
    part = crops(images, (0.25, 0.5, 0.5, 0.25, 0))[0]
    places = (torch.arange(64) + 0.5) / 64 * share * 64 - 0.5
    free = (1 - share) * 64
    torch.testing.assert_close(part[:, 7, 0], places + 0.5 * free, atol=1e-3, rtol=0)
    torch.testing.assert_close(part[7, :, 1], places + 0.25 * free, atol=1e-3, rtol=0)
    mirrored = crops(images, (0.25, 0.5, 0.5, 0.25, 1))[0]
    torch.testing.assert_close(mirrored.flip(1), part, atol=1e-3, rtol=0)


def test_wide_and_tall_crops_stay_inside() -> None:
    images = torch.full((2, 8, 8, 3), 200, dtype=torch.uint8)
    assert (crops(images, (0.999, 0, 0.99, 0.99, 0), (0.999, 0.999, 0, 0.99, 1)) == 200).all()


def test_the_pipeline_draws_and_applies_resized_crops() -> None:
    pipeline = Pipeline(None, "resized_crop", torch.float32)
    draws = pipeline.draws(np.random.default_rng(1), 4000)
    assert draws.shape == (4000, 5) and draws.min() >= 0 and draws[:, 4].max() == 1 and draws[:, :4].max() < GRID
    assert (np.abs(draws[:, :4].mean(axis=0) / GRID - 0.5) < 0.03).all()
    images = torch.from_numpy(pixels(5, 12))
    inputs = pipeline.train(images, torch.from_numpy(draws[:5]))
    assert inputs.shape == (5, 3, 12, 12)
    assert torch.equal(inputs, pipeline.plain(resized_crop(images, torch.from_numpy(draws[:5]))))
    one = pipeline.train(images[2:3], torch.from_numpy(draws[2:3]))
    assert torch.equal(one[0], inputs[2])
