"""A workload with its images in hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedrela_bench.bench.workloads import Cut, Images, Workload
from fedrela_bench.config import TrialConfig
from fedrela_bench.data import FederatedDataset, load_dataset
from fedrela_bench.data.inputs import choose_inputs, resolve_statistics
from fedrela_bench.data.load import profile_counts
from fedrela_bench.data.partition import dirichlet_partition, iid_partition
from fedrela_bench.data.sources.places import default_cache_dir, places, search
from fedrela_bench.rng import generator


@dataclass(frozen=True)
class Case:
    """What is timed."""

    workload: Workload
    short: bool
    config: TrialConfig
    dataset: FederatedDataset
    real_images: bool
    whole: tuple[int, int]
    """Training and test images before the cut."""
    data_dir: Path | None = None

    @property
    def key(self) -> str:
        """Names the case in results and baselines."""
        return f"{self.workload.name} short" if self.short else self.workload.name

    @property
    def samples(self) -> int:
        """Images that a round trains on, each once per epoch."""
        return sum(len(rows) for rows in self.dataset.clients) * self.config.training.local_epochs

    @property
    def evaluated(self) -> int:
        """Images that a round evaluates."""
        return len(self.dataset.test_images) if self.config.evaluation.eval_every == 1 else 0

    @property
    def left_out(self) -> tuple[float, float]:
        """How many times larger the whole workload is: training and evaluation."""
        train, test = self.whole
        kept = sum(len(rows) for rows in self.dataset.clients)
        return train / kept, test / max(1, len(self.dataset.test_images))

    def notes(self) -> list[str]:
        """What a reader must know of the images."""
        notes = [] if self.real_images else ["synthetic images of the same shape and split; times do not depend on it"]
        kept, tested = sum(len(rows) for rows in self.dataset.clients), len(self.dataset.test_images)
        if self.short and self.workload.short:
            notes.append(
                f"short form: {kept:,} images on {len(self.dataset.clients):,} clients, {tested:,} to evaluate"
            )
        elif max(self.left_out) > 1:
            notes.append(
                f"timed on {kept:,} of {self.whole[0]:,} training and {tested:,} of {self.whole[1]:,} test images; "
                "whole rounds are extrapolated from both parts"
            )
        return notes


def prepare(workload: Workload, short: bool, device: str, data_dir: Path | None = None) -> Case:
    """The case of a workload; nothing is downloaded.

    Args:
        workload: what is timed.
        short: its short form.
        device: ``cpu`` or ``cuda``.
        data_dir: first place to look for real images.
    """
    config = workload.config(short)
    real = workload.images is None or (workload.kind != "memory" and _at_hand(config.data.source, data_dir))
    dataset = load_dataset(config, data_dir) if real else synthetic(config, workload.images)
    whole = (len(dataset.labels), len(dataset.test_labels))
    cut = workload.cut(short, device)
    return Case(workload, short, config, _shortened(dataset, cut) if cut else dataset, real, whole, data_dir)


def _at_hand(source: str, data_dir: Path | None) -> bool:
    found, _ = search(source, places(source, data_dir, default_cache_dir()))
    return found is not None


def synthetic(config: TrialConfig, images: Images | None) -> FederatedDataset:
    """Random images, thinned and dealt by the same rules as the real ones.

    Args:
        config: `data` and `federation.clients` are read.
        images: shape and number.
    """
    assert images is not None, "a workload without real images says what they look like"
    labels = np.repeat(
        np.arange(images.classes), profile_counts(config.data, np.full(images.classes, images.per_class))
    )
    pixels = generator(0, "bench images")
    train = pixels.integers(0, 256, (len(labels), *images.size), dtype=np.uint8)
    normalize, augment = choose_inputs(config.data.source, config.data.normalize, config.data.augment)
    subset = np.arange(len(labels))
    return FederatedDataset(
        name=config.data.source,
        train_images=train,
        subset=subset,
        labels=labels,
        clients=tuple(_dealt(config, labels, images.classes)),
        test_images=pixels.integers(0, 256, (images.test, *images.size), dtype=np.uint8),
        test_labels=np.arange(images.test) % images.classes,
        class_names=tuple(str(label) for label in range(images.classes)),
        normalization=resolve_statistics(normalize, train, subset),
        augment=augment,
        minority=(),
        notes=(),
        digest="synthetic",
    )


def _dealt(config: TrialConfig, labels: np.ndarray, classes: int) -> list[np.ndarray]:
    seed = config.seed if config.data.partition_seed is None else config.data.partition_seed
    if config.data.partition == "iid":
        return iid_partition(labels, config.federation.clients, seed)
    return dirichlet_partition(labels, config.federation.clients, config.data.alpha, seed, classes)


def _shortened(dataset: FederatedDataset, cut: Cut) -> FederatedDataset:
    """The first clients up to `cut.train` images, the others empty, and an even choice of `cut.test` test images."""
    kept, left = [], cut.train
    for rows in dataset.clients:
        kept.append(rows[:left])
        left -= len(kept[-1])
    tested = np.linspace(0, len(dataset.test_labels) - 1, min(cut.test, len(dataset.test_labels))).astype(np.int64)
    return replace(
        dataset,
        clients=tuple(kept),
        test_images=np.array(dataset.test_images[tested]),
        test_labels=dataset.test_labels[tested],
    )
