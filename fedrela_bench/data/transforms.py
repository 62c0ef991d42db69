"""Augmentation and normalisation of whole batches as tensor operations."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

PADDING = 4


class Pipeline:
    """From stored uint8 images, or standardised rows, to network input.

    Args:
        normalization: mean and standard deviation per channel in units of [0, 1]; None scales to [0, 1] only.
        augment: "none", or "crop_flip": random crop with 4 black pixels around, then horizontal flip.
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
            (n, 3) int64: vertical and horizontal crop offset in 0..8, flip 0 or 1. Without augmentation (n, 0), and
            nothing is drawn.
        """
        if self.augment == "none":
            return np.empty((n, 0), dtype=np.int64)
        return rng.integers(0, (2 * PADDING + 1, 2 * PADDING + 1, 2), size=(n, 3))

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
            draws: (B, 3) int64, or (B, 0) without augmentation, from `draws`.

        Returns:
            (B, C, H, W) of `dtype` with the strides of channels_last.
        """
        return self.plain(images if self.augment == "none" else crop_flip(images, draws.to(images.device)))

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
