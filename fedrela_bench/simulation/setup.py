"""From a configuration and a dataset to the resident pieces of a simulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from fedrela_bench.algorithms import Algorithm, Server, build_algorithm
from fedrela_bench.algorithms.base import ServerData
from fedrela_bench.config import TrialConfig
from fedrela_bench.data.federated import FederatedDataset
from fedrela_bench.data.load import split_key
from fedrela_bench.data.transforms import Pipeline
from fedrela_bench.errors import ConfigError
from fedrela_bench.faults import unknown_name
from fedrela_bench.models import Net, build_backbone, default_model, materialize, prove_model
from fedrela_bench.relabelers import build_relabeler
from fedrela_bench.rng import generator
from fedrela_bench.schedules import build_schedule
from fedrela_bench.simulation.flat import FlatModel
from fedrela_bench.simulation.mapped import resident_images
from fedrela_bench.simulation.metrics import Groups, shot_groups, step_groups
from fedrela_bench.simulation.precision import DTYPES
from fedrela_bench.simulation.privacy import require_protected


@dataclass(frozen=True)
class Resident:
    """Data on the device; images that do not fit there are read from their file row by row (`mapped.Mapped`)."""

    images: Tensor
    """(n, H, W, C) uint8 training images, or (n, 1, D, 1) float32 rows, in position order."""
    original: Tensor
    """(n,) labels of the dataset."""
    test_images: Tensor
    test_labels: np.ndarray
    slices: dict[Literal["test", "val"], np.ndarray]
    """Test rows that are reported and, where a slice selects, those that select."""
    rows: tuple[Tensor, ...]
    """Per client, positions into `images`."""
    pipeline: Pipeline
    groups: Groups
    server: ServerData | None = None
    """Images of the server's own, for the algorithms that ask for them."""


def make_resident(
    config: TrialConfig, dataset: FederatedDataset, device: torch.device, server_images: int = 0
) -> Resident:
    """Copy the kept images to the device, once, where they fit, and so many images of each class for the server.

    Raises:
        ConfigError: the dataset was split for another number of clients.
    """
    if len(dataset.clients) != config.federation.clients:
        raise ConfigError(
            f"the dataset is split for {len(dataset.clients)} clients but federation.clients = "
            f"{config.federation.clients}; load the dataset with the same configuration"
        )
    if dataset.made_for and dataset.made_for != split_key(config):
        raise ConfigError(
            "the dataset was loaded for another configuration (data section, clients or partition seed differ); "
            "load it with the one that is simulated"
        )
    pipeline = Pipeline(dataset.normalization, dataset.augment, DTYPES[config.training.dtype], dataset.is_table)
    return Resident(
        images=resident_images(dataset.train_images, dataset.subset, device),
        original=torch.from_numpy(dataset.labels.astype(np.int64)).to(device),
        test_images=resident_images(dataset.test_images, np.arange(len(dataset.test_images)), device),
        test_labels=dataset.test_labels.astype(np.int64),
        slices=evaluation_slices(config, dataset),
        rows=tuple(torch.from_numpy(rows.astype(np.int64)).to(device) for rows in dataset.clients),
        pipeline=pipeline,
        groups=class_groups(config, dataset),
        server=_server_data(config, dataset, pipeline, device, server_images) if server_images else None,
    )


def _server_data(
    config: TrialConfig, dataset: FederatedDataset, pipeline: Pipeline, device: torch.device, per_class: int
) -> ServerData:
    rows = dataset.server_rows(per_class, config.data.subset_seed)
    images = (torch.from_numpy(np.ascontiguousarray(dataset.train_images[part])).to(device) for part in rows)
    return ServerData(tuple(images), pipeline)


def evaluation_slices(config: TrialConfig, dataset: FederatedDataset) -> dict[Literal["test", "val"], np.ndarray]:
    """Rows of the test set that are reported, and with `selection: test_slice` the disjoint ones that select."""
    if config.evaluation.selection == "test_slice":
        selection, report = dataset.test_slices()
        return {"test": report, "val": selection}
    return {"test": dataset.test_rows()}


def class_groups(config: TrialConfig, dataset: FederatedDataset) -> Groups:
    """Majority/minority for the step profile, head/medium/tail otherwise."""
    if dataset.minority:
        return step_groups(dataset.minority, dataset.num_classes)
    rule = config.evaluation.shot_split
    return shot_groups(dataset.class_counts if rule == "train_counts" else dataset.client_counts, rule)


def group_names(config: TrialConfig, dataset: FederatedDataset) -> tuple[str, ...]:
    """The group of each of the C classes, such as head."""
    group = {label: name for name, labels in class_groups(config, dataset).items() for label in labels}
    return tuple(group[label] for label in range(dataset.num_classes))


class Shaped(Protocol):
    """What a network depends on, such as a dataset."""

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one image."""

    @property
    def num_classes(self) -> int:
        """C."""

    @property
    def is_table(self) -> bool:
        """Whether samples are standardised rows, not images."""


def _model_name(config: TrialConfig, dataset: Shaped) -> str:
    if config.training.model != "auto":
        return config.training.model
    return default_model(config.data.source, dataset.input_shape, config.data.profile)


def build_network(config: TrialConfig, dataset: Shaped) -> tuple[Algorithm, Net]:
    """Algorithm and network on the meta device: no memory, nothing drawn.

    Raises:
        ConfigError: unknown model, algorithm, relabeler or schedule, wrong options, a model that does not suit the
            images, a posterior head that the algorithm does not have, no shuffling where the algorithm draws an epoch's
            samples, an algorithm that needs images for the rows of a table, or one that the mechanism of `privacy` does
            not cover.
    """
    build_relabeler(config.relabel.method, config.relabel.options)
    build_schedule(config)
    algorithm = build_algorithm(config.federation.algorithm, config.federation.options, dataset.num_classes)
    if dataset.is_table and algorithm.needs_images():
        raise ConfigError(f"{algorithm.name} cannot train on the rows of a table: {algorithm.needs_images()}")
    head = config.relabel.posterior_head
    if head not in ("auto", *algorithm.posterior_heads):
        name = f"relabel.posterior_head = {head!r} of {algorithm.name}"
        raise ConfigError(unknown_name("head", name, head, ("auto", *algorithm.posterior_heads)))
    if not config.training.shuffle and type(algorithm).epoch_rows is not Algorithm.epoch_rows:
        raise ConfigError(f"{algorithm.name} draws the samples of an epoch; set training.shuffle = true")
    model = _model_name(config, dataset)
    prove_model(model, dataset.input_shape, config.training.norm, DTYPES[config.training.dtype])
    with torch.device("meta"):
        backbone = build_backbone(model, dataset.input_shape, config.training.norm)
        net = Net(backbone, algorithm.make_head(backbone.feature_dim))
    require_protected(config, algorithm, net)
    return algorithm, net


def make_model(
    config: TrialConfig, dataset: FederatedDataset, device: torch.device
) -> tuple[FlatModel, Algorithm, Server]:
    """Network, algorithm and server before the first round.

    Raises:
        ConfigError: see `build_network`.
    """
    algorithm, net = build_network(config, dataset)
    materialize(net, generator(config.seed, "init"), device, DTYPES[config.training.dtype])
    model = FlatModel(net, algorithm.scope)
    server = Server(
        params=model.params.clone(),
        buffers=model.buffers.clone(),
        state={},
        client_sizes=np.array([len(rows) for rows in dataset.clients]),
        num_classes=dataset.num_classes,
        seed=config.seed,
    )
    server.state = algorithm.initial_server_state(server)
    return model, algorithm, server
