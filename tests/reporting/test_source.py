"""A study's MLflow store becomes a frame, and a report of it repeats byte for byte."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pandas.testing import assert_series_equal

from fedrela_bench.errors import ConfigError, StoreError
from fedrela_bench.reporting.histories import Histories
from fedrela_bench.reporting.report import render_report
from fedrela_bench.reporting.source import read_study
from tests.reporting.fakes import ROUNDS, rows, study


def test_runs_of_this_study_only(folder: Path) -> None:
    runs = read_study(folder)
    assert len(runs.frame) == 9
    assert set(runs.frame["algorithm"]) == {"fedavg"}
    assert runs.frame["seed"].tolist()[:3] == [1, 2, 3]
    assert runs.objectives == ("overall", "tail")
    trunk = str(runs.frame["run_id"][0])
    assert runs.latest(trunk, "final/test/overall") == 0.6
    assert runs.history(trunk, "test/overall").index.tolist() == list(range(1, ROUNDS + 1))
    assert runs.history(trunk, "test/medium").empty


def test_a_report_twice_is_byte_for_byte_the_same(folder: Path, tmp_path: Path) -> None:
    first, second = (render_report(folder, out=tmp_path / name) for name in ("a", "b"))
    assert [path.name for path in first.files] == [
        "study.md",
        "study.csv",
        "study.tex",
        "study.html",
        "study_overall.png",
        "study_tail.png",
        "study_pareto.png",
        "study_tau.png",
    ]
    assert [path.read_bytes() for path in first.files] == [path.read_bytes() for path in second.files]
    text = first.files[0].read_text()
    assert re.search(r"\| fedavg \(baseline\) +\| +62\.00 ± 2\.00 \|", text)
    assert re.findall(r"!\[.*\]\((.*)\)", text) == [path.name for path in first.files[4:]]
    assert "+3.00 [+0.52, +5.48]" in text


def test_the_report_goes_into_the_study_by_default(folder: Path) -> None:
    made = render_report(folder, formats=["csv"])
    assert made.files[0] == folder / "report" / "study.csv"


def test_the_page_holds_the_figures_and_oracle_captions_their_mark(folder: Path, tmp_path: Path) -> None:
    plain = tmp_path / "mine.yaml"
    plain.write_text("title: t\nround_rule: best_oracle\nfigures: [curves]\nrows: [{runs: {kind: trunk}}]\n")
    made = render_report(folder, plain, tmp_path)
    texts = {path.suffix: path.read_text() for path in made.files if path.suffix != ".png"}
    assert texts[".html"].count('src="data:image/png;base64,') == 2
    assert "tail accuracy per round †</figcaption>" in texts[".html"]
    assert "tail accuracy per round †](mine_tail.png)" in texts[".md"]
    assert "†" in texts[".csv"].splitlines()[1]


def test_the_last_round_of_a_run_is_known(folder: Path) -> None:
    assert set(read_study(folder).frame["last_round"]) == {float(ROUNDS)}


def test_curves_read_at_once_are_those_read_run_by_run(folder: Path) -> None:
    from mlflow.entities import Metric

    runs = read_study(folder)
    load = runs.load_history
    assert isinstance(load, Histories)
    client, first, second = load._client, str(runs.frame["run_id"][0]), str(runs.frame["run_id"][1])
    # Round 2 was logged again later, round 3 diverged, round 1 came last.
    points = [("odd", 0.5, 20, 2), ("odd", 0.7, 30, 2), ("odd", float("nan"), 31, 3), ("odd", 0.1, 40, 1)]
    client.log_batch(first, [Metric(*point) for point in points])
    client.log_batch(second, [Metric("odd", float("inf"), 1, 1)])
    fresh = Histories(client, load._uri, load._experiment)
    slow = Histories(client, "http://somewhere", load._experiment)
    for run_id in (first, second, str(runs.frame["run_id"][2])):
        for metric in ("odd", "test/overall"):
            assert_series_equal(fresh(run_id, metric), slow(run_id, metric))
    assert fresh(first, "odd").fillna(-1).to_dict() == {1: 0.1, 2: 0.7, 3: -1}


def test_what_is_not_a_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no study\.json"):
        read_study(tmp_path)
    (tmp_path / "study.json").write_text("{}")
    with pytest.raises(ConfigError, match="damaged"):
        read_study(tmp_path)


def test_a_store_that_is_gone_or_empty_is_told(folder: Path, tmp_path: Path) -> None:
    record = json.loads((folder / "study.json").read_text())
    (tmp_path / "study.json").write_text(json.dumps({**record, "study": "s3"}))
    with pytest.raises(StoreError, match="holds no run of this study yet"):
        read_study(tmp_path)
    with pytest.raises(StoreError, match="no such MLflow database"):
        read_study(tmp_path, f"sqlite:///{tmp_path / 'gone.db'}")


@pytest.mark.parametrize("given", ["FAILED", "RUNNING"])
def test_a_study_without_a_finished_run_says_how_to_go_on(given: str, tmp_path: Path, monkeypatch: Any) -> None:
    unfinished = study([{**item, "run_status": given, "status": ""} for item in rows()])
    monkeypatch.setattr("fedrela_bench.reporting.gather.read_study", lambda *_: unfinished)
    folder = tmp_path / "st udy"
    folder.mkdir()
    record = {"study": "s", "dataset": "digits_lt", "experiment": "e", "identity": {"objectives": []}}
    (folder / "study.json").write_text(json.dumps(record))
    with pytest.raises(ConfigError) as caught:
        render_report(folder)
    assert f"no finished run yet (9 {given.lower()}); continue with: " in str(caught.value)
    assert f"tune --dataset digits_lt --out '{folder}'" in str(caught.value)
    assert not (folder / "report").exists()
