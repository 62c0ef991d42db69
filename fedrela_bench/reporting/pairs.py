"""For each base algorithm its runs without relabelling and the relabelled runs to show beside them, seed by seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedrela_bench.choice import balanced
from fedrela_bench.reporting.arms import CONTROLS, Arm, objective_means
from fedrela_bench.reporting.evidence import NotDrawn

if TYPE_CHECKING:
    from fedrela_bench.reporting.select import RoundRule
    from fedrela_bench.reporting.source import StudyRuns


@dataclass(frozen=True)
class Pair:
    """A relabelled arm.

    Attributes:
        label: the arm's.
        algorithm: its base algorithm.
        runs: seed to (run id of the trunk it forked from, its own run id); without those that a table does not pair.
    """

    label: str
    algorithm: str
    runs: Mapping[int, tuple[str, str]]

    @property
    def seeds(self) -> tuple[int, ...]:
        """In order."""
        return tuple(sorted(self.runs))


def pairs(runs: StudyRuns, arms: Sequence[Arm], rule: RoundRule) -> list[Pair]:
    """One relabelled arm of each base algorithm, in the order of the arms.

    Of several it is the balanced one: nearest to the best of every objective on the images that choose, each scaled to
    0..1 over the algorithm's arms.

    Raises:
        NotDrawn: no arm relabels, or none beside its trunk.
    """
    found, relabelled = [], False
    for algorithm in dict.fromkeys(arm.algorithm for arm in arms):
        own = [arm for arm in arms if arm.algorithm == algorithm and not arm.is_baseline and _relabels(arm)]
        relabelled = relabelled or bool(own)
        own = [arm for arm in own if any(_partners(runs, arm))]
        points = [objective_means(runs, arm.runs, runs.objectives, rule) for arm in own]
        if own:
            arm = own[balanced(points)]
            found.append(Pair(arm.label, algorithm, dict(_partners(runs, arm))))
    if not found:
        raise NotDrawn("no run that relabels has its baseline here" if relabelled else "no finished run relabels")
    return found


def _relabels(arm: Arm) -> bool:
    if arm.runs["arm"].isin(CONTROLS).any():
        return False
    taus = arm.runs.get("param:relabel.tau")
    return taus is None or bool((taus.astype(float) > 0).all())


def _partners(runs: StudyRuns, arm: Arm) -> Iterator[tuple[int, tuple[str, str]]]:
    for seed, run_id in sorted(zip(arm.runs["seed"], arm.runs["run_id"], strict=True)):
        trunk, _ = runs.baselines[run_id]
        if trunk is not None:
            yield int(seed), (trunk, str(run_id))
