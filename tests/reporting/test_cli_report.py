"""`fedrela-bench report` as a user sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedrela_bench.cli import main


def report(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[str, str]:
    """Standard output and error of `report`, which must end well, on 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["fedrela-bench", "report", *arguments])
    assert main() == 0
    return capsys.readouterr()


def test_eighty_columns_are_enough(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = report([str(folder), "--out", str(tmp_path)], monkeypatch, capsys)
    table, _, rest = out.partition("written: ")
    assert max(map(len, table.splitlines())) <= 80
    assert table == (
        "Base algorithms and FedReLa\n"
        "\n"
        "                                      overall  head  medium              tail  n\n"
        "--------------------------------------------------------------------------------\n"
        "fedavg (baseline)                62.00 ± 2.00     –       –      10.00 ± 0.00  3\n"
        "fedavg, τ=0.05, T=8 of 10        65.00 ± 2.65     –       –      20.00 ± 0.00  3\n"
        "(paper's default)                     Δ +3.00                        Δ +10.00\n"
        "                               [+0.52, +5.48]                [+10.00, +10.00]\n"
        "fedavg, τ=0.1, T=8 of 10         62.00 ± 1.00     –       –      30.00 ± 0.00  3\n"
        "                                      Δ +0.00                        Δ +20.00\n"
        "                               [-2.48, +2.48]                [+20.00, +20.00]\n"
        "\n"
        "Arms shown, per algorithm: the baseline (no relabelling), the Pareto front on\n"
        "  the selecting images, and the paper's default (τ=0.05, T=0.8R, one-shot).\n"
        "  Other configurations of the search are in the study's trials.csv.\n"
        "±: standard deviation over seeds; Δ: over the same seed's baseline [95% t\n"
        "  interval]\n"
        "split: test (the half of the test images that does not select; fixed,\n"
        "  class-balanced)\n"
        "round rule: last5 (mean of the last five evaluated rounds)\n"
        "seeds: 1, 2, 3\n"
        "selection: test_slice\n"
        "dataset: digits_lt\n"
        "setting: rounds 10, lr 0.05\n"
        "device: cpu\n"
        "\n"
    )
    assert err == ""
    written = [Path(line.removeprefix("written: ")).name for line in f"written: {rest}".splitlines()]
    assert written[:4] == ["study.md", "study.csv", "study.tex", "study.html"]


def test_json_is_all_there_is_on_standard_output(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = report([str(folder), "--out", str(tmp_path), "--json", "--format", "csv"], monkeypatch, capsys)
    values = json.loads(out)
    assert values["table"]["rows"][1]["overall_gain"]["n"] == 3
    assert values["table"]["facts"]["round rule"].startswith("last5")
    assert values["files"][0] == str(tmp_path / "study.csv")
    assert list(values) == ["table", "files", "left_out"]
    assert any(text.startswith("figure gallery is left out: ") for text in values["left_out"])
    assert "written: " in err and "figure gallery is left out" in err


def test_a_report_does_not_end_with_a_figure_that_fails(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = []

    def fails(*given: object) -> None:
        before.extend(path.name for path in tmp_path.iterdir())
        raise ValueError("no luck")

    monkeypatch.setattr("fedrela_bench.reporting.pictures.draw_pareto", fails)
    out, err = report([str(folder), "--out", str(tmp_path), "--format", "md"], monkeypatch, capsys)
    line = "figure pareto is left out: it could not be drawn (ValueError: no luck)"
    assert "study.md" in before
    assert line in out and err == f"note: {line}\n"
    text = (tmp_path / "study.md").read_text()
    assert f"- {line}" in text and "study_overall.png" in text and "study_pareto.png" not in text


def test_nothing_is_coloured_where_standard_output_is_a_pipe(folder: Path, tmp_path: Path) -> None:
    code = "import sys; from fedrela_bench.cli import main; sys.exit(main())"
    arguments = [sys.executable, "-c", code, "report", str(folder), "--out", str(tmp_path), "--format", "csv"]
    ended = subprocess.run(arguments, capture_output=True, check=True, env={**os.environ, "TERM": "xterm"}, timeout=300)
    assert b"\x1b" not in ended.stdout
    assert "65.00 ± 2.65" in ended.stdout.decode()
