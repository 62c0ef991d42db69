"""Commands of the page on benchmarks exist, and it tells of every workload and ratio."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from fedrela_bench.bench.workloads import WORKLOADS
from fedrela_bench.cli import app

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md").read_text()
LINES = [line.split("  #")[0] for block in re.findall(r"```bash\n(.*?)```", PAGE, re.S) for line in block.splitlines()]
COMMANDS = [shlex.split(line) for line in LINES if line.startswith("fedrela-bench")]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_exist_with_their_options_and_workloads(words: list[str]) -> None:
    verbs = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    options = {option for parameter in verbs[words[1]].params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options
    if words[1] == "bench":
        names = [word for at, word in enumerate(words[2:], 2) if not word.startswith("--") and _is_name(words, at)]
        assert set(names) <= set(WORKLOADS)


def _is_name(words: list[str], at: int) -> bool:
    return not words[at - 1].startswith("--") or words[at - 1] == "--short"


def test_every_workload_and_aim_is_told() -> None:
    assert len(COMMANDS) > 8
    for name, workload in WORKLOADS.items():
        assert f"`{name}`" in PAGE
        for ratio in workload.targets:
            assert f"`{ratio}`" in PAGE
