"""Ending relabelled runs that gain nothing over their baseline, judged at the same round of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedrela_bench.errors import BenchError, ConfigError
from fedrela_bench.nested import Json
from fedrela_bench.study.lineage import Segment, curve_of


class Futile(BenchError):  # noqa: N818 - not an error, a decision
    """A run was ended because it gained too little; what it computed stays."""


@dataclass(frozen=True)
class Futility:
    """Stop a run whose gain over its trunk is below `delta` in every objective, `rounds` rounds after the fork."""

    rounds: int
    delta: float
    objectives: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Futility:
        """Read ``k,delta``.

        Raises:
            ConfigError: anything else.
        """
        parts = text.split(",")
        try:
            rounds, delta = int(parts[0]), float(parts[1])
        except (ValueError, IndexError):
            rounds, delta = 0, 0.0
        if len(parts) != 2 or rounds < 1 or not -1 < delta < 1:
            raise ConfigError(
                f"--futility {text}: write rounds after the fork and the least gain as a fraction, such as 4,0.002"
            )
        return cls(rounds, delta)

    def verdict(self, lineage: Sequence[Segment]) -> str | None:
        """Why a run is not worth its remaining rounds; None while that is open, and when it is.

        Args:
            lineage: of a run that forks from a trunk.
        """
        trunk = {line["round"]: line for line in lineage[0].entry.journal.lines()}
        due = lineage[0].last + self.rounds
        lines = [line for line in curve_of(lineage) if line["round"] >= due]
        judged = next(
            (line for line in lines if self._measured(line) and self._measured(trunk.get(line["round"]))), None
        )
        if judged is None:
            return None
        values, base = judged["result"]["metrics"], trunk[judged["round"]]["result"]["metrics"]
        gains = {name: values[name] - base[name] for name in self.objectives}
        if any(gain >= self.delta for gain in gains.values()):
            return None
        shown = ", ".join(f"{name} {100 * gain:+.2f}" for name, gain in gains.items())
        return f"gain over the baseline in round {judged['round']} below {100 * self.delta:.2f} points: {shown}"

    def _measured(self, line: Json | None) -> bool:
        return line is not None and all(name in line["result"]["metrics"] for name in self.objectives)
