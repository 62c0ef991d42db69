"""Scikit-learn's digits: 1,797 grey images of 8x8, no download."""

from __future__ import annotations

import numpy as np

from fedrela_bench.data.sources.raw import RawData
from fedrela_bench.rng import generator

TRAIN_SHARE = 0.7


def read_digits() -> RawData:
    """The digits, scaled from 0..16 to 0..255, in a fixed stratified split.

    Of each class round(0.7 n) images, drawn with the seed 0 whatever the run's seed, are for training, the others for
    testing; both keep the source's order.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[..., None]
    labels = bunch.target.astype(np.int64)
    train = np.zeros(len(labels), dtype=bool)
    for c in range(10):
        rows = np.flatnonzero(labels == c)
        order = generator(0, "digits-split", c).permutation(len(rows))
        train[rows[order[: round(TRAIN_SHARE * len(rows))]]] = True
    names = tuple(str(c) for c in range(10))
    return RawData(images[train], labels[train], images[~train], labels[~train], names)
