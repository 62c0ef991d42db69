"""FederatedDataset: images or table rows, labels and who holds them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedrela_bench.rng import generator

CHUNK = 4096


@dataclass(frozen=True)
class FederatedDataset:
    """A training set dealt to clients, and a test set that the server holds.

    Relabelling makes a new label vector, never a new dataset.
    """

    name: str
    """Short name such as cifar100_lt; holds no path and is part of no key."""
    train_images: np.ndarray
    """(N_source, H, W, C) uint8, memory-mapped where a cache exists, C in {1, 3}; of a table (N_source, 1, D, 1)
    float32, standardised."""
    subset: np.ndarray
    """(n,) int64 rows of `train_images` that the profile keeps, ordered by class, ascending inside a class."""
    labels: np.ndarray
    """(n,) int64 original labels of the subset; a position is an index into `subset` and `labels`."""
    clients: tuple[np.ndarray, ...]
    """Per client its sorted positions; may be empty."""
    test_images: np.ndarray
    """(M, H, W, C) of the same type."""
    test_labels: np.ndarray
    """(M,) int64."""
    class_names: tuple[str, ...]
    normalization: tuple[tuple[float, ...], tuple[float, ...]] | None
    """Mean and standard deviation per channel in units of [0, 1]; None: scale to [0, 1] only."""
    augment: Literal["none", "crop_flip", "resized_crop"]
    minority: tuple[int, ...]
    """Minority classes of the step profile, else ()."""
    notes: tuple[str, ...]
    """What a user must know: empty, skipped or padded clients, where images were found, a cache that failed."""
    digest: str
    """BLAKE2b of everything here that decides a number; see `digest_of`."""
    source_labels: np.ndarray | None = None
    """(N_source,) int64 labels of `train_images`; None: only the subset's are known."""
    made_for: str = ""
    """`load.split_key` of the configuration that `load_dataset` was given; empty for datasets made otherwise."""
    stated: tuple[str, ...] = ()
    """Those of `notes` that belong to every number: how a test split was made, what was left out or resampled."""
    client_names: tuple[str, ...] = ()
    """Of a natural federation, in the order of `clients`."""
    features: tuple[str, ...] = ()
    """Of a table, one text per column of its file."""
    balanced_test: bool = False
    """Whether `test_rows` and `test_slices` repeat rows until all classes have as many."""

    @property
    def is_table(self) -> bool:
        """Whether samples are standardised rows, not images."""
        return self.train_images.dtype != np.uint8

    @property
    def num_classes(self) -> int:
        """C."""
        return len(self.class_names)

    @property
    def class_counts(self) -> np.ndarray:
        """(C,) int64 training images per class."""
        return np.bincount(self.labels, minlength=self.num_classes).astype(np.int64)

    @property
    def client_counts(self) -> np.ndarray:
        """(K, C) int64 training images per client and class."""
        rows = [np.bincount(self.labels[part], minlength=self.num_classes) for part in self.clients]
        return np.array(rows, dtype=np.int64).reshape(len(self.clients), self.num_classes)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one image."""
        _, height, width, channels = self.train_images.shape
        return channels, height, width

    def server_rows(self, per_class: int, seed: int) -> list[np.ndarray]:
        """Rows of `train_images` that a server may hold itself: for each class at most `per_class`, sorted.

        They are drawn from the images that the profile left out, and from the kept ones only where those do not
        suffice; a class with fewer images in all gives what it has.

        Args:
            per_class: images wanted of each class.
            seed: keys the draw.
        """
        rows, labels = self.subset, self.labels
        if self.source_labels is not None:
            rows, labels = np.arange(len(self.source_labels)), self.source_labels
        kept = np.isin(rows, self.subset)
        chosen = []
        for c in range(self.num_classes):
            rng, mine = generator(seed, "server images", c), labels == c
            order = np.concatenate([rng.permutation(rows[mine & ~kept]), rng.permutation(rows[mine & kept])])
            chosen.append(np.sort(order[:per_class]))
        return chosen

    def test_rows(self) -> np.ndarray:
        """Sorted indices of the test set that is scored; with `balanced_test` rows of smaller classes come often."""
        return self._resampled(np.arange(len(self.test_labels)))

    def test_slices(self) -> tuple[np.ndarray, np.ndarray]:
        """Fixed class-balanced halves of the test set: sorted indices (selection, report).

        They do not depend on any seed of a configuration. A class with an odd number of images gives the odd one to the
        report; the halves are disjoint and cover the test set. With `balanced_test` each half is resampled by itself.
        """
        chosen = np.zeros(len(self.test_labels), dtype=bool)
        for c in range(self.num_classes):
            rows = np.flatnonzero(self.test_labels == c)
            order = generator(0, "test-slice", c).permutation(len(rows))
            chosen[rows[order[: len(rows) // 2]]] = True
        return self._resampled(np.flatnonzero(chosen)), self._resampled(np.flatnonzero(~chosen))

    def _resampled(self, rows: np.ndarray) -> np.ndarray:
        """As many rows of every class that is there as the largest has: each row equally often, give or take one."""
        if not self.balanced_test or not len(rows):
            return rows
        labels = self.test_labels[rows]
        most, chosen = int(np.bincount(labels).max()), []
        for c in np.unique(labels):
            mine = rows[labels == c]
            times, rest = divmod(most, len(mine))
            chosen += [np.repeat(mine, times), generator(0, "balanced-test", int(c)).permutation(mine)[:rest]]
        return np.sort(np.concatenate(chosen))


def digest_of(
    train_images: np.ndarray,
    subset: np.ndarray,
    labels: np.ndarray,
    clients: tuple[np.ndarray, ...],
    test_images: np.ndarray,
    test_labels: np.ndarray,
    facts: dict[str, object],
    pixels: str = "",
) -> str:
    """32 hexadecimal digits over kept images in order, labels, clients, test set and `facts`.

    Rows of the source do not count, only the pixels they hold: the same images from another file layout in the same
    order have the same digest.

    Args:
        train_images: (N_source, H, W, C) uint8 or float32.
        subset: (n,) kept rows.
        labels: (n,) int.
        clients: sorted positions per client.
        test_images: (M, H, W, C) of the same type.
        test_labels: (M,) int.
        facts: class names, normalisation, augmentation and whatever else decides numbers; JSON.
        pixels: a digest of all images in order of rows, which stands for reading them; then rows count.
    """
    state = hashlib.blake2b(digest_size=16)
    shape = [list(train_images.shape[1:]), len(subset), list(test_images.shape), [len(part) for part in clients]]
    state.update(json.dumps([shape, facts], sort_keys=True).encode())
    for integers in (labels, *clients, test_labels):
        state.update(np.ascontiguousarray(integers, dtype="<i8").tobytes())
    if pixels:
        state.update(pixels.encode() + np.ascontiguousarray(subset, dtype="<i8").tobytes())
        return state.hexdigest()
    kind = np.dtype(train_images.dtype).newbyteorder("<")
    for start in range(0, len(subset), CHUNK):
        state.update(np.ascontiguousarray(train_images[subset[start : start + CHUNK]], dtype=kind).data)
    for start in range(0, len(test_images), CHUNK):
        state.update(np.ascontiguousarray(test_images[start : start + CHUNK], dtype=kind).data)
    return state.hexdigest()
