"""Tables that LaTeX compiles, and that look like a paper's."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrela_bench.reporting.build import build_table
from fedrela_bench.reporting.latex import SIGNS, escape_latex, latex
from fedrela_bench.reporting.spec import load_spec
from fedrela_bench.reporting.table import Column, Measure, Table
from tests.reporting.fakes import study, two_algorithms
from tests.reporting.samples import GROUPED, HOSTILE, PLAIN

DOCUMENT = """\\documentclass[twocolumn]{article}
\\usepackage[T1]{fontenc}
\\usepackage{booktabs,graphicx}
\\begin{document}
%s
\\end{document}
"""


def test_latex() -> None:
    assert latex(PLAIN) == (
        "% Needs \\usepackage{booktabs} \\usepackage{graphicx}.\n"
        "% split: test\n"
        "% round rule: last5\n"
        "% bootstrap, a|b, τ=0.05, tail: +1.50† [+1.25, +1.75] (n = 3)\n"
        "\\begin{table*}[t]\n"
        "\\centering\n"
        "\\small\n"
        "\\setlength{\\tabcolsep}{4pt}\n"
        "\\caption{Base \\& FedReLa, 30 \\%}\n"
        "\\resizebox{\\ifdim\\width>\\textwidth\\textwidth\\else\\width\\fi}{!}{%\n"
        "\\begin{tabular}{lrrrr}\n"
        "\\toprule\n"
        "arm & tail & $\\Delta$ tail & tail (paper) & n \\\\\n"
        "\\midrule\n"
        "fed\\_avg & 0.33 $\\pm$ 0.25 & -- & 50.50 & 3 \\\\\n"
        "a\\textbar{}b, $\\tau$=0.05 & 20.00 $\\pm$ --$\\dagger$ & +1.50 [+1.00, +2.00]$\\dagger$ & -- & 1 \\\\\n"
        "c & -- & $-$1.00 & -- & 1 \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}}\n"
        "\\par\\smallskip\\footnotesize Accuracy in \\%. $\\dagger$ oracle.\n"
        "\\end{table*}\n"
    )


def test_headings_over_several_columns_have_their_rules() -> None:
    lines = latex(GROUPED).splitlines()
    top = lines.index("\\toprule")
    assert lines[top + 1] == (
        " & \\multicolumn{2}{c}{IF = 50} & \\multicolumn{2}{c}{IF = 100 \\& $\\alpha$ = 0.1} &  \\\\"
    )
    assert lines[top + 2] == "\\cmidrule(lr){2-3} \\cmidrule(lr){4-5}"
    assert lines[top + 3] == "arm & tail & $\\Delta$ tail & tail & tail (paper) & n \\\\"


def test_the_best_is_bold_and_the_second_underlined() -> None:
    text = latex(GROUPED)
    assert re.findall(r"\\textbf\{(.*?)\}", text) == ["70.00 $\\pm$ 0.50", "62.00 $\\pm$ 1.25", "70.00 $\\pm$ 0.50"]
    assert re.findall(r"\\underline\{(.*?)\}", text) == ["61.00 $\\pm$ 1.25", "69.00 $\\pm$ 0.50"]


def test_every_row_has_as_many_cells_as_columns_and_cannot_start_with_an_argument() -> None:
    lines = latex(GROUPED).splitlines()
    body = lines[lines.index("\\midrule") + 1 : lines.index("\\bottomrule")]
    assert len(body) == len(GROUPED.rows)
    for line in body:
        assert line.endswith(r" \\")
        assert len(re.findall(r"(?<!\\)&", line)) == len(GROUPED.columns) - 1
        assert line[0] not in "[*"


def test_a_fact_of_several_lines_stays_a_comment() -> None:
    text = latex(replace(PLAIN, facts=(("dataset", "a\nb"),)))
    assert "% dataset: a b\n" in text


def test_every_special_character_of_latex_is_escaped() -> None:
    assert escape_latex(r"\&%$#_{}~^") == (r"\textbackslash{}\&\%\$\#\_\{\}\textasciitilde{}\textasciicircum{}")


@given(st.text("ab\\&%$#_{}~^<>|τ±", max_size=20))
@settings(deadline=None)
def test_escaped_text_has_balanced_braces_and_no_bare_specials(text: str) -> None:
    escaped = escape_latex(text)
    plain = re.sub(r"\\[&%$#_{}]", "", escaped)
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    assert not re.search(r"[&%#_~^]", plain)


def _study() -> Table:
    shipped, published = load_spec("study")
    return build_table(study(two_algorithms()), shipped, published)


def _signs() -> Table:
    rows = tuple((f"{sign} x{sign}", Measure(1.0)) for sign in SIGNS)
    return Table("signs", (Column("a", "a"), Column("b", "b", "published")), rows, ())


def test_tables_compile_and_fit_the_page(tmp_path: Path) -> None:
    """Hostile names, headings over columns, every sign that is translated, and the widest shipped table."""
    program = shutil.which("pdflatex")
    if program is None:
        pytest.skip("no pdflatex here; Debian's texlive-latex-recommended has it")
    tables = [GROUPED, replace(PLAIN, title=HOSTILE), _study(), _signs()]
    (tmp_path / "t.tex").write_text(DOCUMENT % "\n".join(map(latex, tables)), encoding="utf-8")
    arguments = ["-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "t.tex"]
    ended = subprocess.run([program, *arguments], cwd=tmp_path, capture_output=True, timeout=300, check=False)
    log = (tmp_path / "t.log").read_text(encoding="utf-8", errors="replace")
    assert ended.returncode == 0, log[-3000:]
    assert (tmp_path / "t.pdf").read_bytes().startswith(b"%PDF")
    assert "Overfull" not in log
    assert "Missing character" not in log
