"""What the datasets of a study are: digests, sizes, the accuracies that they have, and whether models suit them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from fedrela_bench.config import TrialConfig
from fedrela_bench.data.testrows import FewRows, few_rows
from fedrela_bench.errors import ConfigError
from fedrela_bench.nested import Json, canonical_json
from fedrela_bench.study.faults import Faults
from fedrela_bench.study.request import TuneRequest
from fedrela_bench.study.space import ALGORITHM
from fedrela_bench.study.spacefile import OPTIONS


@dataclass(frozen=True)
class Size:
    """Bytes on disk."""

    snapshot: int
    posteriors: int
    """What a trunk keeps of one first relabelling pass."""
    model: int


@dataclass
class Survey:
    """What was found so far, each dataset loaded once."""

    request: TuneRequest
    digests: dict[tuple[str, int], str] = field(default_factory=dict)
    """Data digest by algorithm and seed."""
    sizes: dict[str, Size] = field(default_factory=dict)
    """By algorithm."""
    facts: dict[str, Json] = field(default_factory=dict)
    """What a reader should know of every dataset, by its digest."""
    stated: list[str] = field(default_factory=list)
    """What must be said about the data, which is the same for every seed."""
    few: dict[str, FewRows] = field(default_factory=dict)
    """Groups with few test rows; where groups follow the partition, as few as some seed leaves."""
    measured: set[str] | None = None
    """Accuracies that the data of every algorithm and seed have; None before any were loaded."""
    _known: dict[str, str] = field(default_factory=dict)

    def look(self, base: TrialConfig) -> None:
        """Load an algorithm's data for every seed; the first one's also show whether the models can be built.

        Raises:
            ConfigError: a model, an option or an objective does not suit the dataset.
            DataError: it is missing or cannot be split as asked.
        """
        request, algorithm = self.request, base.federation.algorithm
        digests = {}
        for index, seed in enumerate(request.every_seed):
            config = base.replace({"seed": seed})
            name = canonical_json([config.data.model_dump(mode="json"), config.federation.clients, seed])
            if name not in self._known or index == 0:
                dataset = request.engine.dataset(config, request.data_dir, request.cache_dir)
                self._known[name] = dataset.digest
                self.facts[dataset.digest] = request.engine.facts(config, dataset)
                if index == 0:
                    self._check(config, dataset)
                self._measure(config, dataset)
                self._count(config, self.facts[dataset.digest])
            digests[algorithm, seed] = self._known[name]
        self.digests |= digests

    def _check(self, config: TrialConfig, dataset: Any) -> None:
        engine = self.request.engine
        self.stated += dataset.stated
        _check_models(self.request, config, dataset)
        _check_options(self.request, config, dataset)
        snapshot, model = engine.state_bytes(config, dataset)
        self.sizes[config.federation.algorithm] = Size(snapshot, engine.posterior_bytes(config, dataset), model)

    def _measure(self, config: TrialConfig, dataset: Any) -> None:
        """Groups may depend on the partition, and with it on the seed: an objective is one that every seed has."""
        measured = set(self.request.engine.measured(config, dataset))
        _check_objectives(self.request, measured)
        self.measured = measured if self.measured is None else self.measured & measured

    def _count(self, config: TrialConfig, facts: Json) -> None:
        halved = config.evaluation.selection == "test_slice"
        found = few_rows(facts.get("groups", {}), facts.get("test_counts", ()), halved, config.data.balanced_test)
        for name, group in found.items():
            self.few[name] = min(group, self.few.get(name, group), key=lambda few: few.reported)

    @property
    def notes(self) -> list[str]:
        """What belongs to every number."""
        return [*self.stated, *(group.text for group in self.few.values())]


def with_objectives(request: TuneRequest, measured: set[str] | None) -> tuple[TuneRequest, list[str]]:
    """A request that leaves its objectives to the profile, with such as its data have.

    Without tail classes the medium ones, where they are the rarest, stand in for them; where all classes are of one
    group there is nothing to weigh, and the overall accuracy alone is the objective.

    Args:
        request: of a study.
        measured: accuracies that its data have.

    Returns:
        The request, and what to tell of a choice that was made here.
    """
    missing = [name for name in request.objective_names if measured is not None and name not in measured]
    if measured is None or not missing or request.space.objectives is not None:
        return request, []
    rarest = ["medium"] if {"head", "medium"} <= measured else []
    chosen = replace(request, space=replace(request.space, objectives=("overall", *rarest)))
    why = " (the rarest classes that it has) are the objectives" if rarest else " alone is the objective"
    return chosen, [
        f"{request.dataset} has no {' or '.join(missing)} classes, so {' and '.join(chosen.objectives)}{why}; "
        "`objectives` in a search space names others"
    ]


def _check_models(request: TuneRequest, config: TrialConfig, dataset: Any) -> None:
    faults = Faults()
    searched = [p.values for p in request.space.parameters if p.name == "training.model" and p.kind == "choice"]
    for name in dict.fromkeys([config.training.model, *(value for values in searched for value in values)]):
        faults.attempt(None, partial(request.engine.check, config.replace({"training.model": name}), dataset))
    faults.refuse()


def _check_options(request: TuneRequest, config: TrialConfig, dataset: Any) -> None:
    """Raise ConfigError for searched options that this algorithm does not have."""
    algorithm, faults = config.federation.algorithm, Faults()
    for parameter in request.space.parameters:
        named = [values for name, values in parameter.when if name == ALGORITHM]
        if not parameter.name.startswith(OPTIONS) or any(algorithm not in values for values in named):
            continue
        try:
            request.engine.check(config.replace({parameter.name: parameter.values[0]}), dataset)
        except ConfigError as error:
            faults.add([f"{fault}; search it with when: {{algorithm: NAME}}" for fault in error.faults])
    faults.refuse()


def _check_objectives(request: TuneRequest, measured: set[str]) -> None:
    """Raise ConfigError for a named objective whose group has no class in this dataset."""
    missing = [name for name in request.space.objectives or () if name not in measured]
    if missing:
        known = ", ".join(sorted(measured))
        raise ConfigError(
            f"{request.dataset} has no {' or '.join(missing)} classes, so nothing can be selected by that; choose a "
            f"profile that has them (such as lt), or set `objectives` in the search space among {known}"
        )
