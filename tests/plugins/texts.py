"""Plugins as users write them."""

from __future__ import annotations

from pathlib import Path

FEDLS = '''
from typing import ClassVar

import torch.nn.functional as F
from pydantic import Field

from fedrela_bench.algorithms import Algorithm, Options, register


class SmoothingOptions(Options):
    """Of label smoothing."""

    smoothing: float = Field(0.1, ge=0, lt=1, description="share that is spread over all classes")


@register
class FedLS(Algorithm):
    """FedAvg with label smoothing."""

    name: ClassVar[str] = "fedls"
    citation: ClassVar[str] = "own work"
    purpose: ClassVar[str] = "label smoothing in the local loss"
    OptionsModel: ClassVar[type[Options]] = SmoothingOptions
    search_space: ClassVar = {"smoothing": {"uniform": (0.0, 0.3, 0.1)}, "training.lr": {"choice": [0.05, 0.1]}}

    def criterion(self, outputs, labels, context):
        return F.cross_entropy(outputs.logits, labels, label_smoothing=self.options.smoothing)
'''
RELABELER = '''
from typing import ClassVar

import numpy as np

from fedrela_bench.relabelers import Client, Relabeler, Relabelled, register_relabeler
from fedrela_bench.schedules import Schedule, register_schedule


@register_relabeler
class Next(Relabeler):
    """The first samples take the next class."""

    name: ClassVar[str] = "next_class"
    citation: ClassVar[str] = "own work"
    purpose: ClassVar[str] = "moves the first samples on by one class"
    order_free: ClassVar[bool] = False

    def relabel(self, client: Client) -> Relabelled:
        labels = client.labels.copy()
        first = np.arange(self.most(client))
        labels[first] = (labels[first] + 1) % client.posterior.shape[1]
        return Relabelled(labels, (labels != client.labels).astype(float))


@register_schedule
class Twice(Schedule):
    """At T and right after it."""

    name: ClassVar[str] = "twice"
    citation: ClassVar[str] = "own work"
    purpose: ClassVar[str] = "relabels in two rounds in a row"

    def later(self):
        return [self.timing.start + 1]
'''
NET = '''
import torch
from torch import nn

from fedrela_bench.models import Backbone, register_model


@register_model("tiny")
class Tiny(Backbone):
    """One hidden layer."""

    def __init__(self, input_shape, norm):
        super().__init__(feature_dim=16)
        channels, height, width = input_shape
        self.linear = nn.Linear(channels * height * width, 16)

    def forward(self, images):
        return torch.relu(self.linear(images.flatten(1)))
'''
WRONG = '''
import torch
from typing import ClassVar

from fedrela_bench.algorithms import Algorithm, register


class Wrong(Algorithm):
    citation: ClassVar[str] = "test"
    purpose: ClassVar[str] = "breaks a rule"


@register
class InSelf(Wrong):
    """Remembers in self."""

    name: ClassVar[str] = "wrong_self"
    rounds = 0

    def prepare(self, net, context):
        self.rounds += 1

    def criterion(self, outputs, labels, context):
        return super().criterion(outputs, labels, context) * (1 + 0.1 * self.rounds)


@register
class Draws(Wrong):
    """Draws from torch."""

    name: ClassVar[str] = "wrong_draws"

    def criterion(self, outputs, labels, context):
        return super().criterion(outputs, labels, context) * (1 + torch.rand(()))


@register
class Undeclared(Wrong):
    """Keeps what it does not declare."""

    name: ClassVar[str] = "wrong_state"

    def finish(self, update):
        update.context.state["last"] = update.params.clone()


@register
class Crashes(Wrong):
    """Has a bug."""

    name: ClassVar[str] = "wrong_bug"

    def criterion(self, outputs, labels, context):
        return outputs.logits[labels, 10_000].sum()


@register
class Server(Wrong):
    """A server that goes twice as far, and says so."""

    name: ClassVar[str] = "half_right"
    kit: ClassVar = {"server": "other"}

    def server_step(self, sums, server, participants):
        return server.params + 2 * (sums["params"] - server.params)
'''


def write(folder: Path, name: str, text: str) -> str:
    """A file's path as the command line gets it."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)
