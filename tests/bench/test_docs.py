"""The page on benchmarks tells of every workload and ratio, and names none that does not exist."""

from __future__ import annotations

import itertools

from fedrela_bench.bench.workloads import WORKLOADS
from tests.docs.pages import ROOT, blocks, commands

PAGE = ROOT / "docs" / "benchmarks.md"
COMMANDS = [words for block in blocks(PAGE) if block.kind == "bash" for words in commands(block.text)]


def test_commands_name_workloads_that_exist() -> None:
    named = [word for words in COMMANDS for word in _names(words)]
    assert len(named) > 8
    assert set(named) <= set(WORKLOADS)


def _names(words: list[str]) -> list[str]:
    """What stands after the verb and is neither an option nor an option's value."""
    pairs = itertools.pairwise(words)
    own = [word for before, word in pairs if not word.startswith("--") and (before[:2] != "--" or before == "--short")]
    return own if words[0] == "bench" else []


def test_every_workload_and_aim_is_told() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(COMMANDS) > 8
    for name, workload in WORKLOADS.items():
        assert f"`{name}`" in text
        for ratio in workload.targets:
            assert f"`{ratio}`" in text
