"""What of a run's curve is to be logged: rounds that it shares with others first, then its own as they come."""

from __future__ import annotations

from fedrela_bench.tracking.journal import Journal, Line
from fedrela_bench.tracking.manifest import Manifest, Record
from fedrela_bench.tracking.payload import read_result
from fedrela_bench.tracking.state import RunState

ROUNDS = "rounds.jsonl"
PREFIX_TAG = "prefix_copied"


class Curves:
    """Follows the journals of a study's runs; `settle` is called once what `fresh` gave is logged."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._offsets: dict[str, int] = {}
        self._pending: dict[str, int] = {}

    def fresh(self, record: Record, state: RunState) -> tuple[list[Line], dict[str, str]]:
        """Rounds to log, and the tag that says which are shared; nothing while the shared ones are not all there."""
        shared: list[Line] = []
        tags: dict[str, str] = {}
        if record.trunk_folder and record.fork_round and not state.prefix:
            found = self._shared(record)
            if found is None:
                return [], {}
            shared, tags = found, {PREFIX_TAG: f"1..{len(found)}"}
        journal = Journal(self._manifest.path(record.folder) / ROUNDS)
        lines, self._pending[record.id] = journal.tail(self._offsets.get(record.id, 0))
        known = max(state.last_round, len(shared))
        return [*shared, *(line for line in lines if line["round"] > known)], tags

    def settle(self, record: Record, state: RunState, lines: list[Line], tags: dict[str, str]) -> None:
        """Note what was logged."""
        if record.id in self._pending:
            self._offsets[record.id] = self._pending.pop(record.id)
        state.prefix = state.prefix or PREFIX_TAG in tags
        state.last_round = max([state.last_round, *(line["round"] for line in lines)])

    def _shared(self, record: Record) -> list[Line] | None:
        lines = self._rounds(record.trunk_folder, 1, record.fork_round)
        if lines is not None and record.branch_folder and len(lines) == record.fork_round:
            after = self._rounds(record.branch_folder, record.fork_round + 1, record.branch_round)
            lines = None if after is None else lines + after
        return lines

    def _rounds(self, name: str, first: int, last: int) -> list[Line] | None:
        """Rounds of another run's journal; None while it has not come that far."""
        folder = self._manifest.path(name)
        lines = Journal(folder / ROUNDS).rounds(first)[: last - first + 1]
        return None if len(lines) < last - first + 1 and read_result(folder) is None else lines
