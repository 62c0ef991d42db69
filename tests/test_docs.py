"""What the documentation tells users to type exists."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import typer
import yaml

from fedrela_bench.cli import app

DOCS = Path(__file__).resolve().parents[1] / "docs"
TEXT = (DOCS / "cluster.md").read_text(encoding="utf-8")


def options(verb: str) -> set[str]:
    group = typer.main.get_command(app)
    command = group.commands[verb]  # type: ignore[attr-defined]
    return {name for param in command.params for name in (*param.opts, *param.secondary_opts)}


def commands() -> list[tuple[str, str]]:
    joined = TEXT.replace("\\\n", " ")
    joined = re.sub(r"\n {4}(--)", r" \1", joined)
    found = re.findall(r"fedrela-bench (tune|gc|sync|data)\b([^\n`]*)", joined)
    assert len(found) >= 5
    return found


@pytest.mark.parametrize(("verb", "rest"), commands())
def test_every_option_of_every_command_exists(verb: str, rest: str) -> None:
    used = set(re.findall(r"--[a-z-]+", rest))
    assert verb == "data" or used <= options(verb)


def test_options_named_in_passing_exist() -> None:
    known = options("tune") | options("gc")
    for name in re.findall(r"`(--[a-z-]+)", TEXT):
        assert name in known or name == "--signal", name


def test_examples_are_yaml_and_shell() -> None:
    blocks = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL)
    assert {kind for kind, _ in blocks} == {"bash", "yaml"}
    for kind, text in blocks:
        if kind == "yaml":
            assert isinstance(yaml.safe_load(text), dict)
        else:
            subprocess.run(["bash", "-n"], input=text, text=True, check=True)
