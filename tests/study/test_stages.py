"""Stages of a study: each can be run alone, skipped and repeated, and each says no more than it computed."""

from __future__ import annotations

import csv
import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from fedrela_bench.study.futility import Futility
from fedrela_bench.study.output import render_text
from fedrela_bench.study.request import TuneRequest
from fedrela_bench.study.runner import tune
from fedrela_bench.study.space import parse_space
from tests.study import fakes
from tests.study.drive import local_ray, mlflow_runs, optuna_states
from tests.study.fakes import FakeEngine, request

pytestmark = pytest.mark.cluster
ONE = {"algorithm": "fedavg"}
FOUR_ARMS = [
    "fedavg baseline",
    "fedavg baseline, rate times 0.1 from T on (control)",
    "fedavg paper default",
    "fedavg paper default, rate times 0.1 from T on",
]
SMALL = {"parameters": {"relabel.tau": {"choice": [0.05, 0.1]}, "relabel.start": {"choice": [0.5, 0.7]}}}


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """One Ray for the module."""
    with local_ray():
        yield


def confirming(out: Path, **changes: Any) -> TuneRequest:
    settings = {"trials": 4, "confirm_seeds": (1, 2, 3), "confirm_top": 2, "lr_drop": 0.1, **changes}
    return request(out, ONE, stages=("trunks", "search", "confirm"), **settings)


def mean_over(out: Path, kind: str, metric: str) -> float:
    results = [json.loads(path.read_text()) for path in (out / "store" / kind).glob("*/result.json")]
    return fmean(result["final"][metric] for result in results)


def test_the_confirm_stage_runs_the_best_and_the_fixed_arms_on_all_seeds(tmp_path: Path) -> None:
    result = tune(confirming(tmp_path))
    assert result.exit_code == 0 and result.confirm_seeds == (1, 2, 3)
    labels = [row.label for row in result.confirmed]
    assert labels[-4:] == FOUR_ARMS
    assert 5 <= len(labels) <= 6
    assert all(len(row.outcome.keys) == 3 and row.outcome.std for row in result.confirmed)
    assert [bool(row.gains) for row in result.confirmed[-4:]] == [False, True, True, True]
    assert result.seeds == (1,) and all(len(row.outcome.keys) == 1 for row in result.trials)
    text = " ".join(render_text(result).split())
    assert "confirmed over seeds 1, 2, 3" in text and all(label in text for label in FOUR_ARMS[::2])
    assert "fedavg baseline, rate times 0.1 from T on (control)" in text
    control, both = (result.confirmed[place].outcome.values for place in (-3, -1))
    added = ", ".join(
        f"val/{n} {100 * (b - c):+.2f}" for n, b, c in zip(("overall", "tail"), both, control, strict=True)
    )
    assert f"fedavg: with the lower rate in both, relabelling adds {added} (default - control)" in text
    assert result.counts["full_runs"] == result.counts["rounds_computed"] / 10
    mean = 100 * mean_over(tmp_path, "trunks", "val/tail")
    best = (tmp_path / "best" / "tail.yaml").read_text()
    assert f"val/tail {mean:.2f} % (gain" in best and "(mean over 3 seeds" in best
    with (tmp_path / "confirmed.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [line["trial"] for line in table[-4:]] == FOUR_ARMS and len(table) == len(labels)
    scales = [(line["relabel.tau"], line["relabel.post_relabel_lr_scale"]) for line in table[-4:]]
    assert scales == [("0.0", "1.0"), ("0.0", "0.1"), ("0.05", "1.0"), ("0.05", "0.1")]
    runs = mlflow_runs(tmp_path)
    assert {run.info.status for run in runs} == {"FINISHED"}
    baselines = [run for run in runs if run.data.tags["kind"] == "trunk"]
    assert sorted(run.data.tags["seed"] for run in baselines) == ["1", "2", "3"]
    again = tune(confirming(tmp_path))
    assert again.counts["cells_computed"] == again.counts["trunks_computed"] == again.counts["rounds_computed"] == 0
    assert [row.to_json() for row in again.confirmed] == [row.to_json() for row in result.confirmed]
    assert len(mlflow_runs(tmp_path)) == len(runs)


def test_the_report_of_a_study_shows_the_four_arms_of_a_rate_drop(tmp_path: Path) -> None:
    tune(confirming(tmp_path, trials=2, confirm_seeds=(1, 2)))
    from fedrela_bench.reporting.report import render_report

    made = render_report(tmp_path)
    text = next(path for path in made.files if path.suffix == ".md").read_text()
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| fedavg")]
    assert rows[0] == "fedavg (baseline)"
    for label, mark in (
        ("fedavg, no relabelling, T=8 of 10", "control: lower learning rate from T on"),
        ("fedavg, τ=0.05, T=8 of 10", "paper's default with the control's learning rate"),
        ("fedavg, τ=0.05, T=8 of 10", "paper's default"),
    ):
        assert sum(row.startswith(label) and f"({mark})" in row for row in rows) == 1, (label, mark, rows)


def test_without_a_search_only_defaults_are_confirmed_and_that_is_said(tmp_path: Path) -> None:
    result = tune(request(tmp_path, ONE, stages=("confirm",)))
    assert [row.label for row in result.confirmed] == ["fedavg paper default"]
    assert any("no trial of a search is finished here, so only the paper's default" in text for text in result.warnings)


def test_stages_one_by_one_are_the_whole_study(tmp_path: Path) -> None:
    space = parse_space({**fakes.SPACE, **ONE, **SMALL})
    whole = tune(replace(confirming(tmp_path / "whole", sampler="grid"), space=space))
    asked = replace(confirming(tmp_path / "parts", sampler="grid"), space=space)
    first = tune(replace(asked, stages=("trunks",)))
    assert (first.counts["trunks_computed"], first.counts["cells_computed"], first.trials) == (1, 0, [])
    second = tune(replace(asked, stages=("search",)))
    assert second.counts["trunks_computed"] == 0 and len(second.trials) == 4 and not second.confirmed
    third = tune(replace(asked, stages=("confirm",)))
    assert {row.label: row.outcome for row in third.confirmed} == {row.label: row.outcome for row in whole.confirmed}
    assert third.counts["full_runs"] == whole.counts["full_runs"]


def test_a_race_gives_seeds_to_the_leaders_only(tmp_path: Path) -> None:
    settings = {"seeds": (1, 2, 3, 4), "race": True, "trials": 6}
    result = tune(request(tmp_path, ONE, stages=("trunks", "search", "confirm"), **settings))
    assert result.seeds == (1,) and result.confirm_seeds == (1, 2, 3, 4)
    leaders = [row for row in result.confirmed if row.number is not None]
    assert 1 <= len(leaders) <= 2
    assert all(len(row.outcome.keys) == 4 for row in result.confirmed)
    # Heats that were not won cost something, too.
    assert result.counts["full_runs"] == result.counts["rounds_computed"] / 10
    cells = list((tmp_path / "store" / "cells").glob("*/result.json"))
    # 6 on one seed; 2 more seeds for two in the first heat; 1 more for the front; the default where it did not lead.
    assert len(cells) <= 6 + 2 * 2 + 2 + 3


def test_futile_runs_are_stopped_on_the_record_and_go_on_when_the_rule_is_dropped(tmp_path: Path) -> None:
    asked = request(tmp_path, {**ONE, "parameters": {"relabel.tau": {"choice": [0.05, 0.1]}}}, trials=2)
    strict = replace(asked, futility=Futility(1, 0.99))
    result = tune(strict)
    assert {row.outcome.status for row in result.trials} == {"futile"}
    assert all("below 99.00 points: val/overall" in row.outcome.error for row in result.trials)
    assert result.pareto == [] and result.exit_code == 0
    assert result.counts["full_runs"] == result.counts["rounds_computed"] / 10
    assert set(optuna_states(tmp_path)) == {"COMPLETE"}
    cells = [run for run in mlflow_runs(tmp_path) if run.data.tags["kind"] == "cell"]
    assert {(run.info.status, run.data.tags["status"]) for run in cells} == {("KILLED", "stopped")}
    assert not list((tmp_path / "store" / "cells").glob("*/result.json"))
    assert tune(strict).counts["rounds_computed"] == 0
    full = tune(asked)
    assert {row.outcome.status for row in full.trials} == {"completed"}
    assert full.counts["rounds_computed"] == 2
    assert {run.info.status for run in mlflow_runs(tmp_path)} == {"FINISHED"}


def test_base_algorithms_are_tuned_alone_with_equal_budgets(tmp_path: Path) -> None:
    space = {
        "algorithm": ["fedavg", "fedprox"],
        "parameters": {
            "training.lr": {"choice": [0.01, 0.05, 0.1]},
            "federation.options.mu": {"choice": [0.01, 0.1], "when": {"algorithm": "fedprox"}},
        },
    }
    asked = request(tmp_path, space, stages=("base",), trials=3)
    result = tune(asked)
    assert [row.algorithm for row in result.trials] == ["fedavg"] * 3 + ["fedprox"] * 3
    assert result.trials[0].point == {"algorithm": "fedavg", "training.lr": 0.05}
    assert sorted(result.best) == ["fedavg", "fedprox"]
    assert not (tmp_path / "store" / "cells").exists()
    assert result.counts["full_runs"] == 6
    runs = [run for run in mlflow_runs(tmp_path) if run.data.tags["kind"] == "trunk"]
    assert len(runs) == 6 and {run.info.status for run in runs} == {"FINISHED"}
    assert tune(asked).counts["rounds_computed"] == 0
    from fedrela_bench.reporting.report import render_report

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = render_report(tmp_path)
    text = next(path for path in made.files if path.suffix == ".md").read_text()
    assert "| fedavg, lr=0.05 (baseline)" in text and re.search(r"\| fedprox, mu=0\.01?, lr=0\.\d+ \(baseline\)", text)


def test_failures_up_to_the_number_allowed_are_no_failure_of_the_study(tmp_path: Path) -> None:
    space = {**ONE, "parameters": {"relabel.tau": {"choice": [0.05, 0.1]}}}
    asked = request(tmp_path, space, engine=FakeEngine(crashes_at=0.1), trials=3, max_failures=1)
    result = tune(asked)
    assert result.exit_code == 0
    assert result.warnings[-1] == "the space holds only 2 different configurations; all were tried"
    assert tune(replace(asked, max_failures=0)).exit_code == 1


def test_a_killed_trial_goes_on_where_it_was(tmp_path: Path) -> None:
    space = {**ONE, "parameters": {"relabel.tau": {"choice": [0.1]}, "relabel.start": {"choice": [0.3]}}}
    engine = FakeEngine(dies_once=tmp_path / "died", log=tmp_path / "log")
    result = tune(request(tmp_path / "study", space, engine=engine, trials=1, rolling_rounds=2))
    assert (tmp_path / "died").exists()
    assert [row.outcome.status for row in result.trials] == ["completed"] and result.exit_code == 0
    rounds = (tmp_path / "log").read_text().splitlines()
    assert len(rounds) - len(set(rounds)) <= 2
    assert {run.info.status for run in mlflow_runs(tmp_path / "study")} == {"FINISHED"}
    assert len(mlflow_runs(tmp_path / "study")) == 3


def test_a_broken_setup_does_not_eat_the_whole_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedrela_bench.study.books.MOST_IN_A_ROW", 3)
    space = {**ONE, "parameters": {"relabel.tau": {"choice": [0.05]}, "training.lr": {"uniform": [0.01, 0.1]}}}
    engine = FakeEngine(crashes_at=0.05)
    result = tune(request(tmp_path, space, engine=engine, trials=30, max_concurrent=1))
    assert result.exit_code == 1 and len(result.failed) <= 5
    assert any("in a row failed" in text for text in result.warnings)
