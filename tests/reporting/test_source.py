"""A study's MLflow store becomes a frame, and a report of it repeats byte for byte."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pandas.testing import assert_series_equal

from fedrela_bench.errors import ConfigError, StoreError
from fedrela_bench.reporting.database import Run, child_runs
from fedrela_bench.reporting.histories import Histories
from fedrela_bench.reporting.report import render_report
from fedrela_bench.reporting.source import read_study, served_runs
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
    assert first.notes
    page = first.files[3].read_text()
    assert all(f"- {note}" in text and f"<li>{note}</li>" in page for note in first.notes)


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


def test_a_database_is_read_as_through_its_client(folder: Path) -> None:
    from mlflow.entities import Metric, Param

    runs = read_study(folder)
    load = runs.load_history
    assert isinstance(load, Histories)
    client, uri, experiment = load._client, load._uri, load._experiment
    odd = client.create_run(experiment, tags={"study": "s4", "kind": "cell", "seed": "1", "other": ""})
    points = [Metric("a", float("nan"), 1, 7), Metric("b", float("inf"), 1, 3), Metric("b", 1.0, 2, 2)]
    client.log_batch(odd.info.run_id, points, [Param("x.y", "1e-4"), Param("z", "text")])
    for kind, study_id in (("study", "s4"), ("cell", "s5")):
        client.create_run(experiment, tags={"study": study_id, "kind": kind})
    gone = client.create_run(experiment, tags={"study": "s4", "kind": "cell"})
    client.delete_run(gone.info.run_id)
    client.create_run(experiment, tags={"study": "s4"})
    for study_id, count in (("s1", 9), ("s4", 1), ("s9", 0)):
        direct, served = list(child_runs(uri, experiment, study_id)), list(served_runs(client, experiment, study_id))
        assert len(direct) == count
        names = [sorted(map(comparable, found)) for found in (direct, served)]
        assert names[0] == names[1]


def comparable(run: Run) -> str:
    """Everything of a run but MLflow's own tags, in one order."""
    tags = {name: value for name, value in run.tags.items() if not name.startswith("mlflow.")}
    parts = [sorted(part.items()) for part in (tags, run.params, run.metrics)]
    return repr((run.run_id, run.status, run.last_round, parts))


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
