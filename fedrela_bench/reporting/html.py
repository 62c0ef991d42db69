"""A `Table` and its figures as one HTML file that asks nothing of any server."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from fedrela_bench.errors import ConfigError
from fedrela_bench.intervals import interval_text
from fedrela_bench.reporting.cells import cell_text, gains_table, spans
from fedrela_bench.reporting.gridnotes import MARKS
from fedrela_bench.reporting.page import SCRIPT, STYLE
from fedrela_bench.reporting.standing import Standing, standings
from fedrela_bench.reporting.table import Cell, Column, Gain, Measure, Table

MEDIA = {".png": "image/png", ".svg": "image/svg+xml", ".jpg": "image/jpeg"}
TAGS: dict[Standing, str] = {"best": "<strong>%s</strong>", "second": '<span class="second">%s</span>'}
LEGEND: dict[Standing, str] = {"best": "bold: best of its column", "second": "underlined: second"}


def html(
    table: Table,
    pictures: Sequence[tuple[str, str]] = (),
    folder: Path | None = None,
    left_out: Sequence[str] = (),
) -> str:
    """A page: table with the best bold and the second underlined, notes, gains with intervals, figures, facts.

    Args:
        table: what to render.
        pictures: (file name, caption) of each figure; the picture itself goes into the page.
        folder: where the figures are.
        left_out: a line for every figure that is not there.

    Raises:
        ConfigError: a figure that a page cannot hold.
    """
    gains = gains_table(table)
    parts = [
        *_head(table),
        f"<h1>{escape(table.title)}</h1>",
        *([f"<p>{escape(table.summary)}</p>"] if table.summary else []),
        *_table(table, _legend(table)),
        *_notes(table.notes),
        *(["<h2>Paired gains</h2>", *_table(gains, "Mean difference, pairs (n), intervals")] if gains else []),
        *_figures(pictures, folder or Path(), left_out),
        *_facts(table),
        f"</main>\n<script>{SCRIPT}</script>\n</body>\n</html>",
    ]
    return "\n".join(parts) + "\n"


def _head(table: Table) -> Iterator[str]:
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    yield f"<title>{escape(table.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>"


def _legend(table: Table) -> str:
    found = set(standings(table).values())
    words = [text for name, text in LEGEND.items() if name in found]
    return "; ".join([f"{len(table.rows)} rows", *words])


def _table(table: Table, caption: str) -> Iterator[str]:
    standing = standings(table)
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">'
    yield f"<table>\n<caption>{escape(caption)}</caption>\n<thead>"
    yield from _groups(table)
    yield f"<tr>{''.join(_heading(column) for column in table.columns)}</tr>\n</thead>\n<tbody>"
    for number, row in enumerate(table.rows):
        pairs = enumerate(zip(table.columns, row, strict=True))
        cells = [_cell(at, column, cell, standing.get((number, at))) for at, (column, cell) in pairs]
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody>\n</table>\n</div>"


def _groups(table: Table) -> Iterator[str]:
    found = spans(table)
    if found:
        cells = (
            f'<th scope="colgroup" colspan="{count}">{escape(group)}</th>' if group else f'<td colspan="{count}"></td>'
            for group, count in found
        )
        yield f"<tr>{''.join(cells)}</tr>"


def _heading(column: Column) -> str:
    return f'<th scope="col"{_kind(column)}>{_joined(escape(column.title))}</th>'


def _joined(text: str) -> str:
    """Text whose lines never end between a sign and what it belongs to."""
    return re.sub(rf"(?<=Δ) | (?=[{MARKS}])", "\u00a0", text)


def _kind(column: Column) -> str:
    return ' class="text"' if column.kind == "text" else ""


def _cell(place: int, column: Column, cell: Cell, standing: Standing | None) -> str:
    text = _interval_below(cell) if isinstance(cell, Gain) else escape(cell_text(cell))
    text = text if standing is None else TAGS[standing] % text
    if place == 0:
        return f'<th scope="row" class="text">{_joined(text)}</th>'
    return f"<td{_kind(column)}{_sort_value(cell)}>{text}</td>"


def _interval_below(gain: Gain) -> str:
    interval = interval_text(gain.low, gain.high)
    below = f'<span class="interval">{interval}</span>' if interval else ""
    return f"{gain.value:+.2f}{gain.marks}{below}"


def _sort_value(cell: Cell) -> str:
    if isinstance(cell, Measure | Gain):
        return f' data-value="{cell.value!r}"'
    return ' data-value=""' if cell is None else ""


def _notes(notes: Sequence[str]) -> Iterator[str]:
    if notes:
        yield '<ul class="notes">'
        yield from (f"<li>{escape(note)}</li>" for note in notes)
        yield "</ul>"


def _figures(pictures: Sequence[tuple[str, str]], folder: Path, left_out: Sequence[str]) -> Iterator[str]:
    if pictures or left_out:
        yield "<h2>Figures</h2>"
    for name, caption in pictures:
        media = MEDIA.get(Path(name).suffix.lower())
        if media is None:
            raise ConfigError(f"{name}: a page holds figures of {', '.join(MEDIA)} only")
        data = base64.b64encode((folder / name).read_bytes()).decode("ascii")
        yield f'<figure>\n<img alt="{escape(caption)}" src="data:{media};base64,{data}">'
        yield f"<figcaption>{escape(caption)}</figcaption>\n</figure>"
    yield from _notes(left_out)


def _facts(table: Table) -> Iterator[str]:
    if table.facts:
        yield "<h2>How to read the numbers</h2>\n<dl>"
        yield from (f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in table.facts)
        yield "</dl>"
