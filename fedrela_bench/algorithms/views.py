"""The weak and the strong view of FedYoYo, as operations on whole batches of uint8 images.

Weak: crop, flip, rotation within 15 degrees. Strong: crop, flip, a sub-policy of AutoAugment's CIFAR-10 policy (Cubuk
et al., "AutoAugment: Learning Augmentation Policies from Data", CVPR 2019), and cutout of a square of half the side
(DeVries and Taylor, 2017: 16 of 32 pixels). Crop and flip are those of the dataset, and left out where it has none.

Each image has its own operation, chosen by masks and not by branches, so that nothing is read back from a device.
Arithmetic follows torchvision's uint8 tensors; geometry takes the nearest pixel and fills with grey in the policy, as
the AutoAugment code used with CIFAR does, and with black in the weak view.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fedrela_bench.data.transforms import Pipeline

OPERATIONS = (
    "shear_y",
    "translate_x",
    "translate_y",
    "rotate",
    "color",
    "sharpness",
    "brightness",
    "contrast",
    "posterize",
    "solarize",
    "autocontrast",
    "equalize",
    "invert",
)
CODES = {name: code for code, name in enumerate(OPERATIONS)}
NONE = -1

# Two operations each: name, probability, magnitude from 0 to 9.
POLICY = (
    (("invert", 0.1, 7), ("contrast", 0.2, 6)),
    (("rotate", 0.7, 2), ("translate_x", 0.3, 9)),
    (("sharpness", 0.8, 1), ("sharpness", 0.9, 3)),
    (("shear_y", 0.5, 8), ("translate_y", 0.7, 9)),
    (("autocontrast", 0.5, 8), ("equalize", 0.9, 2)),
    (("shear_y", 0.2, 7), ("posterize", 0.3, 7)),
    (("color", 0.4, 3), ("brightness", 0.6, 7)),
    (("sharpness", 0.3, 9), ("brightness", 0.7, 9)),
    (("equalize", 0.6, 5), ("equalize", 0.5, 1)),
    (("contrast", 0.6, 7), ("sharpness", 0.6, 5)),
    (("color", 0.7, 7), ("translate_x", 0.5, 8)),
    (("equalize", 0.3, 7), ("autocontrast", 0.4, 8)),
    (("translate_y", 0.4, 3), ("sharpness", 0.2, 6)),
    (("brightness", 0.9, 6), ("color", 0.2, 8)),
    (("solarize", 0.5, 2), ("invert", 0.0, 3)),
    (("equalize", 0.2, 0), ("autocontrast", 0.6, 0)),
    (("equalize", 0.2, 8), ("equalize", 0.6, 4)),
    (("color", 0.9, 9), ("equalize", 0.6, 6)),
    (("autocontrast", 0.8, 4), ("solarize", 0.2, 8)),
    (("brightness", 0.1, 3), ("color", 0.7, 0)),
    (("solarize", 0.4, 5), ("autocontrast", 0.9, 3)),
    (("translate_y", 0.9, 9), ("translate_y", 0.7, 9)),
    (("autocontrast", 0.9, 2), ("solarize", 0.8, 3)),
    (("equalize", 0.8, 8), ("invert", 0.1, 3)),
    (("translate_y", 0.7, 9), ("autocontrast", 0.9, 1)),
)
WEAK_DEGREES = 15.0
GREY, BLACK = 128, 0
UNIFORMS = 8
"""Uniform draws per image: weak angle, sub-policy, coin and sign of both operations, centre of the cutout."""


def strength_of(name: str, magnitude: int) -> float:
    """What a magnitude from 0 to 9 means: a shear, a share of the side, degrees, a gain, bits, or a level."""
    share = magnitude / 9
    if name == "posterize":
        return float(round(8 - 4 * share))
    if name == "solarize":
        return 256 * (1 - share)
    scales = {"shear_y": 0.3, "translate_x": 150 / 331, "translate_y": 150 / 331, "rotate": 30.0}
    return scales.get(name, 0.9) * share


def view_draws(pipeline: Pipeline, rng: np.random.Generator, count: int) -> np.ndarray:
    """(count, 2 p + 8) float64: the p numbers of each view's augmentation, then uniforms in [0, 1)."""
    moves = [pipeline.draws(rng, count) for _ in range(2)]
    return np.concatenate([*moves, rng.random((count, UNIFORMS))], axis=1)


def two_views(pipeline: Pipeline, images: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    """Weak and strong network inputs (B, C, H, W) of (B, H, W, C) uint8 images, by the draws of `view_draws`."""
    moves, uniforms = draws[:, :-UNIFORMS].long(), draws[:, -UNIFORMS:]
    half = moves.shape[1] // 2
    weak = weak_view(pipeline.moved(images, moves[:, :half]), uniforms[:, 0])
    strong = strong_view(pipeline.moved(images, moves[:, half:]), uniforms[:, 1:])
    return pipeline.plain(weak), pipeline.plain(strong)


def weak_view(images: Tensor, uniforms: Tensor) -> Tensor:
    """Rotate (B, H, W, C) images by angles within 15 degrees, black around; `uniforms` (B,) in [0, 1)."""
    degrees = WEAK_DEGREES * (2 * uniforms - 1)
    codes = torch.full_like(degrees, CODES["rotate"], dtype=torch.long)
    return warp(images, matrices(codes, degrees, images.shape[1], images.shape[2]), BLACK)


def strong_view(images: Tensor, uniforms: Tensor) -> Tensor:
    """One sub-policy and one cutout per image.

    Args:
        images: (B, H, W, C) uint8.
        uniforms: (B, 7) in [0, 1): sub-policy, coin, sign, coin, sign, vertical and horizontal centre.
    """
    codes, chances, strengths = _policy(images.device)
    chosen = (uniforms[:, 0] * len(POLICY)).long()
    for stage in range(2):
        coin, sign = uniforms[:, 1 + 2 * stage], uniforms[:, 2 + 2 * stage]
        code = torch.where(coin < chances[chosen, stage], codes[chosen, stage], NONE)
        images = augment(images, code, strengths[chosen, stage] * torch.where(sign < 0.5, -1.0, 1.0))
    return cutout(images, uniforms[:, 5:])


@lru_cache(maxsize=8)
def _policy(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    codes = [[CODES[name] for name, _, _ in pair] for pair in POLICY]
    chances = [[chance for _, chance, _ in pair] for pair in POLICY]
    strengths = [[strength_of(name, magnitude) for name, _, magnitude in pair] for pair in POLICY]
    real = [torch.tensor(values, dtype=torch.float64, device=device) for values in (chances, strengths)]
    return torch.tensor(codes, device=device), real[0], real[1]


def augment(images: Tensor, codes: Tensor, strengths: Tensor) -> Tensor:
    """Apply to each image its own operation.

    Args:
        images: (B, H, W, C) uint8; not changed.
        codes: (B,) int64 indices into `OPERATIONS`, or `NONE`.
        strengths: (B,) float64, see `strength_of`; the sign turns geometry round, and makes a gain 1 + or 1 - its size;
            bits and levels have none.
    """
    images = warp(images, matrices(codes, strengths, images.shape[1], images.shape[2]), GREY)
    grey = to_grey(images)
    result = lookup_tones(images, grey, codes, strengths)
    if images.shape[3] == 3:
        result = blend(result, grey, _gain(codes, strengths, "color"))
    return blend(result, blurred(images), _gain(codes, strengths, "sharpness"))


def _gain(codes: Tensor, strengths: Tensor, name: str) -> Tensor:
    """Factors of a blend that leaves the images of all other operations exactly as they are."""
    return torch.where(codes == CODES[name], 1 + strengths, 1.0)


# geometry -----------------------------------------------------------------------------------------------------------


def matrices(codes: Tensor, strengths: Tensor, height: int, width: int) -> Tensor:
    """(B, 6) maps from output to source coordinates, x' = ax + by + c and y' = dx + ey + f, of geometric operations.

    Shears keep the upper left corner in place, rotations the centre; other operations get the identity.
    """
    zero, one = torch.zeros_like(strengths), torch.ones_like(strengths)
    angle = torch.where(codes == CODES["rotate"], torch.deg2rad(strengths), 0.0)
    cos, sin, x, y = angle.cos(), angle.sin(), width / 2, height / 2
    shear = torch.where(codes == CODES["shear_y"], strengths, zero)
    right = torch.where(codes == CODES["translate_x"], strengths * width, zero)
    down = torch.where(codes == CODES["translate_y"], strengths * height, zero)
    c, f = x * (one - cos) + y * sin + right, y * (one - cos) - x * sin + down
    return torch.stack([cos, -sin, c, sin + shear, cos, f], dim=1)


def warp(images: Tensor, matrix: Tensor, fill: int) -> Tensor:
    """Nearest-pixel affine warp of (B, H, W, C) images by (B, 6) maps between pixel centres; `fill` lies outside."""
    batch, height, width, channels = images.shape
    x = torch.arange(width, device=images.device) + 0.5
    y = torch.arange(height, device=images.device) + 0.5
    a, b, c, d, e, f = (part[:, None] for part in matrix.float().unbind(1))
    columns = ((a * x + c)[:, None, :] + (b * y)[:, :, None]).floor_()
    rows = ((d * x + f)[:, None, :] + (e * y)[:, :, None]).floor_()
    inside = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
    index = rows.mul_(width).add_(columns).mul_(inside).long().view(batch, -1, 1)
    moved = images.reshape(batch, -1, channels).gather(1, index.expand(-1, -1, channels))
    return torch.where(inside.view(batch, -1, 1), moved, fill).view(images.shape)


def cutout(images: Tensor, uniforms: Tensor) -> Tensor:
    """Blacken a square of half the shorter side, cut at the border; `uniforms` (B, 2) place its centre (y, x)."""
    _, height, width, _ = images.shape
    half = min(height, width) // 4
    top = (uniforms[:, :1] * height).long() - half
    left = (uniforms[:, 1:] * width).long() - half
    rows = torch.arange(height, device=images.device) - top
    columns = torch.arange(width, device=images.device) - left
    hidden = ((rows >= 0) & (rows < 2 * half))[:, :, None] & ((columns >= 0) & (columns < 2 * half))[:, None, :]
    return images.masked_fill(hidden[..., None], BLACK)


# colour -------------------------------------------------------------------------------------------------------------


def to_grey(images: Tensor) -> Tensor:
    """(B, H, W, C) -> luma (B, H, W, 1), uint8; one channel is its own."""
    if images.shape[3] == 1:
        return images
    red, green, blue = images.float().unbind(3)
    return (0.2989 * red + 0.587 * green + 0.114 * blue).to(torch.uint8)[..., None]


def blurred(images: Tensor) -> Tensor:
    """Mean of 3 x 3 pixels with weight 5 on the middle one, rounded; the border stays."""
    wide = images.short()
    bands = wide[:, :-2] + wide[:, 1:-1] + wide[:, 2:]
    sums = bands[:, :, :-2] + bands[:, :, 1:-1] + bands[:, :, 2:] + 4 * wide[:, 1:-1, 1:-1]
    result = images.clone()
    result[:, 1:-1, 1:-1] = ((2 * sums + 13) // 26).to(torch.uint8)
    return result


def blend(first: Tensor, second: Tensor, factors: Tensor) -> Tensor:
    """Mix of factor * first + (1 - factor) * second, clipped to 0..255, cut to whole levels; factors (B,) float64."""
    shape = (-1, *(1,) * (first.dim() - 1))
    mixed = factors.float().view(shape) * first.float() + (1 - factors).float().view(shape) * second.float()
    return mixed.clamp_(0, 255).to(torch.uint8)


def lookup_tones(images: Tensor, grey: Tensor, codes: Tensor, strengths: Tensor) -> Tensor:
    """Apply operations that map single levels, each image by its own table; other images stay as they are."""
    batch, channels = len(images), images.shape[3]
    offsets = 256 * torch.arange(channels, device=images.device)
    index = (images.reshape(batch, -1, channels).long() + offsets).view(batch, -1)
    counts = torch.zeros(batch, channels * 256, dtype=torch.int32, device=images.device)
    counts.scatter_add_(1, index, counts.new_ones(()).expand_as(index))
    means = grey.reshape(batch, -1).float().mean(dim=1)
    tables = tone_tables(counts.view(batch, channels, 256), means, codes, strengths)
    return tables.view(batch, -1).gather(1, index).view(images.shape)


def tone_tables(histogram: Tensor, means: Tensor, codes: Tensor, strengths: Tensor) -> Tensor:
    """(B, C, 256) uint8: what becomes of each level.

    Args:
        histogram: (B, C, 256) int32 pixels of each level.
        means: (B,) mean grey level.
        codes: (B,) operations.
        strengths: (B,) float64.
    """
    levels = torch.arange(256, dtype=torch.float32, device=means.device).expand(len(means), 1, 256)
    size = strengths.abs().float()[:, None, None]
    whole = torch.exp2(8 - size.clamp(max=8))
    tables = {
        "none": levels.to(torch.uint8),
        "brightness": blend(levels, torch.zeros_like(levels), 1 + strengths),
        "contrast": blend(levels, means[:, None, None], 1 + strengths),
        "posterize": (levels - levels % whole).to(torch.uint8),
        "solarize": torch.where(levels >= size, 255 - levels, levels).to(torch.uint8),
        "autocontrast": stretch_tables(histogram),
        "equalize": equal_tables(histogram),
        "invert": (255 - levels).to(torch.uint8),
    }
    kind = torch.zeros_like(codes)
    for place, name in enumerate(tables):
        kind = torch.where(codes == CODES.get(name, NONE), place, kind)
    # Picking whole tables out of a stack is several times faster than masks broadcast over bytes.
    stack = torch.stack([table.expand(histogram.shape) for table in tables.values()])
    return stack[kind, torch.arange(len(codes), device=codes.device)]


def _extremes(histogram: Tensor) -> tuple[Tensor, Tensor]:
    present = (histogram > 0).to(torch.int8)
    return present.argmax(dim=2, keepdim=True), 255 - present.flip(2).argmax(dim=2, keepdim=True)


def stretch_tables(histogram: Tensor) -> Tensor:
    """Auto-contrast per channel: the darkest level to 0, the brightest to 255; a flat channel stays.

    (B, C, 256) pixels of each level -> (B, C, 256) uint8.
    """
    lowest, highest = _extremes(histogram)
    levels = torch.arange(256, dtype=torch.float32, device=histogram.device)
    scale = 255 / (highest - lowest).clamp(min=1).float()
    stretched = ((levels - lowest) * scale).clamp(0, 255)
    return torch.where(highest > lowest, stretched, levels).to(torch.uint8)


def equal_tables(histogram: Tensor) -> Tensor:
    """Histogram equalisation per channel, as the Python Imaging Library defines it; shapes as `stretch_tables`."""
    _, highest = _extremes(histogram)
    step = (histogram.sum(dim=2, keepdim=True) - histogram.gather(2, highest)) // 255
    below = histogram.cumsum(dim=2) - histogram
    equal = ((below + step // 2) // step.clamp(min=1)).clamp(0, 255)
    return torch.where(step > 0, equal, torch.arange(256, device=histogram.device)).to(torch.uint8)
