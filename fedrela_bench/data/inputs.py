"""Which statistics and augmentation each source gets; one place, written into every dataset.

`auto` follows the paper's released code: CIFAR-10 with ImageNet statistics, CIFAR-100 with its own, both with random
crop and flip; Fashion-MNIST only scaled to [0, 1]. ImageNet has its usual statistics and random resized crops.
"""

from __future__ import annotations

from typing import Literal, cast

import numpy as np

from fedrela_bench.errors import ConfigError

Statistics = tuple[tuple[float, ...], tuple[float, ...]]
Augment = Literal["none", "crop_flip", "resized_crop"]

PUBLISHED: dict[str, Statistics] = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar10": ((0.49140, 0.48216, 0.44653), (0.24703, 0.24349, 0.26159)),
    "cifar100": ((0.50708, 0.48655, 0.44092), (0.26733, 0.25644, 0.27615)),
}
"""Mean and standard deviation of red, green, blue in units of [0, 1]."""

AUTO: dict[str, tuple[str, Augment]] = {
    "digits": ("none", "none"),
    "fashion_mnist": ("none", "none"),
    "cifar10": ("imagenet", "crop_flip"),
    "cifar100": ("cifar100", "crop_flip"),
    "imagenet": ("imagenet", "resized_crop"),
    "folder": ("own", "none"),
    "parquet": ("own", "none"),
    "npz": ("own", "none"),
    # Standardised before they are handed on; see data.standardize.
    "table": ("none", "none"),
}

CHUNK = 4096


def choose_inputs(source: str, normalize: str, augment: str) -> tuple[str, Augment]:
    """Resolve `auto`: (name of the statistics, augmentation) for a source such as ``folder:PATH``."""
    auto_normalize, auto_augment = AUTO[source.partition(":")[0]]
    chosen = auto_augment if augment == "auto" else cast(Augment, augment)
    return (auto_normalize if normalize == "auto" else normalize), chosen


def channel_fault(normalize: str, channels: int) -> str | None:
    """What is wrong with these statistics for images of that many channels, or None."""
    if normalize in PUBLISHED and channels != 3:
        return (
            f"data.normalize = {normalize} has statistics of 3 channels but the images have {channels}; "
            "use own, none or auto"
        )
    return None


def resolve_statistics(normalize: str, images: np.ndarray, rows: np.ndarray) -> Statistics | None:
    """Mean and standard deviation per channel in units of [0, 1]; None for `none`.

    Args:
        normalize: a resolved name, not `auto`.
        images: (N, H, W, C) uint8.
        rows: (n,) the training images that `own` measures.

    Raises:
        ConfigError: statistics of three channels for grey images.
    """
    fault = channel_fault(normalize, images.shape[-1])
    if fault:
        raise ConfigError(fault)
    if normalize == "none":
        return None
    return PUBLISHED[normalize] if normalize in PUBLISHED else measure(images, rows)


def measure(images: np.ndarray, rows: np.ndarray) -> Statistics:
    """Per-channel mean and population standard deviation of the chosen rows, from exact integer sums.

    A channel without any variation gets the standard deviation 1, so that it becomes 0 and not infinite.
    """
    channels = images.shape[-1]
    first, second = np.zeros(channels, dtype=np.int64), np.zeros(channels, dtype=np.int64)
    for start in range(0, len(rows), CHUNK):
        pixels = images[rows[start : start + CHUNK]].reshape(-1, channels)
        for c in range(channels):
            histogram = np.bincount(pixels[:, c], minlength=256)
            first[c] += int(histogram @ np.arange(256))
            second[c] += int(histogram @ np.arange(256) ** 2)
    pixels_each = len(rows) * images.shape[1] * images.shape[2]
    mean = [int(total) / pixels_each for total in first]
    variance = [
        (int(square) * pixels_each - int(total) ** 2) / pixels_each**2
        for square, total in zip(second, first, strict=True)
    ]
    spread = [float(np.sqrt(value)) / 255 if value > 0 else 1.0 for value in variance]
    return tuple(value / 255 for value in mean), tuple(spread)
