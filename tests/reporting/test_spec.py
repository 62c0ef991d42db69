"""Report specs: the shipped ones are right, wrong ones are told all their faults with lines."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from fedrela_bench.errors import ConfigError
from fedrela_bench.reporting.published import load_published
from fedrela_bench.reporting.spec import find_spec, load_spec, reports_folder

SHIPPED = sorted(reports_folder().rglob("*.yaml"))


def faults(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_spec(file)
    return caught.value.faults


def test_there_are_shipped_specs() -> None:
    assert {path.stem for path in SHIPPED} >= {"study", "paper_table14"}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_specs_are_right_and_say_how_to_use_them(path: Path) -> None:
    spec, published = load_spec(path)
    assert spec.rows
    assert (published is None) == (spec.reference is None)
    header = [line for line in path.read_text().splitlines() if line.startswith("#")]
    assert any("fedrela-bench report" in line for line in header)


def test_specs_are_found_by_name_and_near_misses_are_named() -> None:
    assert find_spec("study") == find_spec("study.yaml")
    with pytest.raises(ConfigError, match="did you mean paper_table14"):
        find_spec("paper_table41")


def test_all_faults_with_their_lines(tmp_path: Path) -> None:
    found = faults(
        tmp_path,
        "title: x\n"
        "metric: [overall]\n"
        "round_rule: best\n"
        "min_seeds: 0\n"
        "where: {trainig.lr: 1}\n"
        "rows:\n"
        "  - runs: {knd: trunk}\n"
        "  - {choose: best:speed, runs: {kind: cell}}\n"
        "  - name: no runs\n"
        "  - text\n",
    )
    text = "\n".join(found)
    assert "line 2: unknown field metric; did you mean metrics?" in text
    assert "line 3: round_rule = 'best'" in text
    assert "line 4: min_seeds = 0" in text
    assert "line 5: unknown filter where: trainig.lr; did you mean training.lr?" in text
    assert "unknown filter rows[1].runs: knd; did you mean kind?" in text
    assert "rows[2].choose = 'best:speed' is not a choice" in text
    assert "rows[3].runs" in text
    assert "rows[4] must be a mapping" in text
    assert len(found) == 8


@pytest.mark.parametrize("text", ["title: x\n", "title: x\nrows: []\n", "title: x\nrows: {}\n"])
def test_a_spec_needs_rows(text: str, tmp_path: Path) -> None:
    assert any("at least one row" in fault for fault in faults(tmp_path, text))


def test_reference_files_and_columns_are_checked(tmp_path: Path) -> None:
    rows = "rows: [{runs: {kind: trunk}, reference: {metod: x}}]\n"
    missing = faults(tmp_path, f"title: x\n{rows}reference: {{file: no.csv, label: paper}}\n")
    assert any("published numbers cannot be read" in fault for fault in missing)
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "a.csv").write_text("method,metric,accuracy_pct\nx,overall,1\n")
    wrong = faults(tmp_path, f"title: x\n{rows}reference: {{file: a.csv, label: paper}}\n")
    assert any("unknown published column metod; did you mean method?" in fault for fault in wrong)


def test_a_spec_of_ones_own_can_use_the_shipped_numbers(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("title: x\nrows: [{runs: {kind: trunk}}]\nreference: {file: fedrela.csv, label: paper}\n")
    _, published = load_spec(file)
    assert published is not None
    assert "alpha" in published.columns


def test_two_published_numbers_for_one_cell_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("method,metric,alpha,accuracy_pct\nx,overall,0.1,1\nx,overall,0.3,2\nx,tail,0.1,\n")
    published = load_published(file)
    assert published.value({"method": "x", "alpha": 0.30}) == 2
    assert published.value({"method": "y"}) is None
    with pytest.raises(ConfigError, match="2 published numbers fit metric=overall"):
        published.value({"metric": "overall"})


def test_the_published_numbers_of_the_paper_are_whole() -> None:
    published = load_published(reports_folder() / "published" / "fedrela.csv")
    assert len(published.rows) == 982
    assert {row["table"] for row in published.rows} == {"1", "2", "3", "4", "6", "7", "8", "10", "11", "12", "13", "14"}


def test_published_triples_agree_within_rounding() -> None:
    with (reports_folder() / "published" / "fedrela.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["table"] in ("1", "7")]
    cells: dict[tuple[str, ...], dict[str, float]] = {}
    for row in rows:
        key = tuple(row[name] for name in row if name not in ("metric", "accuracy_pct", "note"))
        cells.setdefault(key, {})[row["metric"]] = float(row["accuracy_pct"])
    whole = {key: cell for key, cell in cells.items() if {"overall", "majority", "minority"} <= cell.keys()}
    assert len(whole) > 100
    for key, cell in whole.items():
        share = float(key[4]) / 100
        assert cell["overall"] == pytest.approx((1 - share) * cell["majority"] + share * cell["minority"], abs=0.06)
