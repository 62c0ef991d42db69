"""A `Table` as Markdown, CSV and LaTeX; equal tables give equal bytes."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from fedrela_bench.errors import ConfigError
from fedrela_bench.reporting.table import DASH, Cell, Column, Gain, Measure, Table

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "τ": r"$\tau$",
    "±": r"$\pm$",
    "Δ": r"$\Delta$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "−": "$-$",
    "–": "--",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "§": r"\S{}",
    "¶": r"\P{}",
}


def cell_text(cell: Cell) -> str:
    """A cell for readers: two digits, ``mean ± std``, ``gain [low, high]``, ``gain`` of few seeds, a dash for none."""
    if cell is None:
        return DASH
    if isinstance(cell, Measure):
        spread = "" if cell.n is None else f" ± {DASH if cell.std is None else f'{cell.std:.2f}'}"
        return f"{cell.value:.2f}{spread}{cell.marks}"
    if isinstance(cell, Gain):
        interval = "" if cell.low is None or cell.high is None else f" [{cell.low:+.2f}, {cell.high:+.2f}]"
        return f"{cell.value:+.2f}{interval}{cell.marks}"
    return str(cell)


def markdown(table: Table, pictures: Sequence[tuple[str, str]] = ()) -> str:
    """GitHub-flavoured Markdown: title, aligned table, facts, notes, links to the figures.

    Args:
        table: what to render.
        pictures: (file name beside the Markdown, caption) of each figure.
    """
    grid = [[_escape_markdown(column.title) for column in table.columns]]
    grid += [[_escape_markdown(cell_text(cell)) for cell in row] for row in table.rows]
    widths = [max(3, *(len(row[place]) for row in grid)) for place in range(len(table.columns))]
    rules = [f"{'-' * (width - 1)}{'-' if _is_text(column) else ':'}" for width, column in _zip(widths, table)]
    lines = [f"## {_escape_markdown(table.title)}", "", _row(grid[0], widths, table), _row(rules, widths, table)]
    lines += [_row(row, widths, table) for row in grid[1:]]
    lines += ["", *(f"- {name}: {_escape_markdown(value)}" for name, value in table.facts)]
    if table.notes:
        lines += ["", *(f"{_escape_markdown(note)}  " for note in table.notes)]
    for name, caption in pictures:
        lines += ["", f"![{_escape_markdown(caption)}]({quote(name)})"]
    return "\n".join(lines) + "\n"


def comma_separated(table: Table) -> str:
    """CSV with every digit: spread, interval and n in columns of their own, and the facts in every row."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    facts = [(name.replace(" ", "_"), value) for name, value in table.facts]
    header = [name for column in table.columns for name in _csv_names(column)]
    writer.writerow([*header, *(name for name, _ in facts)])
    for row in table.rows:
        values = [value for column, cell in zip(table.columns, row, strict=True) for value in _csv_values(column, cell)]
        writer.writerow([*values, *(value for _, value in facts)])
    return out.getvalue()


def latex(table: Table) -> str:
    """A table over both columns for the booktabs package: the facts as comments above, one visible note below."""
    columns = "".join("l" if _is_text(column) else "r" for column in table.columns)
    lines = ["% Needs \\usepackage{booktabs}.", *(f"% {name}: {_one_line(value)}" for name, value in table.facts)]
    lines += [r"\begin{table*}[t]", r"\centering", r"\small", r"\setlength{\tabcolsep}{4pt}"]
    lines += [rf"\caption{{{escape_latex(table.title)}}}"]
    lines += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    lines += [_latex_row([column.title for column in table.columns]), r"\midrule"]
    lines += [_latex_row([cell_text(cell) for cell in row]) for row in table.rows]
    lines += [r"\bottomrule", r"\end{tabular}"]
    below = " ".join(_one_line(text) for text in (table.summary, *table.notes) if text)
    lines += [rf"\par\smallskip\footnotesize {escape_latex(below)}"] if below else []
    return "\n".join([*lines, r"\end{table*}"]) + "\n"


def escape_latex(text: str) -> str:
    """Text with every character that LaTeX reads as a command made printable."""
    return "".join(_LATEX.get(character, character) for character in text)


RENDERERS: dict[str, Callable[[Table], str]] = {"md": markdown, "csv": comma_separated, "tex": latex}


def check_formats(text: str) -> list[str]:
    """The formats of a comma-separated list.

    Raises:
        ConfigError: an unknown format, or none.
    """
    formats = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in formats if name not in RENDERERS]
    if unknown or not formats:
        raise ConfigError(f"--format {text}: unknown or no format; choose from {', '.join(RENDERERS)}")
    return list(dict.fromkeys(formats))


def write_table(
    table: Table, folder: Path, stem: str, formats: Sequence[str], pictures: Sequence[tuple[str, str]] = ()
) -> list[Path]:
    """Write ``<folder>/<stem>.<format>`` for each format, the Markdown with its figures; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in formats:
        path = folder / f"{stem}.{name}"
        text = markdown(table, pictures) if name == "md" else RENDERERS[name](table)
        path.write_text(text, encoding="utf-8", newline="\n")
        written.append(path)
    return written


def _is_text(column: Column) -> bool:
    return column.kind == "text"


def _zip(widths: list[int], table: Table) -> Iterator[tuple[int, Column]]:
    return zip(widths, table.columns, strict=True)


def _row(cells: list[str], widths: list[int], table: Table) -> str:
    padded = [
        cell.ljust(width) if _is_text(column) else cell.rjust(width)
        for cell, (width, column) in zip(cells, _zip(widths, table), strict=True)
    ]
    return f"| {' | '.join(padded)} |"


def _escape_markdown(text: str) -> str:
    for character in "\\|*<`":
        text = text.replace(character, f"\\{character}")
    return _one_line(text)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _csv_names(column: Column) -> list[str]:
    if column.kind == "measure":
        return [column.key, f"{column.key}_std", f"{column.key}_n", f"{column.key}_marks"]
    if column.kind == "gain":
        return [column.key, f"{column.key}_low", f"{column.key}_high", f"{column.key}_n"]
    return [column.key]


def _csv_values(column: Column, cell: Cell) -> list[str]:
    if column.kind == "measure":
        measure = cell if isinstance(cell, Measure) else None
        return [*_full(measure, "value", "std", "n"), measure.marks if measure else ""]
    if column.kind == "gain":
        return _full(cell if isinstance(cell, Gain) else None, "value", "low", "high", "n")
    if isinstance(cell, Measure | Gain):
        return _full(cell, "value")
    return ["" if cell is None else str(cell)]


def _full(cell: Measure | Gain | None, *names: str) -> list[str]:
    values = [getattr(cell, name) if cell else None for name in names]
    return ["" if value is None else repr(value) for value in values]


def _latex_row(cells: list[str]) -> str:
    return " & ".join(escape_latex(cell) for cell in cells) + r" \\"
