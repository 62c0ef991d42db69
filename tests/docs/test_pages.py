"""What README and docs tell users to type works, and their links lead somewhere."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from fedrela_bench import models, plugins
from fedrela_bench.algorithms import ALGORITHMS
from fedrela_bench.cli import main
from fedrela_bench.relabelers import RELABELERS
from fedrela_bench.schedules import SCHEDULES
from tests.docs import pages as page_files
from tests.docs.lines import faults
from tests.docs.pages import DRY, MARKS, ROOT, SMALL, Block, anchors, blocks, commands, links, name_of, pages, prose

ALL = [block for page in pages() for block in blocks(page)]


def _is_run(block: Block) -> bool:
    return (block.kind in ("bash", "python") and "shown" not in block.marks) or "file" in block.marks


RUN = [page for page in pages() if any(map(_is_run, blocks(page)))]
KINDS = {"bash", "python", "yaml", "json", "text", "toml"}
Capture = pytest.CaptureFixture[str]


# blocks --------------------------------------------------------------------------------------------------------------


def test_every_block_says_what_it_is() -> None:
    assert len(ALL) > 40
    assert [block.place for block in ALL if block.kind not in KINDS] == []
    assert [block.place for block in ALL if not set(block.marks) <= set(MARKS)] == []
    assert [block.place for block in ALL if "shown" in block.marks and len(block.marks["shown"]) < 5] == []


@pytest.mark.parametrize("block", [b for b in ALL if b.kind == "bash"], ids=lambda block: block.place)
def test_commands_and_their_options_exist(block: Block) -> None:
    subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)
    wrong = {" ".join(words): found for words in commands(block.text) if (found := faults(words))}
    assert wrong == {}


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_commands_in_the_text_exist(page: Path) -> None:
    lines = re.findall(r"`(fedrela-bench [^`]+)`", prose(page).replace("\n", " "))
    wrong = {line: found for line in lines for words in commands(line) if (found := faults(words))}
    assert wrong == {}


@pytest.mark.parametrize("block", [b for b in ALL if b.kind in ("yaml", "json")], ids=lambda block: block.place)
def test_files_in_pages_are_what_they_say(block: Block, tmp_path: Path) -> None:
    if block.kind == "json":
        json.loads(block.text)
        return
    values = yaml.safe_load(block.text)
    assert isinstance(values, dict)
    if "parameters" in values:
        from fedrela_bench.study.spacefile import parse_space

        assert parse_space(values).parameters
    if "rows" in values:
        from fedrela_bench.reporting.spec import load_spec

        (tmp_path / "spec.yaml").write_text(block.text, encoding="utf-8")
        assert load_spec(tmp_path / "spec.yaml")[0].rows


def test_make_targets_exist() -> None:
    targets = {word for block in ALL if block.kind == "bash" for word in re.findall(r"^make (\w+)", block.text, re.M)}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {"demo", "test"} <= targets
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.M)] == []


# running -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of all pages: what a dry run has timed is not timed again."""
    return tmp_path_factory.mktemp("docs-cache")


@pytest.fixture(scope="session")
def small_study(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Gives the folder ``studies`` with the study of `SMALL`, computed by the first page that asks."""
    home = tmp_path_factory.mktemp("docs")

    def made() -> Path:
        if not (home / "studies").exists():
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(home)
                computed = ["--stage", "trunks,search,confirm"]
                assert main(["tune", "--dataset", "digits_lt", *shlex.split(SMALL), *computed]) == 0
        return home / "studies"

    return made


@pytest.fixture
def registered() -> Iterator[None]:
    """Names that a page registers are unknown to the next; those of the kit stay, which registers them once."""
    importlib.import_module("fedrela_bench.testing")
    plugins.activate(())
    known = (ALGORITHMS, RELABELERS, SCHEDULES, models._BUILDERS)
    before = [dict(names) for names in known]
    yield
    plugins.activate(())
    for names, old in zip(known, before, strict=True):
        names.clear()
        names.update(old)  # type: ignore[arg-type]


@pytest.mark.cluster
@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_what_a_page_runs_works(
    page: Path,
    small_study: Callable[[], Path],
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    monkeypatch.setenv("FEDRELA_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)
    own = [block for block in blocks(page) if _is_run(block)]
    if any("studies/digits_lt" in block.text or "small" in block.marks for block in own):
        (tmp_path / "studies").symlink_to(small_study())
    for block in own:
        _run(block, capsys)


def _run(block: Block, capsys: Capture) -> None:
    if "file" in block.marks:
        Path(block.marks["file"]).write_text(block.text, encoding="utf-8")
        return
    if block.kind == "python":
        exec(compile(block.text, block.place, "exec"), {"__name__": "__main__"})
        return
    for line in filter(None, (line.strip() for line in block.text.replace("\\\n", " ").splitlines())):
        assert line.startswith("fedrela-bench "), f"{block.place}: mark what is not run: {line}"
        (words,) = commands(line)
        more = [SMALL] if "small" in block.marks else [block.marks.get("with", "")]
        more += [DRY.get(words[0], "")] if "dry" in block.marks else []
        code = main([*words, *shlex.split(" ".join(more))])
        out = capsys.readouterr()
        assert code == 0, f"{block.place}: {line}\n{out.out}{out.err}"
        assert out.out
        assert block.marks.get("says", "") in out.out, f"{block.place}: {line}"


# links ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [*pages(), *sorted(ROOT.glob("reports/**/*.md"))], ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        target, _, place = link.partition("#")
        if re.match(r"https?:|mailto:", link):
            continue
        there = page if not target else (page.parent / target)
        inside = there.suffix != ".md" or not place or (there.exists() and place in anchors(there))
        if not there.exists() or not inside or (page.parent != ROOT and ROOT / "docs" not in there.resolve().parents):
            broken.append(link)
    assert broken == []


# the reader of pages itself ------------------------------------------------------------------------------------------


def test_marks_and_commands_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b`: c\n\n<!-- with: --x 1 -->\n<!-- says: words -->\n\n```bash\na \\\n  b  # c\n```\n\n```text\n```\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(page_files, "ROOT", tmp_path)
    first, second = blocks(page)
    assert (first.kind, first.marks, first.line) == ("bash", {"with": "--x 1", "says": "words"}, 6)
    assert second.marks == {}
    assert anchors(page) == {"a-b-c"}
    assert list(commands("x fedrela-bench run --a 'b c' > f # d\nfedrela-bench ui \\\n  s & sleep 1")) == [
        ["run", "--a", "b c"],
        ["ui", "s"],
    ]


def test_no_page_names_a_place_of_one_machine() -> None:
    home = os.path.expanduser("~")  # noqa: PTH111
    assert [name_of(page) for page in pages() if home != "/" and f"{home}/" in page.read_text(encoding="utf-8")] == []
