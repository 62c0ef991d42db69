"""What was done to the data is said wherever numbers are: on the command line, in results, studies and reports."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedrela_bench.cli import main
from fedrela_bench.defaults import resolve
from fedrela_bench.reporting import source
from fedrela_bench.reporting.build import build_table
from fedrela_bench.reporting.render import RENDERERS
from fedrela_bench.reporting.spec import ReportSpec
from fedrela_bench.study.identity import register
from fedrela_bench.study.preflight import preflight
from fedrela_bench.study.simulator import SimulationEngine
from tests.data.makers import visits, write_npz, write_text
from tests.reporting.fakes import rows
from tests.study.fakes import request

Capture = pytest.CaptureFixture[str]
SPLIT = "the source has no test split: 12 of 60 rows, 0.2 of each class, were set aside to test (data.test_seed = 0)"
NAMED = "clients are those that the data name: 4, with 7 to 19 training rows"


@pytest.fixture
def table(tmp_path: Path) -> str:
    return f"table:{write_text(tmp_path / 't.csv', visits())}"


def call(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_a_run_tells_and_keeps_it(table: str, tmp_path: Path, capsys: Capture) -> None:
    short = ["--federation.rounds", 1, "--training.local_epochs", 1, "--data.balanced_test", "true"]
    assert call("run", "--dataset", f"{table}_natural", *short, "--out", tmp_path / "run") == 0
    text = capsys.readouterr().out
    assert "48 training rows of 4 inputs in 3 classes" in text
    assert f"note: {SPLIT}" in text
    kept = json.loads((tmp_path / "run" / "result.json").read_text())["data_notes"]
    assert kept[:2] == [SPLIT, NAMED]
    assert kept[2].startswith("the server's test set is balanced by resampling")
    assert kept[3:] and all(" test rows: one row is " in note and f"note: {note}" in text for note in kept[3:])
    assert "clients: auto" in (tmp_path / "run" / "config.yaml").read_text()
    # The same command finds its result again.
    assert call("run", "--dataset", f"{table}_natural", *short, "--out", tmp_path / "run") == 0
    assert "holds this run already" in capsys.readouterr().out


def test_data_show_lists_columns_and_clients(table: str, tmp_path: Path, capsys: Capture) -> None:
    assert call("data", "show", "--dataset", f"{table}_natural", "--out", tmp_path / "map.png") == 0
    text = capsys.readouterr().out
    for words in ("columns (2, 4 inputs)", "  age (number)", "  kind (3 categories)", "ward 3", f"note: {NAMED}"):
        assert words in text
    assert (tmp_path / "map.png").stat().st_size > 1000
    archive = write_npz(tmp_path / "x.npz")
    assert call("data", "show", "--dataset", f"npz:{archive}", "--out", tmp_path / "map.png") == 0
    assert "12 training images of 28x28x1 in 3 classes" in capsys.readouterr().out


def test_data_get_reads_own_data_with_their_settings(table: str, tmp_path: Path, capsys: Capture) -> None:
    assert call("data", "get", table, "--data.label_column", "kind") == 0
    captured = capsys.readouterr()
    assert f"{table}: ready, from " in captured.out
    assert "were set aside to test" in captured.err
    assert call("data", "get", table, "--data.label_column", "kin") == 2
    assert "unknown column data.label_column = 'kin'; did you mean kind?" in capsys.readouterr().err
    assert call("data", "get", "digits", "--data.impute", "mean", "--data.alpha", -1) == 2
    assert "data.alpha = -1" in capsys.readouterr().err


def test_wrong_numbers_of_clients_end_with_code_2(table: str, capsys: Capture) -> None:
    assert call("run", "--dataset", f"{table}_natural", "--federation.clients", 9) == 2
    assert "federation.clients = 9, but the data name 4 clients" in capsys.readouterr().err
    assert call("run", "--dataset", "digits_lt", "--federation.clients", "auto") == 2
    assert "only data.partition = natural names the clients" in capsys.readouterr().err


def test_a_study_records_it_and_its_reports_show_it(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = resolve(f"{table}_natural", overrides={"evaluation.selection": "test_slice"}).config
    space = {"algorithm": "fedavg", "objectives": ["overall"]}
    made = replace(request(tmp_path / "study", space, SimulationEngine()), bases={"fedavg": base})
    plan = preflight(made).plan
    assert plan.data_notes[:2] == (SPLIT, NAMED)
    few = plan.data_notes[2:]
    assert few and all(" in the reported half): one row is " in note for note in few)
    register(plan)
    record = json.loads((tmp_path / "study" / "study.json").read_text())
    assert record["data_notes"] == [SPLIT, NAMED, *few]
    assert record["identity"]["bases"]["fedavg"]["federation"]["clients"] == "auto"

    experiment = SimpleNamespace(experiment_id="1")
    monkeypatch.setattr(source, "_client", lambda uri: SimpleNamespace(get_experiment_by_name=lambda name: experiment))
    monkeypatch.setattr(source, "_runs", lambda client, uri, experiment, study: rows())
    monkeypatch.setattr(source, "_flat", lambda row, identity: row)
    runs = source.read_study(tmp_path / "study")
    spec = ReportSpec.model_validate({"title": "t", "metrics": ["overall"], "rows": [{"runs": {"kind": "trunk"}}]})
    shown = build_table(runs, spec)
    assert dict(shown.facts)["data"] == "; ".join([SPLIT, NAMED, *few])
    texts = {name: render(shown) for name, render in RENDERERS.items()}
    assert set(texts) >= {"md", "csv", "tex"}
    for name, text in texts.items():
        assert "12 of 60 rows" in text, name
    visible = texts["tex"].split(r"\footnotesize")[1]
    assert "clients are those that the data name: 4" in visible
