"""From a configuration to a FederatedDataset."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedrela_bench.config import DataConfig, TrialConfig, digest
from fedrela_bench.data.clients import empty_client_note, listed, settle_small_clients
from fedrela_bench.data.federated import FederatedDataset, digest_of
from fedrela_bench.data.inputs import channel_fault, choose_inputs, resolve_statistics
from fedrela_bench.data.longtail import choose_subset, longtail_counts, minority_classes, step_counts
from fedrela_bench.data.names import check_source, dataset_name
from fedrela_bench.data.partition import dirichlet_partition, iid_partition
from fedrela_bench.data.sources import RawData, read_source
from fedrela_bench.errors import ConfigError


def load(config: TrialConfig, data_dir: Path | None, cache_dir: Path | None) -> FederatedDataset:
    """See `fedrela_bench.data.load_dataset`."""
    data = config.data
    _check_request(config)
    raw = read_source(data.source, data.image_size, data_dir, cache_dir)
    counts, minority = _profile_or_faults(data, raw)
    subset = choose_subset(raw.train_labels, counts, data.subset_seed)
    labels = raw.train_labels[subset]
    clients, notes = _deal(config, labels, len(raw.class_names))
    normalize, augment = choose_inputs(data.source, data.normalize, data.augment)
    normalization = resolve_statistics(normalize, raw.train_images, subset)
    facts: dict[str, object] = {
        "classes": raw.class_names,
        "normalization": normalization,
        "augment": augment,
        "minority": minority,
    }
    return FederatedDataset(
        made_for=split_key(config),
        source_labels=raw.train_labels.astype(np.int64),
        name=dataset_name(data.source, data.profile),
        train_images=raw.train_images,
        subset=subset,
        labels=labels,
        clients=clients,
        test_images=raw.test_images,
        test_labels=raw.test_labels,
        class_names=raw.class_names,
        normalization=normalization,
        augment=augment,
        minority=minority,
        notes=(*raw.notes, *notes),
        digest=digest_of(raw.train_images, subset, labels, clients, raw.test_images, raw.test_labels, facts),
    )


def split_key(config: TrialConfig) -> str:
    """A name for what `load` reads of a configuration, so that a simulation notices a dataset of another one."""
    return digest([config.data.model_dump(mode="json"), config.federation.clients, _partition_seed(config)])


def profile_counts(data: DataConfig, available: np.ndarray) -> np.ndarray:
    """Training images that the profile keeps of each class.

    By default the largest class has as many as the source's smallest class, so that every profile is feasible;
    `balanced` keeps everything, or at most n_max of each class.

    Args:
        data: profile, imbalance_factor, n_max, minority and minority_fraction are read.
        available: (C,) images per class in the source.

    Returns:
        (C,) int64; can ask for more than is available.

    Raises:
        ConfigError: an impossible minority.
    """
    classes = len(available)
    if data.profile == "balanced":
        return np.array([min(int(count), data.n_max or int(count)) for count in available], dtype=np.int64)
    n_max = data.n_max or int(available.min())
    if data.profile == "lt":
        return longtail_counts(n_max, classes, data.imbalance_factor)
    return step_counts(n_max, classes, data.imbalance_factor, data.minority, data.minority_fraction)


def _check_request(config: TrialConfig) -> None:
    data = config.data
    faults: list[str] = []
    try:
        check_source(data.source)
    except ConfigError as error:
        faults += error.faults
    if not faults and data.image_size is not None and ":" not in data.source:
        faults.append(f"data.image_size = {data.image_size} is for folder: and parquet: sources; unset it")
    if faults:
        raise ConfigError(faults)


def _partition_seed(config: TrialConfig) -> int:
    return config.seed if config.data.partition_seed is None else config.data.partition_seed


def _profile_or_faults(data: DataConfig, raw: RawData) -> tuple[np.ndarray, tuple[int, ...]]:
    faults: list[str] = []
    available = np.bincount(raw.train_labels, minlength=len(raw.class_names))
    normalize, _ = choose_inputs(data.source, data.normalize, data.augment)
    fault = channel_fault(normalize, raw.train_images.shape[-1])
    faults += [fault] if fault else []
    counts = available
    try:
        counts = profile_counts(data, available)
    except ConfigError as error:
        faults += error.faults
    faults += _count_faults(data, counts, available, raw.class_names)
    if faults:
        raise ConfigError(faults)
    step = data.profile == "step"
    return counts, minority_classes(len(available), data.minority, data.minority_fraction) if step else ()


def _count_faults(data: DataConfig, counts: np.ndarray, available: np.ndarray, names: tuple[str, ...]) -> list[str]:
    faults = []
    largest = int(counts.max())
    setting = f"data.imbalance_factor = {data.imbalance_factor:g} with n_max = {largest}"
    none_left = np.flatnonzero(counts == 0)
    if len(none_left):
        faults.append(
            f"{setting} leaves no images of class {listed([int(c) for c in none_left])}; lower "
            f"data.imbalance_factor to at most {_feasible_factor(data, available, largest)} or raise data.n_max"
        )
    short = np.flatnonzero(counts > available)
    if len(short):
        c = int(short[0])
        more = f" (and too many of {len(short) - 1} more classes)" if len(short) > 1 else ""
        faults.append(
            f"{setting} asks for {counts[c]} images of class {c} ({names[c]}), which has {available[c]}{more}; "
            f"lower data.n_max to at most {_feasible_n_max(data, available)}"
        )
    return faults


def _feasible_factor(data: DataConfig, available: np.ndarray, n_max: int) -> int:
    # The long-tailed formula multiplies by 1/IF, so n_max * (1/n_max) can fall below 1.
    exact = data.model_copy(update={"n_max": n_max, "imbalance_factor": float(n_max)})
    return n_max if n_max == 1 or profile_counts(exact, available).all() else n_max - 1


def _feasible_n_max(data: DataConfig, available: np.ndarray) -> int:
    low, high = int(available.min()), int(available.max())
    while low < high:
        middle = (low + high + 1) // 2
        counts = profile_counts(data.model_copy(update={"n_max": middle}), available)
        low, high = (middle, high) if (counts <= available).all() else (low, middle - 1)
    return low


def _deal(config: TrialConfig, labels: np.ndarray, classes: int) -> tuple[tuple[np.ndarray, ...], list[str]]:
    data, clients, seed = config.data, config.federation.clients, _partition_seed(config)
    if data.partition == "dirichlet":
        parts = dirichlet_partition(labels, clients, data.alpha, seed, classes)
        described = f"{dataset_name(data.source, data.profile)} dealt with alpha = {data.alpha:g}"
    else:
        parts = iid_partition(labels, clients, seed)
        described = f"{dataset_name(data.source, data.profile)} dealt evenly"
    parts, notes = settle_small_clients(parts, data.min_client_samples, data.on_small_client, seed, described)
    return tuple(parts), notes + empty_client_note(parts)
