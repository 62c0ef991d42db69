"""The page on own data: its Python runs and every command of it is run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fedrela_bench.cli import main

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.S)
SHELL = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.S) for line in block.splitlines()]
SHOWN = {"data show": "clinic 4", "run": "overall", "tune": "data: clients are those", "data get": ": ready"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory in which the page's Python has run."""
    place = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for code in PYTHON:
            exec(compile(code, "data.md", "exec"), {})
    return place


def test_the_page_has_commands() -> None:
    assert len(PYTHON) >= 3
    assert len(SHELL) >= 10
    assert all(line.startswith("fedrela-bench ") for line in SHELL)
    assert {"table:", "npz:", "folder:"} <= {kind for line in SHELL for kind in re.findall(r"\w+:", line)}


@pytest.mark.parametrize("line", SHELL)
def test_every_command_runs(
    line: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    words = shlex.split(line)[1:]
    assert main(words) == 0, capsys.readouterr().err
    text = capsys.readouterr().out
    verb = " ".join(words[:2]) if words[0] == "data" else words[0]
    assert SHOWN[verb] in text


def test_fields_that_the_page_names_exist() -> None:
    from fedrela_bench.config import field_names

    for name in set(re.findall(r"\b(?:data|federation|training|relabel)\.[a-z_]+", PAGE)):
        assert name in field_names(), name
