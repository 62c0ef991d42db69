"""Every command's help ends with examples that can be typed."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from fedrela_bench.cli import main
from fedrela_bench.cli.examples import EXAMPLES
from tests.docs.lines import faults, leaves


def test_every_command_has_an_example_and_no_example_is_left_over() -> None:
    assert len(leaves()) > 15
    assert sorted(leaves()) == sorted(EXAMPLES), "fedrela_bench/cli/examples.py: a line for every command"


@pytest.mark.parametrize("path", leaves())
def test_the_help_shows_them(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*path.split(), "--help"]) == 0
    out = capsys.readouterr().out
    section = out[out.index("\nExamples:\n") :]
    for line, purpose in EXAMPLES[path]:
        assert f"  fedrela-bench {line}\n      {purpose}\n" in section


@pytest.mark.parametrize(("path", "line"), [(path, line) for path, given in EXAMPLES.items() for line, _ in given])
def test_an_example_can_be_typed_and_is_of_its_command(path: str, line: str) -> None:
    words = shlex.split(line)
    assert faults(words) == []
    assert words[: len(path.split())] == path.split()


def test_the_example_with_a_table_works_on_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = [line for line, _ in EXAMPLES["data show"] if "table:" in line]
    rows = [f"{30 + i % 40},{i % 7},c{i % 3},{'ill' if i % 5 == 0 else 'well'}" for i in range(120)]
    (tmp_path / "visits.csv").write_text("\n".join(["age,pressure,clinic,diagnosis", *rows]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDRELA_CACHE", str(tmp_path / "cache"))
    assert main(shlex.split(line)) == 0


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("tune --trails 3", "--trails"),
        ("run --training.lrr 1", "training.lr"),
        ("gc", "STUDY_OR_STORE"),
        ("data shwo", "data shwo"),
        ("run --seed", "--seed"),
    ],
)
def test_a_wrong_line_is_seen(line: str, word: str) -> None:
    assert word in " ".join(faults(shlex.split(line)))
