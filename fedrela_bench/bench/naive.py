"""The loop that research code usually runs, kept here to measure against.

A copy of the model for every client, a `DataLoader` over PIL images with torchvision's transforms, NCHW tensors,
`torch.optim.SGD` as it comes, the loss read every step, state dictionaries averaged, and an evaluation in batches of
128. It does the same steps on the same batches as `fedrela_bench.Simulation` with fedavg: only the machinery differs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from fedrela_bench.config import TrialConfig
from fedrela_bench.data import FederatedDataset
from fedrela_bench.data.transforms import PADDING
from fedrela_bench.errors import ConfigError
from fedrela_bench.models import Net, materialize
from fedrela_bench.models.small import ConvNet
from fedrela_bench.rng import derived_seed, generator
from fedrela_bench.simulation.batches import batch_bounds
from fedrela_bench.simulation.precision import DTYPES
from fedrela_bench.simulation.setup import build_network

TEST_BATCH = 128
Example = tuple[Tensor, int]


class Pictures(Dataset[Example]):
    """Images as a dataset that opens, augments and converts them one by one.

    Args:
        images: (n, H, W, C) uint8.
        labels: (n,).
        transform: from a PIL image to a tensor.
    """

    def __init__(self, images: np.ndarray, labels: np.ndarray, transform: Any) -> None:
        self.images = images
        self.labels = labels
        self.transform = transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Example:
        pixels = self.images[index]
        image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
        return self.transform(image), int(self.labels[index])


class EpochBatches:
    """A batch sampler: a new permutation every epoch, cut as `Simulation` cuts it."""

    def __init__(self, count: int, batch_size: int, rng: np.random.Generator, short: Any, batch_norm: bool) -> None:
        self.count = count
        self.rng = rng
        self.bounds = batch_bounds(count, batch_size, short, batch_norm)

    def __len__(self) -> int:
        return len(self.bounds)

    def __iter__(self) -> Iterator[list[int]]:
        order = self.rng.permutation(self.count).tolist()
        return iter([order[start:stop] for start, stop in self.bounds])


class Logits(nn.Module):
    """A network of this package as research code has it: images in, logits out."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, classes)."""
        logits: Tensor = self.net(images).logits
        return logits


def plain_model(net: Net) -> nn.Module:
    """The same function and the same values in torch's own layers: activation before pooling."""
    _use_library_convolutions(net)
    backbone = net.backbone
    if not isinstance(backbone, ConvNet):
        return Logits(net)

    def activation() -> nn.Module:
        return nn.LeakyReLU(backbone.slope) if backbone.slope else nn.ReLU()

    layers: list[nn.Module] = []
    for conv, pool in zip(backbone.convs, backbone.pools, strict=True):
        layers += [conv, activation(), *([nn.MaxPool2d(2)] if pool else [])]
    layers.append(nn.Flatten())
    for linear in backbone.linears:
        layers += [linear, activation()]
    return nn.Sequential(*layers, net.head)


def _use_library_convolutions(net: nn.Module) -> None:
    for parent in list(net.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Conv2d) and type(child) is not nn.Conv2d:
                setattr(parent, name, _library_convolution(child))


def _library_convolution(conv: nn.Conv2d) -> nn.Conv2d:
    with torch.device("meta"):
        plain = nn.Conv2d(
            conv.in_channels,
            conv.out_channels,
            cast(tuple[int, int], conv.kernel_size),
            cast(tuple[int, int], conv.stride),
            conv.padding if isinstance(conv.padding, str) else cast(tuple[int, int], conv.padding),
            bias=conv.bias is not None,
        )
    plain.weight, plain.bias = conv.weight, conv.bias
    return plain


def make_transforms(dataset: FederatedDataset, dtype: torch.dtype) -> tuple[Any, Any]:
    """The transforms of torchvision for training and test images."""
    convert = [transforms.ToTensor()]
    if dtype != torch.float32:
        convert = [transforms.PILToTensor(), transforms.ConvertImageDtype(dtype)]
    if dataset.normalization is not None:
        convert.append(transforms.Normalize(*dataset.normalization))
    size = dataset.train_images.shape[1:3]
    augment = [transforms.RandomCrop(size, padding=PADDING), transforms.RandomHorizontalFlip()]
    return transforms.Compose((augment if dataset.augment == "crop_flip" else []) + convert), transforms.Compose(
        convert
    )


class NaiveLoop:
    """FedAvg, round by round, from the same initial values and over the same batches as a `Simulation`.

    Args:
        config: the trial; full participation.
        dataset: its images.
        device: such as ``cpu`` or ``cuda``.

    Raises:
        ConfigError: an algorithm other than fedavg.
    """

    def __init__(self, config: TrialConfig, dataset: FederatedDataset, device: str = "cpu") -> None:
        if config.federation.algorithm != "fedavg":
            raise ConfigError(f"the naive loop runs fedavg, not {config.federation.algorithm}; choose fedavg")
        self.config = config
        self.device = torch.device(device)
        dtype = DTYPES[config.training.dtype]
        _, net = build_network(config, dataset)
        materialize(net, generator(config.seed, "init"), self.device, dtype)
        self.model = plain_model(net)
        self.has_batch_norm = any(isinstance(module, nn.BatchNorm2d) for module in net.modules())
        train, test = make_transforms(dataset, dtype)
        images = np.array(dataset.train_images[dataset.subset])
        self.clients = [Pictures(images[rows], dataset.labels[rows], train) for rows in dataset.clients if len(rows)]
        self.ids = [client for client, rows in enumerate(dataset.clients) if len(rows)]
        self.test = Pictures(np.array(dataset.test_images), dataset.test_labels, test)
        self.rounds = 0

    def run_round(self, evaluated: bool = True) -> float | None:
        """Train every client from the global model, average, and give the test accuracy where it is wanted."""
        total = sum(len(client) for client in self.clients)
        averaged: dict[str, Tensor] = {}
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(derived_seed(self.config.seed, "naive", self.rounds))
            for client, pictures in zip(self.ids, self.clients, strict=True):
                for name, value in self._train(client, pictures).state_dict().items():
                    part = value * (len(pictures) / total)
                    averaged[name] = averaged[name] + part if name in averaged else part
        self.model.load_state_dict(averaged)
        self.rounds += 1
        return self.accuracy() if evaluated else None

    def _train(self, client: int, pictures: Pictures) -> nn.Module:
        training = self.config.training
        model = copy.deepcopy(self.model)
        optimizer = torch.optim.SGD(
            model.parameters(), lr=training.lr, momentum=training.momentum, weight_decay=training.weight_decay
        )
        rng = generator(self.config.seed, "shuffle", self.rounds, client)
        batches = EpochBatches(len(pictures), training.batch_size, rng, training.short_batch, self.has_batch_norm)
        loader = DataLoader(pictures, batch_sampler=batches)
        criterion = nn.CrossEntropyLoss()
        model.train()
        losses = []
        for _ in range(training.local_epochs):
            for images, labels in loader:
                images, labels = images.to(self.device), labels.to(self.device)
                optimizer.zero_grad()
                loss = criterion(model(images), labels)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return model

    def accuracy(self) -> float:
        """Share of the test images that the global model gets right."""
        correct = 0
        self.model.eval()
        with torch.no_grad():
            for images, labels in DataLoader(self.test, batch_size=TEST_BATCH):
                predicted = self.model(images.to(self.device)).argmax(dim=1).cpu()
                correct += int((predicted == labels).sum().item())
        return correct / len(self.test)
