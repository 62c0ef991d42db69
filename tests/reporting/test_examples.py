"""The example reports: what their page says is in them, and nothing of the machine that made them is."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import typer

from fedrela_bench.cli import app
from fedrela_bench.study.space import load_space

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "examples"
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")
SCRIPT = FOLDER / "make.sh"
REPORTS = sorted(path for path in FOLDER.glob("*/**/*") if path.suffix in (".md", ".csv", ".html"))
LARGEST = 1_200_000


def commands() -> list[list[str]]:
    """Words of every command of the program on the page and in the script."""
    blocks = "\n".join([*re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL), SCRIPT.read_text(encoding="utf-8")])
    lines = blocks.replace("\\\n", " ").replace('"$bench"', "fedrela-bench").splitlines()
    return [shlex.split(line) for line in lines if line.strip().startswith("fedrela-bench ")]


def test_options_of_the_commands_exist_and_their_files_are_there() -> None:
    verbs = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    found = commands()
    assert {words[1] for words in found} == {"tune", "report"}
    for words in found:
        known = {name for param in verbs[words[1]].params for name in (*param.opts, *param.secondary_opts)}
        assert {word for word in words if word.startswith("--") and "." not in word} <= known
        for name in (word for word in words if word.endswith(".yaml")):
            assert (FOLDER.parents[1] / name).is_file(), name
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_spaces_are_right(path: Path) -> None:
    assert load_space(path).seeds


def test_reports_are_small_and_of_no_machine() -> None:
    assert {path.suffix for path in REPORTS} == {".md", ".csv", ".html"}
    for path in REPORTS:
        text = path.read_text(encoding="utf-8")
        assert path.stat().st_size < LARGEST, path
        assert re.search(r"(?<![\w.:])/(tmp|work|root|home|Users)/", text) is None, path


def test_links_lead_somewhere() -> None:
    for path in (FOLDER / "README.md", *(path for path in REPORTS if path.suffix == ".md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).is_file(), target


def test_gains_on_the_page_are_those_of_the_reports() -> None:
    reports = " ".join(path.read_text(encoding="utf-8") for path in REPORTS if path.suffix == ".md")
    gains = re.findall(r"[+-]\d+\.\d\d\b", PAGE)
    assert len(gains) >= 8
    assert [gain for gain in gains if gain not in reports] == []
