"""Augmentation and normalisation of whole batches as tensor operations."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

PADDING = 4
GRID = 1 << 24
"""Values of one draw of `resized_crop`; float32 holds them exactly."""
SMALLEST_AREA = 0.08
WIDEST = 4 / 3
"""Of a crop: share of the image's area at least, and width over height (or height over width) at most."""


class Pipeline:
    """From stored uint8 images, or standardised rows, to network input.

    Args:
        normalization: mean and standard deviation per channel in units of [0, 1]; None scales to [0, 1] only.
        augment: "none", "crop_flip": random crop with 4 black pixels around, then horizontal flip, or "resized_crop":
            see `resized_crop`.
        dtype: of the output.
        rows: what is stored are the rows of a table, which are ready and only cast.
    """

    def __init__(
        self,
        normalization: tuple[tuple[float, ...], tuple[float, ...]] | None,
        augment: str,
        dtype: torch.dtype,
        rows: bool = False,
    ) -> None:
        self.normalization = normalization
        self.augment = augment
        self.dtype = dtype
        self.rows = rows
        self._constants: dict[tuple[torch.device, int], tuple[Tensor, Tensor]] = {}

    def draws(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """The random numbers of n augmented images, all at once.

        Returns:
            (n, 3) int64 for crop_flip: vertical and horizontal crop offset in 0..8, flip 0 or 1; (n, 5) for
            resized_crop. Without augmentation (n, 0), and nothing is drawn.
        """
        if self.augment == "none":
            return np.empty((n, 0), dtype=np.int64)
        if self.augment == "resized_crop":
            return rng.integers(0, (GRID, GRID, GRID, GRID, 2), size=(n, 5))
        return rng.integers(0, (2 * PADDING + 1, 2 * PADDING + 1, 2), size=(n, 3))

    def moved(self, images: Tensor, draws: Tensor) -> Tensor:
        """Augment by the given draws.

        Args:
            images: (B, H, W, C) of any type.
            draws: (B, p) int64 on the same device, from `draws`.

        Returns:
            (B, H, W, C) of the same type.
        """
        if self.augment == "none":
            return images
        return (resized_crop if self.augment == "resized_crop" else crop_flip)(images, draws)

    def plain(self, images: Tensor) -> Tensor:
        """Scale and normalise.

        Args:
            images: (B, H, W, C) uint8 (or float, for rows), contiguous; not changed.

        Returns:
            (B, C, H, W) of `dtype` with the strides of channels_last.
        """
        batch, height, width, channels = images.shape
        if self.rows:
            # A copy even where the type is right: networks may work in place on their input.
            return images.to(self.dtype, copy=True).permute(0, 3, 1, 2)
        scaled = images.to(self.dtype)
        if self.normalization is None:
            return scaled.div_(255).permute(0, 3, 1, 2)
        # Rows of W * C values with repeated constants: broadcasting over 3 channels alone is 5 times slower on a CPU.
        factor, shift = self._affine(images.device, width)
        rows = scaled.view(batch, height, width * channels).mul_(factor).add_(shift)
        return rows.view(batch, height, width, channels).permute(0, 3, 1, 2)

    def train(self, images: Tensor, draws: Tensor) -> Tensor:
        """Augment by the given draws, then as `plain`.

        Args:
            images: (B, H, W, C) uint8.
            draws: (B, p) int64 from `draws`.

        Returns:
            (B, C, H, W) of `dtype` with the strides of channels_last.
        """
        return self.plain(images if self.augment == "none" else self.moved(images, draws.to(images.device)))

    def _affine(self, device: torch.device, width: int) -> tuple[Tensor, Tensor]:
        if (device, width) not in self._constants:
            assert self.normalization is not None
            mean, std = (torch.tensor(values, dtype=torch.float64) for values in self.normalization)
            factor, shift = (1 / (255 * std)).repeat(width), (-mean / std).repeat(width)
            self._constants[device, width] = (factor.to(device, self.dtype), shift.to(device, self.dtype))
        return self._constants[device, width]


def crop_flip(images: Tensor, draws: Tensor) -> Tensor:
    """Random crops out of the zero-padded images, mirrored where the third draw is 1.

    Args:
        images: (B, H, W, C) of any type.
        draws: (B, 3) int64: top and left of the crop in the padded image, flip.

    Returns:
        (B, H, W, C).
    """
    batch, height, width, channels = images.shape
    rows_each, row = height + 2 * PADDING, (width + 2 * PADDING) * channels
    padded = functional.pad(images, (0, 0, PADDING, PADDING, PADDING, PADDING))
    # Whole rows first, then columns: two plain gathers are several times faster than one with three index tensors.
    first = torch.arange(batch, device=images.device).mul_(rows_each).add_(draws[:, 0])
    rows = first[:, None] + torch.arange(height, device=images.device)
    bands = padded.view(batch * rows_each, row).index_select(0, rows.flatten()).view(batch, height, row)
    columns = torch.arange(width, device=images.device).expand(batch, width)
    columns = torch.where(draws[:, 2:3] > 0, width - 1 - columns, columns) + draws[:, 1:2]
    elements = columns[:, :, None] * channels + torch.arange(channels, device=images.device)
    index = elements.view(batch, 1, width * channels).expand(batch, height, width * channels)
    return bands.gather(2, index).view(batch, height, width, channels)


def resized_crop(images: Tensor, draws: Tensor) -> Tensor:
    """Random parts of the images, scaled to their size bilinearly, mirrored where the last draw is 1.

    A part has 8 to 100 % of the area and 3/4 to 4/3 of width over height (uniform in area and in the ratio's
    logarithm); a side longer than the image's is cut to it. Source: Szegedy et al., Going Deeper with Convolutions,
    arXiv 1409.4842, whose sampling repeats a draw that does not fit.

    Args:
        images: (B, H, W, C) of any type.
        draws: (B, 5) int64: area, ratio, top, left in 0..2^24 - 1, flip.

    Returns:
        (B, H, W, C) of the same type; integers are rounded.
    """
    area, ratio, top, left = (draws[:, :4].to(torch.float32) / GRID).unbind(1)
    area = SMALLEST_AREA + (1 - SMALLEST_AREA) * area
    ratio = ((2 * ratio - 1) * math.log(WIDEST)).exp()
    width, height = (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)
    left, top = left * (1 - width), top * (1 - height)
    nothing = torch.zeros_like(area)
    mirror = torch.where(draws[:, 4] > 0, -width, width)
    across = torch.stack([mirror, nothing, 2 * left + width - 1], dim=1)
    down = torch.stack([nothing, height, 2 * top + height - 1], dim=1)
    planes = images.permute(0, 3, 1, 2).to(torch.float32)
    grid = functional.affine_grid(torch.stack([across, down], dim=1), list(planes.shape), align_corners=False)
    parts = functional.grid_sample(planes, grid, mode="bilinear", padding_mode="border", align_corners=False)
    parts = parts if images.dtype.is_floating_point else parts.round_()
    return parts.permute(0, 2, 3, 1).to(images.dtype).contiguous()
