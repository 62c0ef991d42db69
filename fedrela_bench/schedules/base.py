"""The contract of a schedule: the rounds at which clients relabel, and the budget of each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from typing import ClassVar

from fedrela_bench.config import Section
from fedrela_bench.errors import ConfigError


class Options(Section):
    """Hyperparameters of a schedule; unknown names are faults."""


@dataclass(frozen=True)
class Timing:
    """What the configuration says about when to relabel."""

    start: int
    """T: completed rounds before the first refresh."""
    period: int
    """`relabel.period`; 0: once. A schedule may read it as it likes."""
    rounds: int
    tau: float
    """`relabel.tau`, the budget of a refresh."""


class Schedule(ABC):
    """When a run relabels; a pure function of its options and the run's timing.

    The first refresh is always at T: that is where a run parts from its baseline. Runs share all rounds until their
    second refresh with the run that relabels once, at T, with the budget of the first refresh.

    Args:
        options: validated by `OptionsModel`.
        timing: of the run.
    """

    name: ClassVar[str]
    citation: ClassVar[str]
    purpose: ClassVar[str]
    OptionsModel: ClassVar[type[Options]] = Options

    def __init__(self, options: Options, timing: Timing) -> None:
        self.options = options
        self.timing = timing

    @abstractmethod
    def later(self) -> Sequence[int]:
        """Refreshes after T as numbers of completed rounds, ascending; those past the last round never happen."""

    def share(self, refresh: int) -> float:
        """The part of tau that refresh 0 (at T), 1, ... may spend, from 0 to 1."""
        return 1.0

    @cached_property
    def refreshes(self) -> tuple[int, ...]:
        """Completed rounds before each refresh, T first.

        Raises:
            ConfigError: `later` is not ascending whole numbers after T.
        """
        later: object = self.later()
        if not isinstance(later, Iterable) or isinstance(later, str):
            raise ConfigError(f"schedule {self.name}: later() gave {later!r}; give a list of rounds after T")
        # One more than there are rounds shows that they do not end.
        listed = [self.timing.start, *islice(later, self.timing.rounds + 1)]
        whole = all(isinstance(place, int) and not isinstance(place, bool) for place in listed)
        if not whole or any(after <= before for before, after in pairwise(listed)):
            raise ConfigError(f"schedule {self.name}: later() gave {listed[1:]}; give ascending whole rounds after T")
        return tuple(place for place in listed if place < self.timing.rounds)

    def refresh_of(self, index: int) -> int:
        """The refresh that round `index` (from 0) stands under: 0 from T on, 1 from the second one on; -1 before T."""
        return bisect_right(self.refreshes, index) - 1

    def budget(self, refresh: int) -> float:
        """Tau of a refresh.

        Raises:
            ConfigError: `share` is not from 0 to 1.
        """
        share: object = self.share(refresh)
        if not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ConfigError(f"schedule {self.name}: share({refresh}) gave {share!r}; give a fraction from 0 to 1")
        return self.timing.tau * float(share)
