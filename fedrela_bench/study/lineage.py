"""Where the rounds of a run are: runs share everything they have in common, each part in a folder of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedrela_bench.config import TrialConfig
from fedrela_bench.nested import Json
from fedrela_bench.study.store import Entry


@dataclass(frozen=True)
class Segment:
    """Rounds `first` to `last` of a run, which it shares with everything else that has the same entry."""

    entry: Entry
    config: TrialConfig
    """Of the run that the entry holds."""
    first: int
    last: int


def curve_of(lineage: Sequence[Segment]) -> list[Json]:
    """Journal lines of a run's consecutive rounds, collected from everything that it shares."""
    lines: list[Json] = []
    for segment in lineage:
        lines += segment.entry.journal.rounds(segment.first)[: segment.last - segment.first + 1]
    return lines
