"""The HTML report: one file, nothing from elsewhere, nothing that a name could smuggle in."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedrela_bench.errors import ConfigError
from fedrela_bench.reporting.html import html
from fedrela_bench.reporting.table import Cells
from tests.reporting.samples import GROUPED, HOSTILE, PLAIN

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """Elements with their attributes and text; fails where they are not nested properly."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


@pytest.fixture
def page(tmp_path: Path) -> Page:
    (tmp_path / "a.png").write_bytes(PIXEL)
    (tmp_path / "b.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    return Page(html(GROUPED, [("a.png", f"curves {HOSTILE}"), ("b.svg", "front")], tmp_path))


def test_names_stay_text(page: Page) -> None:
    assert len(page.all("script")) == 1
    assert HOSTILE in page.texts["h1"][0]
    assert HOSTILE in page.texts["th"]
    assert HOSTILE in page.texts["li"]
    assert HOSTILE in page.texts["dd"]
    assert page.all("img")[0]["alt"] == f"curves {HOSTILE}"
    assert not page.all("input")


def test_nothing_is_asked_of_any_server(page: Page) -> None:
    links = [value for _, attributes in page.found for name, value in attributes.items() if name in ("src", "href")]
    assert len(links) == 2
    assert all(str(link).startswith("data:image/") for link in links)
    assert not any(tag in ("link", "iframe", "object") for tag, _ in page.found)
    policy = next(m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert str(policy).startswith("default-src 'none'")
    digest = base64.b64encode(hashlib.sha256(page.texts["script"][0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in str(policy)
    assert "url(" not in page.texts["style"][0] and "@import" not in page.texts["style"][0]


def test_the_figures_are_inside(page: Page) -> None:
    source = str(page.all("img")[0]["src"])
    assert base64.b64decode(source.removeprefix("data:image/png;base64,")) == PIXEL
    assert str(page.all("img")[1]["src"]).startswith("data:image/svg+xml;base64,")


def test_tables_can_be_read_aloud_on_a_phone_and_on_paper(page: Page) -> None:
    scopes = [attributes.get("scope") for attributes in page.all("th")]
    gains = 3
    assert scopes.count("row") == len(GROUPED.rows) + gains
    assert scopes.count("colgroup") == 2
    assert None not in scopes
    assert [a.get("colspan") for a in page.all("th") if a.get("scope") == "colgroup"] == ["2", "2"]
    assert len(page.all("caption")) == len(page.all("table")) == 2
    assert all(a.get("alt") for a in page.all("img"))
    assert page.all("html") == [{"lang": "en"}]
    assert any(a.get("name") == "viewport" for a in page.all("meta"))
    style = page.texts["style"][0]
    assert "@media print" in style and "max-width: 40rem" in style and "overflow-x: auto" in style
    assert next(a for a in page.all("div") if a.get("role") == "region")["tabindex"] == "0"


def test_best_and_second_are_shown(page: Page) -> None:
    assert page.texts["strong"] == ["70.00 ± 0.50", "62.00 ± 1.25", "70.00 ± 0.50"]
    text = html(GROUPED)
    assert re.findall(r'<span class="second">(.*?)</span>', text) == ["61.00 ± 1.25", "69.00 ± 0.50"]


def test_a_sign_stays_on_the_line_of_what_it_belongs_to() -> None:
    rows = (replace_label(PLAIN.rows[0], "fedavg ‡§"), *PLAIN.rows[1:])
    text = html(replace(PLAIN, rows=rows))
    assert "Δ\u00a0tail</th>" in text and "fedavg\u00a0‡§</th>" in text


def replace_label(row: Cells, label: str) -> Cells:
    return label, *row[1:]


def test_the_page_says_which_figures_are_left_out_and_why() -> None:
    page = Page(html(PLAIN, (), None, [f"figure tau is left out: {HOSTILE}"]))
    assert "Figures" in page.texts["h2"]
    assert page.texts["li"][-1] == f"figure tau is left out: {HOSTILE}"
    assert "Figures" not in Page(html(PLAIN)).texts.get("h2", [])


def test_cells_sort_by_their_whole_value_and_dashes_have_none() -> None:
    text = html(PLAIN)
    assert f'data-value="{1 / 3!r}"' in text
    assert '<td data-value="">–</td>' in text


def test_the_same_table_gives_the_same_page(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PIXEL)
    pictures = [("a.png", "curves")]
    assert html(GROUPED, pictures, tmp_path) == html(GROUPED, pictures, tmp_path)


def test_a_figure_that_is_no_picture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF")
    with pytest.raises(ConfigError, match=r"a\.pdf: a page holds figures of \.png"):
        html(PLAIN, [("a.pdf", "curves")], tmp_path)
