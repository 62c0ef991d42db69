"""Which nodes of a cluster cannot start a run: two failures before a first round, and never a success."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from fedrela_bench.nested import Json

STRIKES = 2


class Nodes:
    """Failures by node.

    Args:
        tell: called with a sentence for each node that is given nothing more.
    """

    def __init__(self, tell: Callable[[str], None] = lambda text: None) -> None:
        self.quarantined: set[str] = set()
        self.several = False
        """Whether there is another node to go to."""
        self._tell = tell
        self._failures: Counter[str] = Counter()
        self._good: set[str] = set()

    def note(self, answer: Json) -> bool:
        """Take note of a process's answer; returns whether the run should be tried again on another node."""
        node = answer.get("node")
        if not node or not self.several:
            return False
        failed_at_start = answer["status"] == "failed" and not answer.get("rounds") and not answer.get("kind")
        if not failed_at_start:
            self._good |= {node} if answer["status"] == "finished" else set()
            return False
        self._failures[node] += 1
        if self._failures[node] >= STRIKES and node not in self._good | self.quarantined:
            self.quarantined.add(node)
            self._tell(
                f"warning: node {answer.get('host', node)} failed {STRIKES} times before a first round "
                f"({answer['error']}); it is given nothing more in this call"
            )
        return True
