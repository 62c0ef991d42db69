"""The site is built without a warning from every page, and shows without the network."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; broken links, places that do not exist and pages outside the menu are errors."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    seen: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    listener = Listener(logging.WARNING)
    logging.getLogger("mkdocs").addHandler(listener)
    try:
        config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder))
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
    finally:
        logging.getLogger("mkdocs").removeHandler(listener)
    assert seen == []
    return folder


def test_every_page_is_built(site: Path) -> None:
    pages = (path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md"))
    names = {path.with_name("index") if path.stem == "README" else path.with_suffix("") for path in pages}
    assert len(names) > 8
    assert [str(name) for name in names if not (site / f"{name}.html").is_file()] == []


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    loaded = r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["'](?:https?:)?//|<link\b[^>]*\bhref=["'](?:https?:)?//"""
    for page in site.rglob("*.html"):
        assert re.findall(loaded, page.read_text(encoding="utf-8")) == [], page.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8"))


def test_marks_are_not_seen(site: Path) -> None:
    for page in site.rglob("*.html"):
        shown = re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.S)
        assert not re.search(r"(?:&lt;|<)!-- (?:shown|with|dry|small|file|says)", shown), page.name
