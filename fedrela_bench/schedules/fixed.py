"""The schedule of FedReLa's paper: at T, and again every `period` rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from fedrela_bench.schedules.base import Schedule
from fedrela_bench.schedules.registry import register_schedule


@register_schedule
class Fixed(Schedule):
    """At T with the whole budget; with a period again and again, each time with the same budget."""

    name: ClassVar[str] = "fixed"
    citation: ClassVar[str] = "FedReLa, Algorithm 1 (arXiv 2606.26037)"
    purpose: ClassVar[str] = "relabel at T, and every `relabel.period` rounds after it"

    def later(self) -> Sequence[int]:
        """Every `period` rounds."""
        start, period, rounds = self.timing.start, self.timing.period, self.timing.rounds
        return range(start + period, rounds, period) if period else ()
