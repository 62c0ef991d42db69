"""The contract of a relabeler: from one client's posterior and labels to its new labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrela_bench.config import Section
from fedrela_bench.errors import ConfigError
from fedrela_bench.relabel import RelabelOptions
from fedrela_bench.relabel.checks import check

Array = TypeVar("Array", NDArray[Any], Tensor)
Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


class Options(Section):
    """Hyperparameters of a relabeler; unknown names are faults."""


@dataclass(frozen=True, eq=False)
class Client(Generic[Array]):
    """What a relabeler knows of one client at one refresh.

    Attributes:
        posterior: (n, C) class probabilities of the n local samples at the global model.
        labels: (n,) class ids 0..C-1.
        tau: the budget, a fraction of the local samples.
        uniforms: (n, C) draws from [0, 1); the same for every relabeler.
        draws: (n, k) further draws, k the relabeler's `draws`; a stream of its own.
        readings: how FedReLa reads its paper, for relabelers that build on it.
    """

    posterior: Array
    labels: Array
    tau: float
    uniforms: NDArray[np.float64]
    draws: NDArray[np.float64]
    readings: RelabelOptions = field(default_factory=RelabelOptions)

    @property
    def counts(self) -> Labels:
        """(C,) local samples of each class."""
        labels = self.labels.cpu().numpy() if isinstance(self.labels, Tensor) else self.labels
        return np.bincount(labels.astype(np.int64), minlength=self.posterior.shape[1])


@dataclass(frozen=True, eq=False)
class Relabelled(Generic[Array]):
    """What a relabeler gives back; arrays of the kind of the client's.

    Attributes:
        labels: (n,) labels after.
        strength: (n,) how much speaks for the new label in the relabeler's own measure; 0 where the label stayed.
    """

    labels: Array
    strength: Array


class Relabeler(ABC):
    """New labels for one client: a pure function of the client and the options.

    Args:
        options: validated by `OptionsModel`.
    """

    name: ClassVar[str]
    citation: ClassVar[str]
    purpose: ClassVar[str]
    OptionsModel: ClassVar[type[Options]] = Options
    draws: ClassVar[int] = 0
    """Random numbers per sample that it needs beside `uniforms`."""
    order_free: ClassVar[bool] = True
    """Whether another order of the samples, with their draws, gives the same labels in that order."""
    control: ClassVar[bool] = False
    """Whether it is there to be compared with, not to be chosen: a search never recommends it."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @property
    def shown(self) -> str:
        """The name as reports have it."""
        return self.name

    @abstractmethod
    def relabel(self, client: Client[NDArray[Any]]) -> Relabelled[NDArray[Any]]:
        """The client's new labels, in numpy. n may be 0; classes may be absent."""

    def relabel_tensor(self, client: Client[Tensor]) -> Relabelled[Tensor]:
        """The same for tensors, by default through numpy; overridden where a path stays on the device."""
        device = client.posterior.device
        posterior, labels = client.posterior.detach().cpu().numpy(), client.labels.cpu().numpy()
        found = run(self, Client(posterior, labels, client.tau, client.uniforms, client.draws, client.readings))
        return Relabelled(torch.from_numpy(found.labels).to(device), torch.from_numpy(found.strength).to(device))

    def most(self, client: Client[Any]) -> int:
        """The most samples whose label may change; by default the share tau of the client's."""
        return int(client.tau * len(client.labels))


def run(relabeler: Relabeler, client: Client[NDArray[Any]]) -> Relabelled[NDArray[Any]]:
    """Relabel with the inputs and the answer checked; an empty client is not asked.

    Returns:
        Labels in the type of the client's.

    Raises:
        ConfigError: wrong input, or an answer that is no labels.
    """
    check(client.posterior, client.labels, client.tau, client.uniforms)
    if len(client.labels) == 0:
        return Relabelled(client.labels.copy(), np.zeros(0))
    found = relabeler.relabel(client)
    faults = _answer_faults(relabeler.name, found, client.posterior.shape)
    if faults:
        raise ConfigError(faults)
    return Relabelled(
        found.labels.astype(client.labels.dtype, copy=False), found.strength.astype(np.float64, copy=False)
    )


def _answer_faults(name: str, found: object, shape: tuple[int, ...]) -> list[str]:
    if not isinstance(found, Relabelled):
        return [f"relabeler {name} gave a {type(found).__name__}; give Relabelled(labels, strength)"]
    foreign = [part for part in (found.labels, found.strength) if not isinstance(part, np.ndarray)]
    if foreign:
        return [
            f"relabeler {name} gave labels or strength as {type(foreign[0]).__name__}; give two numpy arrays of shape "
            f"({shape[0]},)"
        ]
    labels, strength = np.asarray(found.labels), np.asarray(found.strength)
    faults = [
        f"relabeler {name} gave {what} of shape {array.shape}; give ({shape[0]},), one for each sample"
        for what, array in (("labels", labels), ("strength", strength))
        if array.shape != shape[:1]
    ]
    if labels.dtype.kind not in "iu":
        return [*faults, f"relabeler {name} gave labels of type {labels.dtype}; give integer class ids"]
    if labels.size and not 0 <= int(labels.min()) <= int(labels.max()) < shape[1]:
        faults.append(f"relabeler {name} gave labels {labels.min()} to {labels.max()}; classes are 0 to {shape[1] - 1}")
    if strength.dtype.kind not in "biuf" or not np.isfinite(strength).all():
        faults.append(f"relabeler {name} gave strength that is not finite numbers; give 0 where the label stayed")
    return faults
