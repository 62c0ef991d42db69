"""A user's own clients through search, reports and a report's own runs: everything that `data.md` promises."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from fedrela_bench.cli import main
from tests.data.makers import visits, write_text

Capture = pytest.CaptureFixture[str]
SMALL = ["--federation.rounds", 3, "--training.local_epochs", 1, "--seeds", 1]
BALANCED = "test set is balanced by resampling"


@pytest.fixture
def table(tmp_path: Path) -> str:
    return f"table:{write_text(tmp_path / 't.csv', visits())}_natural"


def call(*words: object) -> int:
    return main([str(word) for word in words])


@pytest.mark.cluster
def test_a_study_of_clients_that_the_data_name(table: str, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "study"
    own = ["--data.balanced_test", "true", "--algorithm", "fedavg", "--trials", 2, *SMALL]
    assert call("tune", "--dataset", table, *own, "--out", out) == 0, capsys.readouterr().err
    assert "Study on table_t_natural finished: 2 trials, 2 cells computed" in " ".join(capsys.readouterr().out.split())
    for name in ("study.md", "study.csv", "study.tex", "study.html"):
        text = (out / "report" / name).read_text()
        assert BALANCED in text and "floats" in text, name
        assert "clients 4" in text and "clients auto" not in text, name
    records = [json.loads(line) for line in (out / "runs.jsonl").read_text().splitlines()]
    assert {record["config"]["federation"]["clients"] for record in records} == {4}
    # Keys are those of the configuration as it was given, so that the store answers the same command.
    assert call("tune", "--dataset", table, *own, "--out", out) == 0
    assert "was finished already: 2 trials, nothing to compute" in " ".join(capsys.readouterr().out.split())


@pytest.mark.cluster
def test_the_shipped_report_on_clients_that_the_data_name(table: str, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "study"
    words = ["report", "own_dataset", "--dataset", table, *SMALL, "--out", out]
    assert call(*words, "--plan") == 0, capsys.readouterr().err
    assert "time: about" in capsys.readouterr().out
    assert call(*words, "--run") == 0, capsys.readouterr().err
    with (out / "report" / "own_dataset.csv").open() as file:
        moved = {row["arm"].removesuffix(" ‡"): float(row["relabeled_per_client"]) for row in csv.DictReader(file)}
    assert len(moved) == 12
    # Of 48 training rows at 4 clients FedReLa moves whole samples: fourths of one per client.
    assert moved["FedAvg"] == 0 and 0 < moved["FedAvg + FedReLa, τ = 10 %"] < 48 * 0.1 / 4
    assert all(4 * count == round(4 * count) for count in moved.values())
