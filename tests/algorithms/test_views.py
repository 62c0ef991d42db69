"""The views of FedYoYo against torchvision (tones) and the Python Imaging Library (geometry), image by image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as tv
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image
from torch import Tensor
from torchvision.transforms import AutoAugment, AutoAugmentPolicy

from fedrela_bench.algorithms import views
from fedrela_bench.algorithms.views import CODES, GREY, NONE, POLICY, UNIFORMS, augment, cutout, matrices, warp
from fedrela_bench.data.transforms import Pipeline

NORMALIZATION = ((0.5, 0.4, 0.3), (0.2, 0.25, 0.3))


def _images(count: int, height: int, width: int, channels: int, seed: int = 0) -> Tensor:
    """Noise, of which some images are dark, bright, flat, or of few levels."""
    rng = np.random.default_rng(seed)
    noise = rng.integers(0, 256, (count, height, width, channels))
    for index in range(count):
        kind = index % 5
        noise[index] = [noise[index], noise[index] // 4, 200 + noise[index] // 8, 90, noise[index] // 64 * 64][kind]
    return torch.from_numpy(noise.astype(np.uint8))


def _apply(images: Tensor, name: str, strength: float) -> Tensor:
    codes = torch.full((len(images),), CODES.get(name, NONE))
    return augment(images, codes, torch.full((len(images),), strength, dtype=torch.float64))


def _each(images: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """`change` takes and gives (C, H, W)."""
    return torch.stack([change(image.permute(2, 0, 1)).permute(1, 2, 0) for image in images])


ORACLES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "brightness": lambda image, strength: tv.adjust_brightness(image, 1 + strength),
    "contrast": lambda image, strength: tv.adjust_contrast(image, 1 + strength),
    "color": lambda image, strength: tv.adjust_saturation(image, 1 + strength),
    "sharpness": lambda image, strength: tv.adjust_sharpness(image, 1 + strength),
    "posterize": lambda image, strength: tv.posterize(image, int(strength)),
    "solarize": lambda image, strength: image if strength > 255 else tv.solarize(image, strength),
    "autocontrast": lambda image, _: tv.autocontrast(image),
    "equalize": lambda image, _: tv.equalize(image),
    "invert": lambda image, _: tv.invert(image),
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", list(ORACLES))
def test_tones_are_torchvisions_bit_for_bit(name: str, channels: int) -> None:
    images = _images(10, 20, 13, channels)
    before = images.clone()
    signed = name not in ("posterize", "solarize")
    for magnitude in range(10):
        strength = views.strength_of(name, magnitude)
        for value in (strength, -strength):
            ours = _apply(images, name, value)
            theirs = _each(images, lambda image, v=value: ORACLES[name](image, v if signed else abs(v)))  # type: ignore[misc]
            assert torch.equal(ours, theirs), (name, value)
    assert torch.equal(images, before)


@given(image=arrays(np.uint8, st.tuples(st.integers(3, 7), st.integers(3, 7), st.sampled_from([1, 3]))))
@settings(max_examples=60, deadline=None)
def test_equalisation_and_stretching_of_any_image(image: np.ndarray) -> None:
    images = torch.from_numpy(image)[None]
    for name in ("equalize", "autocontrast"):
        assert torch.equal(_apply(images, name, 0.0), _each(images, lambda x, n=name: ORACLES[n](x, 0.0)))  # type: ignore[misc]


def _imaging(images: Tensor, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    squeezed = images.squeeze(3) if images.shape[3] == 1 else images
    changed = [np.asarray(change(Image.fromarray(image.numpy()))) for image in squeezed]
    return torch.from_numpy(np.stack(changed)).view(images.shape)


def _affine(data: tuple[float, ...], fill: Any) -> Callable[[Image.Image], Image.Image]:
    return lambda image: image.transform(image.size, Image.Transform.AFFINE, data, fillcolor=fill)


def _turn(degrees: float, fill: Any) -> Callable[[Image.Image], Image.Image]:
    return lambda image: image.rotate(degrees, fillcolor=fill)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("factor", [-1.003, 1.003, -0.971, 0.971])
def test_geometry_is_that_of_the_imaging_library(factor: float, channels: int) -> None:
    """Off the policy's magnitudes: a shear of 1/15 meets pixel edges exactly, their fixed point either side."""
    images, fill = _images(3, 24, 32, channels), GREY if channels == 1 else (GREY,) * 3
    for magnitude in range(10):
        shift, shear, degrees = (
            factor * views.strength_of(name, magnitude) for name in ("translate_x", "shear_y", "rotate")
        )
        for name, strength, change in (
            ("translate_x", shift, _affine((1, 0, 32 * shift, 0, 1, 0), fill)),
            ("translate_y", shift, _affine((1, 0, 0, 0, 1, 24 * shift), fill)),
            ("shear_y", shear, _affine((1, 0, 0, shear, 1, 0), fill)),
            ("rotate", degrees, _turn(degrees, fill)),
        ):
            other = (_apply(images, name, strength) != _imaging(images, change)).any(dim=3).double().mean()
            assert float(other) < 0.005, (name, strength)


def test_every_pixel_of_a_quarter_turn() -> None:
    images = _images(2, 9, 9, 3)
    turned = warp(images, matrices(torch.full((2,), CODES["rotate"]), torch.tensor([90.0, -90.0]).double(), 9, 9), 0)
    assert torch.equal(turned[0], images[0].rot90(1))
    assert torch.equal(turned[1], images[1].rot90(-1))


def test_no_operation_leaves_images_alone() -> None:
    images = _images(5, 8, 10, 3)
    assert torch.equal(_apply(images, "none", 0.7), images)
    for name in ("rotate", "shear_y", "translate_x", "brightness", "contrast", "color", "sharpness"):
        assert torch.equal(_apply(images, name, 0.0), images), name


def test_each_image_has_its_own_operation() -> None:
    images = _images(40, 16, 16, 3)
    rng = np.random.default_rng(1)
    codes = torch.from_numpy(rng.integers(NONE, len(CODES), 40))
    strengths = torch.from_numpy(rng.uniform(-0.9, 0.9, 40))
    together = augment(images, codes, strengths)
    for index in range(40):
        alone = augment(images[index : index + 1], codes[index : index + 1], strengths[index : index + 1])
        assert torch.equal(together[index : index + 1], alone)


def test_the_policy_is_torchvisions() -> None:
    named = [
        [
            (name.lower().replace("translate", "translate_").replace("shear", "shear_"), chance)
            for name, chance, _ in pair
        ]
        for pair in AutoAugment(AutoAugmentPolicy.CIFAR10).policies
    ]
    assert [[(name, chance) for name, chance, _ in pair] for pair in POLICY] == named
    ranges = AutoAugment()._augmentation_space(10, (100, 100))
    for ours, theirs in zip(POLICY, AutoAugment(AutoAugmentPolicy.CIFAR10).policies, strict=True):
        for (name, _, magnitude), (their_name, _, their_magnitude) in zip(ours, theirs, strict=True):
            if their_magnitude is None:
                continue
            assert magnitude == their_magnitude
            value = float(ranges[their_name][0][magnitude])
            scale = 100.0 if name.startswith("translate") else 1.0
            # Solarize: 256 levels there are 255 here, which moves a threshold by less than one level.
            assert views.strength_of(name, magnitude) * scale == pytest.approx(
                value, abs=1 if name == "solarize" else 1e-5
            )


def test_sub_policies_coins_and_signs_follow_the_draws() -> None:
    images = _images(1, 16, 16, 3)

    def strong(sub: int, first: float, sign: float, second: float) -> Tensor:
        draws = torch.tensor([[(sub + 0.5) / 25, first, sign, second, 0.9, 0.5, 0.5]], dtype=torch.float64)
        return views.strong_view(images, draws)

    hidden = cutout(images, torch.tensor([[0.5, 0.5]]).double())
    assert torch.equal(strong(0, 0.99, 0.9, 0.99), hidden), "neither coin is below its chance"
    inverted = cutout(255 - images, torch.tensor([[0.5, 0.5]]).double())
    assert torch.equal(strong(0, 0.05, 0.9, 0.99), inverted)
    left, right = strong(10, 0.99, 0.9, 0.1), _apply(images, "translate_x", views.strength_of("translate_x", 8))
    assert torch.equal(left, cutout(right, torch.tensor([[0.5, 0.5]]).double()))
    bright, dark = (strong(13, 0.5, sign, 0.99).float().mean() for sign in (0.9, 0.1))
    assert bright > dark


@pytest.mark.parametrize("channels", [1, 3])
def test_cutout_is_a_square_of_half_the_side_cut_at_the_border(channels: int) -> None:
    images = torch.full((3, 32, 32, channels), 7, dtype=torch.uint8)
    hidden = cutout(images, torch.tensor([[0.5, 0.5], [0.0, 0.0], [0.999, 0.5]]).double()) == 0
    assert hidden[0, 8:24, 8:24].all()
    assert hidden[1, :8, :8].all()
    assert hidden[2, 23:, 8:24].all()
    assert [int(part.sum()) for part in hidden] == [256 * channels, 64 * channels, 9 * 16 * channels]


def _draws(pipeline: Pipeline, count: int) -> Tensor:
    return torch.from_numpy(views.view_draws(pipeline, np.random.default_rng(3), count))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("augmented", ["none", "crop_flip"])
def test_views_are_what_the_network_takes(augmented: str, channels: int) -> None:
    pipeline = Pipeline(NORMALIZATION if channels == 3 else None, augmented, torch.float32)
    images = _images(64, 28, 28, channels)
    draws = _draws(pipeline, 64)
    assert draws.shape == (64, UNIFORMS + (6 if augmented == "crop_flip" else 0))
    weak, strong = views.two_views(pipeline, images, draws)
    for view in (weak, strong):
        assert view.shape == (64, channels, 28, 28)
        assert view.dtype == torch.float32
        assert view.is_contiguous(memory_format=torch.channels_last)
    assert not torch.equal(weak, strong)
    part = views.two_views(pipeline, images[10:20], draws[10:20])
    assert torch.equal(part[0], weak[10:20])
    assert torch.equal(part[1], strong[10:20])


def test_the_weak_view_turns_by_at_most_fifteen_degrees() -> None:
    pipeline = Pipeline(None, "none", torch.float64)
    images = _images(50, 16, 16, 1)
    draws = _draws(pipeline, 50)
    weak, _ = views.two_views(pipeline, images, draws)
    for image, view, draw in zip(images, weak, draws, strict=True):
        degrees = 15 * (2 * float(draw[0]) - 1)
        turned = np.asarray(Image.fromarray(image[..., 0].numpy()).rotate(degrees)) / 255
        assert float((view[0] != torch.from_numpy(turned)).double().mean()) < 0.01
    assert 12 < float((15 * (2 * draws[:, 0] - 1)).abs().max()) <= 15


def test_both_views_crop_and_flip_on_their_own() -> None:
    pipeline = Pipeline(None, "crop_flip", torch.float64)
    images, draws = _images(30, 32, 32, 3), _draws(pipeline, 30)
    draws[:, 6], draws[:, 8], draws[:, 10] = 0.5, 0.999, 0.999
    draws[:, 7], draws[:, 12:] = 0.5 / 25, 0.0
    weak, strong = views.two_views(pipeline, images, draws)
    assert torch.equal(weak, pipeline.train(images, draws[:, :3].long()))
    moved = pipeline.train(images, draws[:, 3:6].long())
    assert torch.equal(strong[:, :, 8:, 8:], moved[:, :, 8:, 8:])
    assert not strong[:, :, :8, :8].any()
    assert not torch.equal(draws[:, :3], draws[:, 3:6])
