"""A ramp: the first refresh moves few labels, the last one as many as the budget allows."""

from __future__ import annotations

from typing import Annotated, ClassVar, cast

from pydantic import Field

from fedrela_bench.schedules.base import Options
from fedrela_bench.schedules.fixed import Fixed
from fedrela_bench.schedules.registry import register_schedule
from fedrela_bench.values import Real


class LinearOptions(Options):
    """Options of `Linear`."""

    first: Annotated[Real, Field(gt=0, le=1, description="share of tau that the refresh at T may spend")] = 0.2


@register_schedule
class Linear(Fixed):
    """Refreshes as `fixed` has them; the budget grows evenly from `first` of tau at T to tau at the last refresh.

    Early posteriors lean on a model that has not yet seen balanced labels, so fewer of them are trusted. With a single
    refresh (`relabel.period` 0, or none left after T) it spends the whole of tau.
    """

    name: ClassVar[str] = "linear"
    citation: ClassVar[str] = "fedrela-bench; in the spirit of class-balanced self-training (Zou et al., ECCV 2018)"
    purpose: ClassVar[str] = "a budget that grows from refresh to refresh; set `relabel.period`"
    OptionsModel: ClassVar[type[Options]] = LinearOptions

    def share(self, refresh: int) -> float:
        """From `first` to 1 in equal steps."""
        first, last = cast(LinearOptions, self.options).first, len(self.refreshes) - 1
        return 1.0 if refresh >= last else first + (1 - first) * refresh / last
