"""A `Table` in the formats of a report; equal tables give equal bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fedrela_bench.errors import ConfigError
from fedrela_bench.files import write_atomically
from fedrela_bench.reporting.cells import cell_text, table_json
from fedrela_bench.reporting.commas import comma_separated
from fedrela_bench.reporting.html import html
from fedrela_bench.reporting.latex import escape_latex, latex
from fedrela_bench.reporting.markdown import markdown
from fedrela_bench.reporting.table import Table
from fedrela_bench.reporting.terminal import on_stdout, terminal

__all__ = [
    "FORMATS",
    "RENDERERS",
    "cell_text",
    "check_formats",
    "comma_separated",
    "escape_latex",
    "html",
    "latex",
    "markdown",
    "on_stdout",
    "table_json",
    "terminal",
    "write_table",
]

RENDERERS: dict[str, Callable[[Table], str]] = {"md": markdown, "csv": comma_separated, "tex": latex, "html": html}
FORMATS = tuple(RENDERERS)
"""What a report is written in unless told otherwise."""


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
    table: Table,
    folder: Path,
    stem: str,
    formats: Sequence[str],
    pictures: Sequence[tuple[str, str]] = (),
    left_out: Sequence[str] = (),
) -> list[Path]:
    """Write ``<folder>/<stem>.<format>`` for each format; returns the paths.

    Args:
        table: what to render.
        folder: made where it is missing; holds the figures.
        stem: of the file names.
        formats: of `RENDERERS`.
        pictures: (file name, caption) of each figure: linked in Markdown, inside the HTML.
        left_out: a line for every figure that is not there, for both.
    """
    written = []
    for name in formats:
        path = folder / f"{stem}.{name}"
        write_atomically(path, _text(table, name, folder, pictures, left_out).encode())
        written.append(path)
    return written


def _text(table: Table, name: str, folder: Path, pictures: Sequence[tuple[str, str]], left_out: Sequence[str]) -> str:
    if name == "md":
        return markdown(table, pictures, left_out)
    return html(table, pictures, folder, left_out) if name == "html" else RENDERERS[name](table)
