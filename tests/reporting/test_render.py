"""One table in three formats, byte for byte."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrela_bench.errors import ConfigError
from fedrela_bench.reporting.render import (
    cell_text,
    check_formats,
    comma_separated,
    escape_latex,
    latex,
    markdown,
    write_table,
)
from fedrela_bench.reporting.table import Column, Gain, Measure, Table

TABLE = Table(
    title="Base & FedReLa, 30 %",
    columns=(
        Column("arm", "arm"),
        Column("tail", "tail", "measure"),
        Column("tail_gain", "Δ tail", "gain"),
        Column("tail_published", "tail (paper)", "published"),
        Column("n", "n", "count"),
    ),
    rows=(
        ("fed_avg", Measure(1 / 3, 0.25, 3), None, Measure(50.5), 3),
        ("a|b, τ=0.05", Measure(20.0, None, 1, "†"), Gain(1.5, 1.0, 2.0, 3), None, 1),
        ("c", None, Gain(-1.0, None, None, 1), None, 1),
    ),
    facts=(("split", "test"), ("round rule", "last5")),
    notes=("† oracle.",),
    summary="Accuracy in %.",
)


def test_markdown() -> None:
    assert markdown(TABLE) == (
        "## Base & FedReLa, 30 %\n"
        "\n"
        "| arm          |        tail |               Δ tail | tail (paper) |   n |\n"
        "| ------------ | ----------: | -------------------: | -----------: | --: |\n"
        "| fed_avg      | 0.33 ± 0.25 |                    – |        50.50 |   3 |\n"
        "| a\\|b, τ=0.05 |  20.00 ± –† | +1.50 [+1.00, +2.00] |            – |   1 |\n"
        "| c            |           – |                -1.00 |            – |   1 |\n"
        "\n"
        "- split: test\n"
        "- round rule: last5\n"
        "\n"
        "† oracle.  \n"
    )


def test_markdown_ends_with_its_figures() -> None:
    text = markdown(TABLE, [("my study_tail.png", "tail accuracy"), ("p.png", "front")])
    assert text == markdown(TABLE) + "\n![tail accuracy](my%20study_tail.png)\n\n![front](p.png)\n"


def test_a_fact_of_several_lines_stays_a_comment() -> None:
    text = latex(replace(TABLE, facts=(("dataset", "a\nb"),)))
    assert "% dataset: a b\n\\begin" in text


def test_csv_keeps_every_digit_and_carries_the_facts() -> None:
    lines = list(csv.DictReader(io.StringIO(comma_separated(TABLE))))
    assert list(lines[0]) == [
        "arm",
        "tail",
        "tail_std",
        "tail_n",
        "tail_marks",
        "tail_gain",
        "tail_gain_low",
        "tail_gain_high",
        "tail_gain_n",
        "tail_published",
        "n",
        "split",
        "round_rule",
    ]
    assert float(lines[0]["tail"]) == 1 / 3
    assert (lines[0]["tail_published"], lines[0]["round_rule"]) == ("50.5", "last5")
    assert (lines[1]["tail_marks"], lines[1]["tail_std"], lines[1]["tail_gain_low"]) == ("†", "", "1.0")
    assert (lines[2]["tail"], lines[2]["tail_gain"], lines[2]["tail_gain_high"]) == ("", "-1.0", "")


def test_latex() -> None:
    assert latex(TABLE) == (
        "% Needs \\usepackage{booktabs}.\n"
        "% split: test\n"
        "% round rule: last5\n"
        "\\begin{table*}[t]\n"
        "\\centering\n"
        "\\small\n"
        "\\setlength{\\tabcolsep}{4pt}\n"
        "\\caption{Base \\& FedReLa, 30 \\%}\n"
        "\\begin{tabular}{lrrrr}\n"
        "\\toprule\n"
        "arm & tail & $\\Delta$ tail & tail (paper) & n \\\\\n"
        "\\midrule\n"
        "fed\\_avg & 0.33 $\\pm$ 0.25 & -- & 50.50 & 3 \\\\\n"
        "a\\textbar{}b, $\\tau$=0.05 & 20.00 $\\pm$ --$\\dagger$ & +1.50 [+1.00, +2.00] & -- & 1 \\\\\n"
        "c & -- & -1.00 & -- & 1 \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
        "\\par\\smallskip\\footnotesize Accuracy in \\%. $\\dagger$ oracle.\n"
        "\\end{table*}\n"
    )


def test_every_special_character_of_latex_is_escaped() -> None:
    assert escape_latex(r"\&%$#_{}~^") == (r"\textbackslash{}\&\%\$\#\_\{\}\textasciitilde{}\textasciicircum{}")


@given(st.text("ab\\&%$#_{}~^<>|τ±", max_size=20))
def test_escaped_text_has_balanced_braces_and_no_bare_specials(text: str) -> None:
    escaped = escape_latex(text)
    plain = re.sub(r"\\[&%$#_{}]", "", escaped)
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    assert not re.search(r"[&%#_~^]", plain)


def test_a_dash_for_what_is_missing_and_none_for_zero() -> None:
    assert cell_text(None) == "–"
    assert cell_text(Measure(0.0, 0.0, 3)) == "0.00 ± 0.00"
    assert cell_text(Measure(12.5)) == "12.50"
    assert cell_text(Gain(0.0, -1.0, 1.0, 3)) == "+0.00 [-1.00, +1.00]"


def test_the_same_table_gives_the_same_bytes(tmp_path: Path) -> None:
    first = write_table(TABLE, tmp_path / "a", "t", ["md", "csv", "tex"])
    second = write_table(TABLE, tmp_path / "b", "t", ["md", "csv", "tex"])
    assert [path.name for path in first] == ["t.md", "t.csv", "t.tex"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_formats() -> None:
    assert check_formats("csv, md,csv") == ["csv", "md"]
    for wrong in ("pdf", "", "md,docx"):
        with pytest.raises(ConfigError, match="choose from md, csv, tex"):
            check_formats(wrong)
