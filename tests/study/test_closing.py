"""The end of a study on the screen."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from fedrela_bench.intervals import bootstrap_interval, t_interval
from fedrela_bench.study.connection import leave, patiently
from fedrela_bench.study.output import render_text
from fedrela_bench.study.plan import Outcome, combine
from fedrela_bench.study.results import Row, StudyResult, gains_over, label, paired_gains, pareto_front

OBJECTIVES = ("val/overall", "val/tail")
BASE = {"val/overall": (0.60, 0.62, 0.64), "val/tail": (0.1, 0.1, 0.1), "test/overall": (0.61, 0.6, 0.6)}
OURS = {"val/overall": (0.62, 0.66, 0.67), "val/tail": (0.3, 0.2, 0.25), "test/overall": (0.62, 0.62, 0.63)}
WORSE = {"val/overall": (0.61, 0.6, 0.6), "val/tail": (0.4, 0.4, 0.1), "test/overall": (0.6, 0.6, 0.6)}


def outcome(values: dict[str, tuple[float, ...]], count: int, objectives: Sequence[str] = OBJECTIVES) -> Outcome:
    """As the store's results of the first `count` seeds give it."""
    results = [
        {"status": "completed", "final": {name: v[at] for name, v in values.items()}, "computed_rounds": 9, "key": key}
        for at, key in enumerate(f"{value}/{at}" for at, value in enumerate(values["val/overall"][:count]))
    ]
    return combine(results, objectives)


def study(out: Path, count: int, objectives: tuple[str, ...] = OBJECTIVES, **changes: Any) -> StudyResult:
    base = outcome(BASE, count, objectives)
    trials = []
    for number, values in enumerate((OURS, WORSE)):
        found = outcome(values, count, objectives)
        point = {"algorithm": "fedavg", "relabel.tau": 0.05 + number / 20, "relabel.start": 0.8, "relabel.period": 0}
        paired = paired_gains(found, base)
        trials.append(Row(label(point), "fedavg", point, found, gains_over(found, base), number, paired))
    result = StudyResult(
        status="finished",
        exit_code=0,
        out=out,
        dataset="digits_lt",
        objectives=objectives,
        seeds=tuple(range(1, count + 1)),
        baselines=[Row("fedavg (baseline)", "fedavg", {}, base)],
        trials=trials,
        pareto=pareto_front(trials),
        counts={"full_runs": 2.5, "full_runs_unshared": 6, "cells_computed": 4},
        best={"overall": out / "best" / "overall.yaml"},
        report_command="fedrela-bench report st",
        ui_command="fedrela-bench ui st",
        dashboard_command="optuna-dashboard st/optuna.journal",
        resume_command="fedrela-bench tune --out st",
    )
    return replace(result, **changes)


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_the_end_of_a_study_of_three_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    print(render_text(study(Path("st"), 3)), end="")
    assert capsys.readouterr().out == (
        "Study on digits_lt finished: 2 trials, 4 cells computed, 0 reused, 2.50 full\n"
        "  runs instead of 6, 0.0 s\n"
        "\n"
        "Pareto front of each algorithm, %\n"
        "                        val/overall          val/tail    test/overall  test/tail\n"
        "--------------------------------------------------------------------------------\n"
        "fedavg (baseline)             62.00             10.00           60.33          –\n"
        "fedavg tau=0.05               65.00             25.00           62.33          –\n"
        "start=0.8 period=0          Δ +3.00          Δ +15.00         Δ +2.00\n"
        "                     [+0.52, +5.48]   [+2.58, +27.42]  [-0.48, +4.48]\n"
        "fedavg tau=0.1                60.33             30.00           60.00          –\n"
        "start=0.8 period=0          Δ -1.67          Δ +20.00         Δ -0.33\n"
        "                     [-7.92, +4.58]  [-23.03, +63.03]  [-1.77, +1.10]\n"
        "(mean over seeds 1, 2, 3, n = 3; mean of the last five evaluated rounds; test is\n"
        "  the reported slice; Δ: gain over the baseline of the same seed [95% t\n"
        "  interval])\n"
        "\n"
        "best overall: fedrela-bench run --config st/best/overall.yaml\n"
        "report: fedrela-bench report st\n"
        "MLflow UI: fedrela-bench ui st\n"
        "Optuna dashboard: optuna-dashboard st/optuna.journal\n"
        "confirm on 5 seeds (for narrower ones): fedrela-bench tune --out st --confirm-seeds 5\n"
    )


def test_commands_say_where_data_and_own_code_are() -> None:
    told = replace(study(Path("st"), 3), sources=("--data-dir", "/a b", "--plugin", "own.py"))
    command = "fedrela-bench run --config st/best/overall.yaml --data-dir '/a b' --plugin own.py"
    assert f"best overall: {command}\n" in render_text(told)
    assert told.to_json()["best_commands"] == {"overall": command}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_line_but_commands_fits_eighty_columns_and_is_plain(tmp_path: Path, count: int) -> None:
    text = render_text(study(tmp_path, count))
    lines = [line for line in text.splitlines() if ": fedrela-bench " not in line and "optuna-dashboard" not in line]
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in text


@pytest.mark.parametrize("count", [1, 2])
def test_few_seeds_have_gains_without_intervals_and_the_way_to_more(tmp_path: Path, count: int) -> None:
    text = render_text(study(tmp_path, count))
    assert "Δ +" in text and "[+" not in text
    assert f"n = {count};" in text and "intervals from 3 seeds on" in " ".join(text.split())
    assert "confirm on 3 seeds (for intervals): fedrela-bench tune --out st --confirm-seeds 3\n" in text


def test_intervals_are_those_of_the_paired_differences() -> None:
    gain = paired_gains(outcome(OURS, 3), outcome(BASE, 3))["val/overall"]
    gaps = [ours - base for ours, base in zip(OURS["val/overall"], BASE["val/overall"], strict=True)]
    assert (gain.value, gain.n) == (pytest.approx(fmean(gaps)), 3)
    assert (gain.low, gain.high) == pytest.approx(t_interval(gaps))
    assert (gain.boot_low, gain.boot_high) == pytest.approx(bootstrap_interval(gaps))
    assert paired_gains(outcome(OURS, 3), outcome(BASE, 2)) == {}
    assert paired_gains(outcome(OURS, 3), None) == {}


def test_json_has_the_gains_with_both_intervals(tmp_path: Path) -> None:
    values = json.loads(json.dumps(study(tmp_path, 3).to_json(), allow_nan=False))
    paired = values["trials"][0]["paired"]["test/overall"]
    assert paired["n"] == 3 and paired["low"] < 0.02 < paired["high"]
    assert paired["boot_low"] == pytest.approx(0.01) and paired["boot_high"] == pytest.approx(0.03)


def test_numbers_that_the_test_images_chose_are_marked(tmp_path: Path) -> None:
    text = render_text(study(tmp_path, 3, ("test/overall",)))
    assert "62.33†" in text and "Δ +2.00†" in text
    assert "† oracle: the reported test images also chose the configuration" in text


def test_an_interrupted_study_says_only_how_to_go_on(tmp_path: Path) -> None:
    text = render_text(study(tmp_path, 3, status="interrupted"))
    assert text.endswith("continue: fedrela-bench tune --out st\n")
    assert "MLflow UI" not in text


def test_the_page_stands_for_the_files_of_the_report(tmp_path: Path) -> None:
    text = render_text(study(tmp_path, 3, report=["r/study.md", "r/study.html", "r/study_tail.png"]))
    assert "report: r/study.html and 2 more beside it\n" in text
    assert "fedrela-bench report" not in text


def test_the_confirm_stage_shows_its_own_seeds(tmp_path: Path) -> None:
    result = study(tmp_path, 1)
    wide = study(tmp_path, 3)
    text = render_text(replace(result, confirmed=wide.trials, confirm_seeds=(1, 2, 3)))
    part = text[text.index("confirmed over seeds 1, 2, 3, %") :]
    assert "[+0.52, +5.48]" in part and "n = 3" in part
    assert "confirm on 5 seeds" in part


def test_a_confirm_stage_that_adds_no_runs_only_names_them(tmp_path: Path) -> None:
    result = study(tmp_path, 3)
    best = result.pareto[0]
    text = render_text(replace(result, confirmed=[best, replace(best, label="fedavg paper default")]))
    assert "confirmed over" not in text
    assert " ".join(text.split()).count("(paper default)") == 1
    other = replace(best, label="fedavg paper default", outcome=replace(best.outcome, keys=("a", "b", "c")))
    text = render_text(replace(result, confirmed=[best, other, replace(other, label="fedavg twin")]))
    assert "confirmed over" in text and " ".join(text.split()).count("(twin)") == 1


@pytest.mark.cluster
def test_a_real_studys_end_fits_eighty_columns(tmp_path: Path, local_ray: None) -> None:
    from fedrela_bench.study.runner import tune
    from tests.study.fakes import request

    space = {"algorithm": "fedavg", "parameters": {"relabel.tau": {"choice": [0.05, 0.1]}}}
    result = tune(request(tmp_path / "s", space, seeds=(1, 2, 3), trials=2))
    text = render_text(result)
    assert "Δ" in text and "95% t" in text and "n = 3" in text
    assert all(len(line) <= 80 for line in text.splitlines() if ": fedrela-bench " not in line and "optuna" not in line)
    row = result.trials[0]
    stored = {name: json.loads(path.read_text()) for name, path in _results(tmp_path / "s" / "store")}
    base = {one["config"]["seed"]: one["final"]["val/tail"] for one in stored.values() if one["kind"] == "trunk"}
    ours = [stored[key] for key in row.outcome.keys]
    gaps = [one["final"]["val/tail"] - base[one["config"]["seed"]] for one in ours]
    gain = row.paired["val/tail"]
    assert (gain.low, gain.high) == pytest.approx(t_interval(gaps))


def _results(store: Path) -> Iterator[tuple[str, Path]]:
    yield from ((path.parent.name, path) for path in store.glob("*/*/result.json"))


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    """One Ray; `tune` uses a connection that is there."""
    import cloudpickle
    import ray

    from tests.study import fakes

    cloudpickle.register_pickle_by_value(fakes)
    settings = {"include_dashboard": False, "log_to_driver": False, "object_store_memory": 100 * 2**20}
    patiently(lambda: ray.init("local", num_cpus=1, **settings))
    yield
    leave()
