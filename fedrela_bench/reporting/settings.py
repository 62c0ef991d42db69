"""Settings of a report that compares over datasets, imbalance, clients or skew, and the runs that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from fedrela_bench.config import Section
from fedrela_bench.values import Whole

Size = Literal["cpu", "paper"]


class Overrides(Section):
    """Dotted fields of the configuration: for every size, and for one size profile only."""

    config: dict[str, Any] = Field(default_factory=dict)
    cpu: dict[str, Any] = Field(default_factory=dict)
    paper: dict[str, Any] = Field(default_factory=dict)

    def at(self, size: Size) -> dict[str, Any]:
        """The fields at one size."""
        return {**self.config, **(self.cpu if size == "cpu" else self.paper)}


def _by_name(value: object) -> object:
    """``[fedavg, fedprox]``, or a mapping whose values may be left empty."""
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        return {name: {} for name in value}
    if isinstance(value, Mapping):
        return {name: {} if given is None else given for name, given in value.items()}
    return value


def _listed(value: object) -> object:
    """3 is the seeds 1, 2, 3."""
    return tuple(range(1, value + 1)) if isinstance(value, int) and not isinstance(value, bool) else value


Algorithms = Annotated[dict[str, Overrides], BeforeValidator(_by_name)]
Seeds = Annotated[
    tuple[Annotated[Whole, Field(ge=0, lt=2**32)], ...], BeforeValidator(_listed), Field(min_length=1, max_length=100)
]


class SettingSpec(Overrides):
    """One dataset with its imbalance, clients and skew; its `config` also says which runs of a study belong to it."""

    name: str | None = None
    """By default `block` and `group`."""
    dataset: str | None = None
    """Such as ``cifar10_lt``; left open, runs of any dataset fit, and `--dataset` says what is computed."""
    block: str = ""
    """Heading of the rows that the setting stands in; settings of one block and different groups share rows."""
    group: str = ""
    """Heading over the columns that the setting stands in."""
    where: dict[str, Any] = Field(default_factory=dict)
    """Filters on the runs beside `dataset` and `config`."""
    reference: dict[str, Any] = Field(default_factory=dict)
    """Filters on the published numbers that belong to the setting."""
    algorithms: Algorithms = Field(default_factory=dict)
    """Fields of single algorithms in this setting."""
    needs: str | None = None
    """What a machine must have for it; told where it cannot be computed."""

    @property
    def title(self) -> str:
        """How the setting is named."""
        return self.name or ", ".join(part for part in (self.block, self.group) if part) or self.dataset or "all"

    def filters(self) -> dict[str, Any]:
        """Tags and fields that the setting's runs have."""
        named = {} if self.dataset is None else {"dataset": self.dataset}
        return {**named, **self.config, **self.where}


class RunsSpec(Overrides):
    """The runs that a report needs: every algorithm in every setting, alone and with every kind of relabelling."""

    algorithms: Algorithms
    relabel: tuple[dict[str, Any], ...] = ()
    """Fields of the relabel section; what is left out is as the paper has it (τ = 5 %, T = 0.8 R, once)."""
    seeds: Seeds = (1, 2, 3)

    def fields(self, setting: SettingSpec, algorithm: str, size: Size) -> dict[str, Any]:
        """Dotted fields of one algorithm's runs in one setting, later ones stronger."""
        own = self.algorithms.get(algorithm, Overrides())
        there = setting.algorithms.get(algorithm, Overrides())
        return {**self.at(size), **own.at(size), **setting.at(size), **there.at(size)}
