"""The README's Python runs, its commands exist, and its links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)
SHELL = "\n".join(re.findall(r"```bash\n(.*?)```", README, re.S))
COMMANDS = [line.split("#")[0].strip() for line in SHELL.splitlines() if line.startswith("fedrela-bench ")]


@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_python_blocks_run(code: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})


def _verbs() -> dict[str, set[str]]:
    import typer

    from fedrela_bench.cli import app

    group = typer.main.get_command(app)
    known: dict[str, set[str]] = {}
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", {})
        for path, leaf in {f"{name} {sub}": item for sub, item in inner.items()}.items() or [(name, command)]:
            known[path] = {option for parameter in leaf.params for option in parameter.opts}
    return known


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_and_their_options_exist(line: str) -> None:
    known = _verbs()
    words = shlex.split(line)[1:]
    verb = " ".join(words[:2]) if " ".join(words[:2]) in known else words[0]
    assert verb in known, f"no verb {verb}"
    options = {word for word in words if word.startswith("--") and "." not in word}
    assert options <= known[verb], f"{verb} has no {sorted(options - known[verb])}"


def test_every_model_is_named() -> None:
    from fedrela_bench.models import MODEL_NAMES

    assert [name for name in MODEL_NAMES if f"`{name}`" not in README] == []


def test_the_two_commands_are_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", SHELL, re.M):
        assert re.search(rf"^{target}:", makefile, re.M)
    assert len(COMMANDS) >= 5
    assert len(BLOCKS) >= 2


def test_local_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("reports/**/*.md")]:
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
