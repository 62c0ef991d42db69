"""What a report looks like in a terminal."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from fedrela_bench.reporting.build import build_table
from fedrela_bench.reporting.spec import load_spec
from fedrela_bench.reporting.table import Table
from fedrela_bench.reporting.terminal import terminal
from tests.reporting.fakes import study, two_algorithms
from tests.reporting.samples import GROUPED, PLAIN


def shipped() -> Table:
    spec, published = load_spec("study")
    return build_table(study(two_algorithms()), spec, published)


def test_a_number_its_gain_and_the_published_one_stand_under_each_other() -> None:
    assert terminal(PLAIN) == (
        "Base & FedReLa, 30 %\n"
        "\n"
        "                       tail  n\n"
        "------------------------------\n"
        "fed_avg         0.33 ± 0.25  3\n"
        "                paper 50.50\n"
        "a|b, τ=0.05      20.00 ± –†  1\n"
        "                   Δ +1.50†\n"
        "             [+1.00, +2.00]\n"
        "c                   Δ -1.00  1\n"
        "\n"
        "† oracle.\n"
        "±: standard deviation over seeds; Δ: over the same seed's baseline [95% t\n"
        "  interval]\n"
        "split: test\n"
        "round rule: last5\n"
    )


@pytest.mark.parametrize("width", [40, 60, 80, 100])
@pytest.mark.parametrize("make", [shipped, lambda: GROUPED, lambda: PLAIN], ids=["study", "grouped", "plain"])
def test_no_line_is_wider_than_the_terminal_and_every_number_is_there(make: object, width: int) -> None:
    table = make()  # type: ignore[operator]
    text = terminal(table, width)
    assert max(map(len, text.splitlines())) <= width
    assert "\x1b" not in text
    for row in table.rows:
        for cell in row[1:]:
            if hasattr(cell, "std"):
                assert f"{cell.value:.2f}" in text
    assert all("".join(note.split()) in "".join(text.split()) for note in table.notes)


def test_a_wide_table_is_shown_in_parts_that_repeat_the_names() -> None:
    columns = [
        replace(column, key=f"{letter}_{column.key}", group=f"setting {letter}")
        for letter in "abcdef"
        for column in PLAIN.columns[1:4]
    ]
    rows = tuple((row[0], *(row[1:4] * 6)) for row in PLAIN.rows)
    text = terminal(replace(PLAIN, columns=(PLAIN.columns[0], *columns), rows=rows))
    assert text.count("fed_avg") > 1
    assert all(f"setting {letter}" in " ".join(text.split()) for letter in "abcdef")
    assert max(map(len, text.splitlines())) <= 80


def test_the_best_is_bold_only_where_asked_for() -> None:
    text = terminal(shipped(), 80, bold=True)
    assert text.count("\x1b[1m") == text.count("\x1b[0m") > 0
    assert re.sub(r"\x1b\[[01]m", "", text) == terminal(shipped(), 80)
