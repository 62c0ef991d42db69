"""A `Table` as LaTeX for the booktabs package."""

from __future__ import annotations

from collections.abc import Iterator

from fedrela_bench.reporting.cells import cell_text, gains_table, one_line, spans
from fedrela_bench.reporting.standing import Standing, standings
from fedrela_bench.reporting.table import Cell, Gain, Table

PACKAGES = ("booktabs", "graphicx")
GREEK = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu"),
    *("xi", "omicron", "pi", "rho", "varsigma", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega"),
)
SIGNS = {
    **{"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}"},
    **{"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}"},
    **{"|": r"\textbar{}", "±": r"$\pm$", "×": r"$\times$", "·": r"$\cdot$", "−": "$-$", "–": "--", "—": "---"},
    **{"†": r"$\dagger$", "‡": r"$\ddagger$", "§": r"\S{}", "¶": r"\P{}", "…": r"\ldots{}", "→": r"$\to$"},
    **{"≤": r"$\leq$", "≥": r"$\geq$", "≈": r"$\approx$", "∞": r"$\infty$", "Δ": r"$\Delta$", "Σ": r"$\Sigma$"},
    **{chr(0x3B1 + place): rf"$\{name}$" for place, name in enumerate(GREEK)},
    "ο": "o",
}
FRAMES: dict[Standing, str] = {"best": r"\textbf{%s}", "second": r"\underline{%s}"}
FIT = r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%"
"""As wide as it is, but no wider than the text."""


def latex(table: Table) -> str:
    """A table over both columns, best bold and second underlined: facts and bootstrap intervals as comments above.

    One visible note stands below. Rows are narrowed to the width of the text where they are wider.
    """
    columns = "".join("l" if column.kind == "text" else "r" for column in table.columns)
    packages = " ".join(rf"\usepackage{{{name}}}" for name in PACKAGES)
    lines = [f"% Needs {packages}.", *_comments(table)]
    lines += [r"\begin{table*}[t]", r"\centering", r"\small", r"\setlength{\tabcolsep}{4pt}"]
    lines += [rf"\caption{{{escape_latex(table.title)}}}", FIT, rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    lines += [*_groups(table), _row([escape_latex(column.title) for column in table.columns]), r"\midrule"]
    lines += [*_rows(table), r"\bottomrule", r"\end{tabular}}"]
    below = " ".join(one_line(text) for text in (table.summary, *table.notes) if text)
    lines += [rf"\par\smallskip\footnotesize {escape_latex(below)}"] if below else []
    return "\n".join([*lines, r"\end{table*}"]) + "\n"


def escape_latex(text: str) -> str:
    """Text with every character that LaTeX reads as a command made printable."""
    return "".join(SIGNS.get(character, character) for character in text)


def _comments(table: Table) -> Iterator[str]:
    yield from (f"% {name}: {one_line(value)}" for name, value in table.facts)
    gains = gains_table(table)
    for row in gains.rows if gains is not None else ():
        label, metric, gain, count, _, bootstrap = map(cell_text, row)
        yield f"% bootstrap, {one_line(label)}, {one_line(metric)}: {gain} {bootstrap} (n = {count})"


def _groups(table: Table) -> Iterator[str]:
    """The line of headings over several columns, and the rules below them."""
    found = spans(table)
    if not found:
        return
    texts, rules, first = list[str](), list[str](), 1
    for group, count in found:
        texts.append(rf"\multicolumn{{{count}}}{{c}}{{{escape_latex(group)}}}" if group else " & ".join([""] * count))
        rules += [rf"\cmidrule(lr){{{first}-{first + count - 1}}}"] if group else []
        first += count
    yield " & ".join(texts) + r" \\"
    yield " ".join(rules)


def _rows(table: Table) -> Iterator[str]:
    standing, first = standings(table), [block[0] for block in table.blocks() if block]
    for number, row in enumerate(table.rows):
        if number in first[1:]:
            yield r"\midrule"
        yield _row([_cell(cell, standing.get((number, place))) for place, cell in enumerate(row)])


def _cell(cell: Cell, standing: Standing | None) -> str:
    text = escape_latex(cell_text(cell))
    if isinstance(cell, Gain):
        text = text.replace("-", "$-$")
    return text if standing is None else FRAMES[standing] % text


def _row(cells: list[str]) -> str:
    # A bracket or a star after the end of a line would be read as that command's argument.
    guard = "{}" if cells[0].startswith(("[", "*")) else ""
    return guard + " & ".join(cells) + r" \\"
