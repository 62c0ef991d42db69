"""The arms of a table together: what they share, and the marks of those that do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from fedrela_bench.reporting.arms import Arm
from fedrela_bench.reporting.evenness import MIXED, trunks_of, uneven
from fedrela_bench.reporting.select import DAGGER, split_text
from fedrela_bench.reporting.source import StudyRuns
from fedrela_bench.reporting.spec import ReportSpec

FEW_SEEDS = "‡"
SLOWED = "¶"
SCALE = "param:relabel.post_relabel_lr_scale"


@dataclass(frozen=True)
class Comparison:
    """Arms to be compared under one spec.

    Attributes:
        runs: the study.
        spec: with split, round rule and the seeds that are wanted.
        arms: one per row.
    """

    runs: StudyRuns
    spec: ReportSpec
    arms: Sequence[Arm]

    @cached_property
    def used(self) -> pd.DataFrame:
        """The rows of `StudyRuns.frame` that stand in the table."""
        return pd.concat([arm.runs for arm in self.arms]) if self.arms else self.runs.frame.iloc[:0]

    @property
    def seeds(self) -> list[int]:
        """Every seed of the table."""
        return sorted({int(seed) for seed in self.used["seed"]})

    @property
    def wanted_seeds(self) -> int:
        """Seeds without which a row is marked."""
        return max(self.spec.min_seeds, len(self.seeds))

    @property
    def split(self) -> str:
        """The split in words."""
        return split_text(self.spec.split, self.used["selection"])

    @property
    def oracle(self) -> bool:
        """Whether the reported test images chose anything in the table."""
        return any(self.dagger(arm) for arm in self.arms)

    def dagger(self, arm: Arm) -> str:
        """The mark of numbers that the reported test images chose."""
        chosen = self.spec.round_rule == "best_oracle" or "oracle" in set(arm.runs["selection"])
        return DAGGER if chosen and len(arm.runs) else ""

    def marks(self, place: int) -> str:
        """The marks behind the name of an arm."""
        arm = self.arms[place]
        few = FEW_SEEDS if self.few(arm) else ""
        return few + (MIXED if place in self.uneven else "") + (SLOWED if scales(arm) else "")

    def few(self, arm: Arm) -> bool:
        """Whether an arm has fewer seeds than wanted."""
        return 0 < len(arm.runs) < self.wanted_seeds

    @cached_property
    def uneven(self) -> dict[int, list[str]]:
        """How arms differ from the others, see `evenness.uneven`."""
        return uneven(self.arms)

    def not_paired(self, arm: Arm) -> list[str]:
        """The seeds of an arm whose baseline is another experiment, and in what."""
        found = {} if arm.is_baseline else trunks_of(self.runs, arm.runs)
        reasons: dict[str, list[str]] = {}
        for seed, (_, why) in found.items():
            reasons.setdefault(why, []).append(str(seed))
        return [f"seed{'s' * (len(of) > 1)} {', '.join(of)} ({why})" for why, of in reasons.items() if why]


def fewer(arm: Arm, count: int) -> str:
    """The mark of a number that rests on fewer seeds than its row has."""
    return FEW_SEEDS if count < len(arm.runs) else ""


def scales(arm: Arm) -> list[float]:
    """Learning-rate factors from T on, other than 1, of an arm that also relabels."""
    if not {SCALE, "param:relabel.tau"} <= set(arm.runs.columns):
        return []
    rows = arm.runs[(arm.runs["kind"] != "trunk") & (arm.runs["param:relabel.tau"].astype(float) > 0)]
    return sorted(set(rows[SCALE].dropna().astype(float)) - {1.0})
