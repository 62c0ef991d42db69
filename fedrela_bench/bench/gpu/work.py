"""The workloads that are timed, and the number formats they are timed in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedrela_bench.algorithms import ALGORITHMS
from fedrela_bench.bench.case import synthetic
from fedrela_bench.bench.gpu.federation import MODEL
from fedrela_bench.bench.workloads import WORKLOADS
from fedrela_bench.config import TrialConfig
from fedrela_bench.data import FederatedDataset
from fedrela_bench.recipes import dataset_defaults

FORMATS: Mapping[str, Mapping[str, Any]] = {
    "float32": {},
    "tf32": {"training.tf32": True},
    "bf16": {"training.amp": "bf16"},
}
"""Name to the fields that differ from plain float32."""
PUBLISHED_SECONDS = {"cifar100_lt": 72.36}
"""A round as FedReLa's authors report it: CIFAR-100-LT, ResNet-34, 10 clients, batches of 8, on an H100."""
NAMES = ("fm", "cifar10_lt", "cifar100_lt")
TINY = {"data.n_max": 40, "federation.clients": 4, "training.model": MODEL, "training.local_epochs": 1}


@dataclass(frozen=True)
class Work:
    """A workload in a number format."""

    name: str
    format: str

    @property
    def key(self) -> str:
        """Such as ``fm bf16``."""
        return f"{self.name} {self.format}"

    def config(self, tiny: bool) -> TrialConfig:
        """The workload's configuration; CIFAR-100-LT trains FedLoGe where that is registered."""
        config = WORKLOADS[self.name].config(short=False)
        if self.name == "cifar100_lt" and "fedloge" in ALGORITHMS:
            config = config.replace(_fedloge())
        return config.replace({**FORMATS[self.format], **(TINY if tiny else {})})

    def dataset(self, config: TrialConfig, tiny: bool) -> FederatedDataset:
        """Random images, thinned and dealt as the recipe says."""
        images = WORKLOADS[self.name].images
        assert images is not None, "the workloads that are timed say what their images look like"
        return synthetic(config, replace(images, classes=10, test=100) if tiny else images)


def _fedloge() -> dict[str, Any]:
    """Its own recipe; its fixed classifier is spread in fewer steps, which happens once before the first round."""
    recipe = dataset_defaults("cifar100", "lt", "fedloge", "paper")["training"]
    fields = {f"training.{name}": recipe[name] for name in ("lr", "momentum", "weight_decay")}
    return {"federation.algorithm": "fedloge", "federation.options": {"ssec_steps": 100}, **fields}
