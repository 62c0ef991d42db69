"""The control that reviewers ask for: as many samples as FedReLa moves, but chosen at random."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedrela_bench.relabelers.base import Client, Labels, Options, Relabeler, Relabelled
from fedrela_bench.relabelers.fedrela import most_of, reallocated
from fedrela_bench.relabelers.registry import register_relabeler

SHOWN = {"rate": "same rate", "source": "same rate of every class", "flow": "same flow"}
WHO, WHERE = 0, 1
"""Columns of the draws: which samples move, and to which class."""


class RandomOptions(Options):
    """Options of `Random`."""

    match: Literal["rate", "source", "flow"] = Field(
        default="rate",
        description="what is FedReLa's: rate: the number of moved samples of every client; source: that number for "
        "every class they come from; flow: for every pair of old and new class",
    )


@register_relabeler
class Random(Relabeler):
    """Works out what FedReLa would do with the same posterior and draws, and moves as many samples at random.

    With ``match = flow`` only the choice of samples is random: the label counts after it, and the whole table from old
    to new labels, are FedReLa's. With ``rate`` and ``source`` every other class is equally likely to be the new one.
    """

    name: ClassVar[str] = "random"
    citation: ClassVar[str] = "fedrela-bench; the ablation 'random relabelling at the same rate'"
    purpose: ClassVar[str] = "moves as many samples of every client as FedReLa would, chosen at random"
    OptionsModel: ClassVar[type[Options]] = RandomOptions
    draws: ClassVar[int] = 2
    control: ClassVar[bool] = True

    @property
    def shown(self) -> str:
        """Such as ``random (same rate)``."""
        return f"{self.name} ({SHOWN[cast(RandomOptions, self.options).match]})"

    def relabel(self, client: Client[NDArray[Any]]) -> Relabelled[NDArray[Any]]:
        """Strength is the share of its group that moves: how likely the sample was to be chosen."""
        match, labels = cast(RandomOptions, self.options).match, client.labels.astype(np.int64)
        theirs = reallocated(client).labels.astype(np.int64)
        new, strength = labels.copy(), np.zeros(len(labels))
        for members in _groups(labels, match):
            targets = np.sort(theirs[members][theirs[members] != labels[members]])
            chosen = members[np.argsort(client.draws[members, WHO], kind="stable")][: targets.size]
            if match != "flow":
                targets = _other_classes(labels[chosen], client.draws[chosen, WHERE], client.posterior.shape[1])
            new[chosen] = targets
            strength[chosen] = targets.size / members.size
        return Relabelled(new, strength)

    def most(self, client: Client[Any]) -> int:
        """As FedReLa."""
        return most_of(client)


def _groups(labels: Labels, match: str) -> list[Labels]:
    """Samples among which is chosen: all, or those of each class."""
    if match == "rate":
        return [np.arange(labels.size)]
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


def _other_classes(labels: Labels, draws: NDArray[np.float64], classes: int) -> Labels:
    """A class other than its own for every sample, each equally likely."""
    steps = np.minimum((draws * (classes - 1)).astype(np.int64), classes - 2)
    return (labels + 1 + steps) % classes
