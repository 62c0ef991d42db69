"""The small federation that every algorithm runs on, and the cases that are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedrela_bench.algorithms import ALGORITHMS
from fedrela_bench.bench.case import synthetic
from fedrela_bench.bench.workloads import Images
from fedrela_bench.config import TrialConfig, parse
from fedrela_bench.data import FederatedDataset
from fedrela_bench.models import Backbone, register_model
from fedrela_bench.models.conv import Conv2d
from fedrela_bench.simulation import Simulation

MODEL = "gpu_check"
IMAGES = Images((16, 16, 3), classes=4, per_class=32, test=40)
ROUNDS = 3
QUICK: Mapping[str, Mapping[str, Any]] = {
    "climb": {"primal_rounds": 1},
    "creff": {"features_per_class": 10, "match_steps": 5, "retrain_epochs": 10, "repeats": 3},
    "feddyn": {"alpha": 0.1},
    "fedloge": {"ssec_steps": 20},
    "fedyoyo": {"warmup": 1},
    "moon": {"projection_dim": 32},
    "smote": {"neighbours": 2},
}
"""Options with which an algorithm does in three short rounds what it does in a long run."""
TRAINING: Mapping[str, Mapping[str, Any]] = {"scaffold": {"momentum": 0.0}}
"""What an algorithm asks of local training."""


@register_model(MODEL)
class CheckNet(Backbone):
    """Two convolutions with batch norm around a max-pool, then the mean over positions: 32 features."""

    def __init__(self, input_shape: tuple[int, int, int], norm: str) -> None:
        super().__init__(feature_dim=32)
        self.conv1 = Conv2d(input_shape[0], 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = Conv2d(8, 32, 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(32)

    def forward(self, images: Tensor) -> Tensor:
        """(B, channels, H, W) -> (B, 32)."""
        x = torch.relu(self.bn1(self.conv1(images)))
        x = nn.functional.max_pool2d(x, 2)
        return torch.relu(self.bn2(self.conv2(x))).mean(dim=(2, 3))


@dataclass(frozen=True)
class Case:
    """An algorithm on a network."""

    algorithm: str
    model: str = MODEL
    rounds: int = ROUNDS
    options: Mapping[str, Any] | None = None
    """By default those of `QUICK`."""

    @property
    def key(self) -> str:
        """Names the case in results."""
        return self.algorithm if self.model == MODEL else f"{self.algorithm} on {self.model}"

    def config(self, dtype: str) -> TrialConfig:
        """Four clients of which three take part, relabelled before the second and every later round."""
        training = {"model": self.model, "dtype": dtype, "local_epochs": 1, "batch_size": 8, "lr": 0.05}
        return parse(
            {
                "data": {"source": "cifar10", "profile": "lt", "imbalance_factor": 8, "alpha": 1.0},
                "federation": {
                    "algorithm": self.algorithm,
                    "options": dict(QUICK.get(self.algorithm, {}) if self.options is None else self.options),
                    "clients": 4,
                    "participation": 0.75,
                    "rounds": self.rounds,
                },
                "training": training | dict(TRAINING.get(self.algorithm, {})),
                "relabel": {"tau": 0.3, "start": 1, "period": 1},
                "seed": 3,
            }
        )

    def simulation(self, dtype: str, device: str) -> Simulation:
        """Before its first round."""
        config = self.config(dtype)
        return Simulation(config, federation(config), device)


def federation(config: TrialConfig) -> FederatedDataset:
    """Long-tailed random images, cropped and flipped in training."""
    return synthetic(config, IMAGES)


def cases(tiny: bool) -> list[Case]:
    """Every registered algorithm on the small network, and FedAvg on shipped ones; tiny: a round less."""
    shipped = ("lenet",) if tiny else ("fmcnn", "resnet8", "resnet18")
    pairs = [*((name, MODEL) for name in sorted(ALGORITHMS)), *(("fedavg", model) for model in shipped)]
    return [Case(name, model, ROUNDS - tiny) for name, model in pairs]
