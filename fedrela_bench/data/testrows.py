"""How many different test rows stand behind the accuracy of a group of classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

FEW = 30
"""With fewer reported rows than this, one of them moves the accuracy of its group by more than three points."""


@dataclass(frozen=True)
class FewRows:
    """A group of classes with few test rows.

    Attributes:
        group: such as tail.
        rows: different rows in the whole test set.
        reported: those of them that the reported part has.
        points: by how many points of accuracy one reported row counts, ...
        unequal: ... at most: rows of its smaller classes count for more than others.
    """

    group: str
    rows: int
    reported: int
    points: float
    unequal: bool = False

    @property
    def text(self) -> str:
        """What a reader of any number of the group should know."""
        if not self.reported:
            return f"{self.group} has no test rows, so that its accuracy is not measured"
        half = "" if self.reported == self.rows else f" ({self.reported} in the reported half)"
        rows = f"{self.rows} test row{'s' * (self.rows != 1)}{half}"
        most = "up to " if self.unequal else ""
        return (
            f"{self.group} has {rows}: one row is {most}{self.points:.1f} points, and intervals over seeds do not "
            "cover that"
        )


def few_rows(
    groups: Mapping[str, Iterable[int]], counts: Sequence[int], halved: bool, balanced: bool
) -> dict[str, FewRows]:
    """The groups with fewer than `FEW` different test rows in the part that is reported.

    Args:
        groups: name to its classes; one without classes is passed over.
        counts: (C,) test rows of each class, as they are before any resampling.
        halved: whether half of each class selects; the odd row is reported.
        balanced: whether rows are repeated until classes are of one size, so that every class counts alike.
    """
    found = {}
    for name, classes in groups.items():
        own = [int(counts[label]) for label in classes]
        parts = [count - count // 2 if halved else count for count in own]
        reported, there = sum(parts), [part for part in parts if part]
        if own and reported < FEW:
            share = 1 / (len(there) * min(there)) if balanced and there else 1 / max(1, reported)
            found[name] = FewRows(name, sum(own), reported, 100 * share, balanced and len(set(there)) > 1)
    return found
