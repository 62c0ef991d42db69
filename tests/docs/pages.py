"""README and docs as tests read them: fenced blocks with their marks, links and headings.

A block of a page is run unless a comment before it says otherwise (readers do not see comments):

- ``<!-- shown: REASON -->``: not run, since it needs data, a GPU, a cluster, a server or minutes; its commands and
  their options must exist all the same.
- ``<!-- with: WORDS -->``: run with these words after every command, such as a smaller size.
- ``<!-- dry -->``: run with ``--dry-run`` after ``tune`` and ``--print-config`` after ``run``.
- ``<!-- small -->``: run with `SMALL` after every command; the study that it makes is shared by all pages.
- ``<!-- file: NAME -->``: the block is saved under this name for the commands after it.
- ``<!-- says: WORDS -->``: the output of every command holds these words.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SMALL = (
    "--algorithm fedavg --trials 2 --seeds 1 --federation.rounds 6 --federation.clients 3 --log-models none "
    "--out studies/digits_lt"
)
"""Size of the study that pages talk of."""
DRY = {"tune": "--dry-run", "run": "--print-config"}
"""What makes a verb check its input and stop."""
MARKS = ("shown", "with", "dry", "small", "file", "says")
FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>[\w-]*)[^\n]*\n(?P<text>.*?)^(?P=indent)```\s*$", re.M | re.S)
COMMENT = re.compile(r"<!-- (\w+)(?:: (.*?))? -->")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: Path
    line: int
    kind: str
    text: str
    marks: dict[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Where it stands."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@cache
def pages() -> list[Path]:
    """The README and every page of the docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    """A page's name in a test's id."""
    return str(page.relative_to(ROOT))


@cache
def blocks(page: Path) -> list[Block]:
    """Every fenced block, in order."""
    text = page.read_text(encoding="utf-8")
    return [_block(page, text, found) for found in FENCE.finditer(text)]


def _block(page: Path, text: str, found: re.Match[str]) -> Block:
    before = text[: found.start()]
    marks: dict[str, str] = {}
    for line in reversed(before.rstrip().splitlines()):
        comment = COMMENT.fullmatch(line.strip())
        if comment is None:
            break
        marks[comment[1]] = comment[2] or ""
    return Block(page, before.count("\n") + 1, found["kind"], found["text"], marks)


def prose(page: Path) -> str:
    """A page without its fenced blocks and comments."""
    return re.sub(r"<!--.*?-->", "", FENCE.sub("", page.read_text(encoding="utf-8")), flags=re.S)


def links(page: Path) -> Iterator[str]:
    """Targets of the links and pictures of a page."""
    yield from re.findall(r"\]\(([^()\s]+)\)", prose(page))


@cache
def anchors(page: Path) -> set[str]:
    """Places inside a page, spelt as the site and code hosts spell them."""
    titles = re.findall(r"^#+ (.+?)(?: \{.*\})?$", prose(page), re.M)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in plain}


def commands(text: str) -> Iterator[list[str]]:
    """The words of every ``fedrela-bench`` command in shell text, without the program's name."""
    joined = text.replace("\\\n", " ")
    for line in joined.splitlines():
        scanner = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
        scanner.whitespace_split, scanner.commenters = True, "#"
        words = list(scanner)
        if "fedrela-bench" not in words:
            continue
        own = words[words.index("fedrela-bench") + 1 :]
        ends = [place for place, word in enumerate(own) if set(word) <= set("|&;<>()")]
        yield own[: ends[0]] if ends else own
