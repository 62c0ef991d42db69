"""From a configuration to a FederatedDataset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedrela_bench.config import DataConfig, TrialConfig
from fedrela_bench.data.clients import empty_client_note, listed, settle_small_clients
from fedrela_bench.data.federated import FederatedDataset, digest_of
from fedrela_bench.data.inputs import channel_fault, choose_inputs, resolve_statistics
from fedrela_bench.data.longtail import choose_subset, longtail_counts, minority_classes, step_counts
from fedrela_bench.data.names import ONLY_PROFILES, dataset_name
from fedrela_bench.data.partition import dirichlet_partition, iid_partition, natural_partition
from fedrela_bench.data.request import request_faults
from fedrela_bench.data.sources import RawData, Reading, default_cache_dir, read_source
from fedrela_bench.data.sources.raw import alike
from fedrela_bench.data.standardize import standardized
from fedrela_bench.errors import ConfigError
from fedrela_bench.nested import digest


def load(config: TrialConfig, data_dir: Path | None, cache_dir: Path | None) -> FederatedDataset:
    """See `fedrela_bench.data.load_dataset`."""
    data = config.data
    faults = request_faults(data)
    if faults:
        raise ConfigError(faults)
    raw = read_source(data.source, reading_of(data), data_dir, cache_dir)
    counts, minority = _profile_or_faults(config, raw)
    subset = choose_subset(raw.train_labels, counts, data.subset_seed)
    if raw.columns:
        raw = standardized(raw, subset, cache_dir or default_cache_dir())
    labels = raw.train_labels[subset]
    clients, notes = _deal(config, raw, subset)
    normalize, augment = choose_inputs(data.source, data.normalize, data.augment)
    normalization = None if raw.columns else resolve_statistics(normalize, raw.train_images, subset)
    stated = (*raw.stated, *_statements(data, raw, clients))
    facts: dict[str, object] = {
        "classes": raw.class_names,
        "normalization": normalization,
        "augment": augment,
        "minority": minority,
        # Absent where it is off, so that data of before have the digest that they had.
        **({"balanced_test": True} if data.balanced_test else {}),
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
        notes=(*stated, *raw.notes, *_single_tests(raw), *_alike(raw), *notes),
        digest=digest_of(
            raw.train_images, subset, labels, clients, raw.test_images, raw.test_labels, facts, raw.pixels
        ),
        stated=stated,
        client_names=raw.client_names,
        features=tuple(column.text() for column in raw.columns),
        balanced_test=data.balanced_test,
    )


def reading_of(data: DataConfig) -> Reading:
    """What of a configuration decides how its source is read."""
    return Reading(
        image_size=data.image_size,
        natural=data.partition == "natural",
        label_column=data.label_column,
        client_column=data.client_column,
        drop_columns=data.drop_columns,
        categorical_columns=data.categorical_columns,
        impute=data.impute,
        test_fraction=data.test_fraction,
        test_seed=data.test_seed,
    )


def settled(config: TrialConfig, dataset: FederatedDataset) -> TrialConfig:
    """The configuration with the number of clients that its data name, where it says `auto`."""
    if config.federation.clients:
        return config
    return config.replace({"federation.clients": len(dataset.clients)})


def split_key(config: TrialConfig) -> str:
    """A name for what `load` reads of a configuration, so that a simulation notices a dataset of another one."""
    clients = "auto" if config.data.partition == "natural" else config.federation.clients
    return digest([config.data.model_dump(mode="json"), clients, _partition_seed(config)])


def profile_counts(data: DataConfig, available: np.ndarray) -> np.ndarray:
    """Training images that the profile keeps of each class.

    By default the largest class has as many as the source's smallest class, so that every profile is feasible;
    `natural` keeps everything, `balanced` too or at most n_max of each class; a source that is long-tailed as it is
    (imagenet) is kept whole.

    Args:
        data: profile, imbalance_factor, n_max, minority and minority_fraction are read.
        available: (C,) images per class in the source.

    Returns:
        (C,) int64; can ask for more than is available.

    Raises:
        ConfigError: an impossible minority.
    """
    classes = len(available)
    if data.profile in ("balanced", "natural") or data.source in ONLY_PROFILES:
        return np.array([min(int(count), data.n_max or int(count)) for count in available], dtype=np.int64)
    n_max = data.n_max or int(available.min())
    if data.profile == "lt":
        return longtail_counts(n_max, classes, data.imbalance_factor)
    return step_counts(n_max, classes, data.imbalance_factor, data.minority, data.minority_fraction)


def _partition_seed(config: TrialConfig) -> int:
    return config.seed if config.data.partition_seed is None else config.data.partition_seed


def _profile_or_faults(config: TrialConfig, raw: RawData) -> tuple[np.ndarray, tuple[int, ...]]:
    data, faults = config.data, []
    if data.partition == "natural" and config.federation.clients not in (0, len(raw.client_names)):
        faults.append(
            f"federation.clients = {config.federation.clients}, but the data name {len(raw.client_names)} clients; "
            "leave it out, or set it to auto"
        )
    available = np.bincount(raw.train_labels, minlength=len(raw.class_names))
    normalize, _ = choose_inputs(data.source, data.normalize, data.augment)
    fault = None if raw.columns else channel_fault(normalize, raw.train_images.shape[-1])
    faults += [fault] if fault else []
    counts = available
    try:
        counts = profile_counts(data, available)
    except ConfigError as error:
        faults += error.faults
    faults += _count_faults(data, counts, available, raw)
    if faults:
        raise ConfigError(faults)
    step = data.profile == "step"
    return counts, minority_classes(len(available), data.minority, data.minority_fraction) if step else ()


def _count_faults(data: DataConfig, counts: np.ndarray, available: np.ndarray, raw: RawData) -> list[str]:
    faults, names, unit = [], raw.class_names, raw.unit
    largest = int(counts.max())
    setting = f"data.imbalance_factor = {data.imbalance_factor:g} with n_max = {largest}"
    none_left = np.flatnonzero(counts == 0)
    if len(none_left):
        faults.append(
            f"{setting} leaves no {unit}s of class {listed([int(c) for c in none_left])}; lower "
            f"data.imbalance_factor to at most {_feasible_factor(data, available, largest)} or raise data.n_max"
        )
    short = np.flatnonzero(counts > available)
    if len(short):
        c = int(short[0])
        more = f" (and too many of {len(short) - 1} more classes)" if len(short) > 1 else ""
        faults.append(
            f"{setting} asks for {counts[c]} {unit}s of class {c} ({names[c]}), which has {available[c]}{more}; "
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


def _deal(config: TrialConfig, raw: RawData, subset: np.ndarray) -> tuple[tuple[np.ndarray, ...], list[str]]:
    data, clients, seed = config.data, config.federation.clients, _partition_seed(config)
    labels, name = raw.train_labels[subset], dataset_name(data.source, data.profile)
    words = {"unit": raw.unit}
    if data.partition == "natural":
        assert raw.train_clients is not None, "readers give clients or refuse"
        parts = natural_partition(raw.train_clients[subset], len(raw.client_names))
        described = f"{name} as its clients hold it"
        words["remedy"] = "Lower data.min_client_samples"
    elif data.partition == "dirichlet":
        parts = dirichlet_partition(labels, clients, data.alpha, seed, len(raw.class_names))
        described = f"{name} dealt with alpha = {data.alpha:g}"
    else:
        parts, described = iid_partition(labels, clients, seed), f"{name} dealt evenly"
    minimum, rule = data.min_client_samples, data.on_small_client
    parts, notes = settle_small_clients(parts, minimum, rule, seed, described, **words)
    return tuple(parts), notes + empty_client_note(parts, raw.unit)


def _single_tests(raw: RawData) -> Iterator[str]:
    alone = [raw.class_names[int(c)] for c in np.flatnonzero(np.bincount(raw.test_labels) == 1)]
    if alone:
        shown = ", ".join(alone[:10]) + (" ..." if len(alone) > 10 else "")
        yield f"a single test {raw.unit} of class {shown}: with evaluation.selection = test_slice it does not select"


def _alike(raw: RawData) -> Iterator[str]:
    """What may be two spellings of one name."""
    for kind, names in (("class", raw.class_names), ("client", raw.client_names)):
        groups = [" and ".join(group) for group in alike(names)]
        if groups:
            shown = ", ".join(groups[:10]) + (" ..." if len(groups) > 10 else "")
            yield f"names that differ only in case or spaces count as several: {shown}; is each pair one {kind}?"


def _statements(data: DataConfig, raw: RawData, clients: tuple[np.ndarray, ...]) -> Iterator[str]:
    """What every number from these data needs to be read with."""
    if data.partition == "natural":
        sizes = [len(part) for part in clients]
        yield (
            f"clients are those that the data name: {len(sizes)}, with {min(sizes):,} to {max(sizes):,} training "
            f"{raw.unit}s"
        )
    if data.balanced_test:
        counts = np.bincount(raw.test_labels)
        yield (
            f"the server's test set is balanced by resampling: rows of smaller classes are repeated until each class "
            f"counts as much as the largest ({counts.min():,} to {counts.max():,} {raw.unit}s a class before)"
        )
