"""A `Table` as GitHub-flavoured Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from fedrela_bench.reporting.cells import cell_text, full_title, gains_table, one_line
from fedrela_bench.reporting.standing import standings
from fedrela_bench.reporting.table import Column, Table


def markdown(table: Table, pictures: Sequence[tuple[str, str]] = (), left_out: Sequence[str] = ()) -> str:
    """Title, aligned table with the best in bold, facts, notes, gains with both intervals, links to the figures.

    Args:
        table: what to render.
        pictures: (file name beside the Markdown, caption) of each figure.
        left_out: a line for every figure that is not there.
    """
    lines = [f"## {_escape(table.title)}", "", *_grid(table)]
    lines += ["", *(f"- {name}: {_escape(value)}" for name, value in table.facts)]
    if table.notes:
        lines += ["", *(f"{_escape(note)}  " for note in table.notes)]
    gains = gains_table(table)
    if gains is not None:
        lines += ["", f"### {_escape(gains.title)}", "", *_grid(gains)]
    for name, caption in pictures:
        lines += ["", f"![{_escape(caption)}]({quote(name)})"]
    if left_out:
        lines += ["", *(f"- {_escape(text)}" for text in left_out)]
    return "\n".join(lines) + "\n"


def _grid(table: Table) -> list[str]:
    best = standings(table)
    grid = [[_escape(full_title(column)) for column in table.columns]]
    for number, row in enumerate(table.rows):
        texts = [_escape(cell_text(cell)) for cell in row]
        grid.append([f"**{text}**" if best.get((number, at)) == "best" else text for at, text in enumerate(texts)])
    widths = [max(3, *(len(row[place]) for row in grid)) for place in range(len(table.columns))]
    rules = [f"{'-' * (width - 1)}{'-' if column.kind == 'text' else ':'}" for width, column in _zip(widths, table)]
    return [_row(row, widths, table) for row in (grid[0], rules, *grid[1:])]


def _zip(widths: list[int], table: Table) -> list[tuple[int, Column]]:
    return list(zip(widths, table.columns, strict=True))


def _row(cells: list[str], widths: list[int], table: Table) -> str:
    padded = [
        cell.ljust(width) if column.kind == "text" else cell.rjust(width)
        for cell, (width, column) in zip(cells, _zip(widths, table), strict=True)
    ]
    return f"| {' | '.join(padded)} |"


def _escape(text: str) -> str:
    for character in "\\|*<`":
        text = text.replace(character, f"\\{character}")
    return one_line(text)
