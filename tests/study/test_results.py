"""Pareto front, choice of configurations, tables and text."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrela_bench.study.futility import Futility
from fedrela_bench.study.output import render_text, write_tables
from fedrela_bench.study.plan import Outcome, combine
from fedrela_bench.study.results import Row, StudyResult, choose, label, pareto_front
from fedrela_bench.study.runner import _remarks
from fedrela_bench.study.trunk import run_trunk
from tests.study.fakes import FakeDataset, config, request
from tests.study.test_ledger import plan_for


def row(number: int, *values: float, status: str = "completed") -> Row:
    point = {"algorithm": "fedavg", "relabel.tau": number / 100}
    return Row(label(point), "fedavg", point, Outcome(status, values, {"test/tail": 0.5}, keys=("k",)), values, number)


ROWS = [row(0, 0.5, 0.1), row(1, 0.4, 0.4), row(2, 0.1, 0.5), row(3, 0.4, 0.3), row(4, 0.9, 0.9, status="diverged")]


def test_the_front_holds_what_nothing_beats() -> None:
    assert [entry.number for entry in pareto_front(ROWS)] == [0, 1, 2]


def test_best_per_objective_and_the_balanced_one() -> None:
    chosen = choose(pareto_front(ROWS), ("overall", "tail"))
    assert {name: entry.number for name, entry in chosen.items()} == {"overall": 0, "tail": 2, "balanced": 1}
    assert choose([], ("overall",)) == {}


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12))
def test_every_row_is_on_the_front_or_beaten_by_it(values: list[tuple[int, int]]) -> None:
    rows = [row(index, float(a), float(b)) for index, (a, b) in enumerate(values)]
    front = pareto_front(rows)
    for entry in rows:
        beaten = any(
            all(x >= y for x, y in zip(other.outcome.values, entry.outcome.values, strict=True)) for other in front
        )
        assert beaten


def study(out: Path) -> StudyResult:
    base = Row("fedavg (baseline)", "fedavg", {}, Outcome("completed", (0.3, 0.05), {"test/tail": 0.1}, keys=("t",)))
    failed = Row("fedavg tau=0.2", "fedavg", {}, Outcome("failed", (0.0, 0.0), error="no luck"), number=9)
    return StudyResult(
        status="finished",
        exit_code=1,
        out=out,
        dataset="digits_lt",
        objectives=("val/overall", "val/tail"),
        seeds=(1,),
        baselines=[base],
        trials=[*ROWS, failed],
        pareto=pareto_front(ROWS),
        failed=[failed],
        counts={"full_runs": 2.5, "full_runs_unshared": 6, "cells_computed": 4},
    )


def test_the_text_shows_gains_failures_and_what_diverged(tmp_path: Path) -> None:
    text = " ".join(render_text(study(tmp_path)).split())
    for part in (
        "2.50 full runs instead of 6",
        "fedavg (baseline)",
        "+50.00",
        "failed: trial 9 (fedavg tau=0.2): no luck",
        "diverged: trial 4",
        "mean of the last five evaluated rounds",
    ):
        assert part in text


def test_tables_hold_every_row(tmp_path: Path) -> None:
    write_tables(study(tmp_path))
    with (tmp_path / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [entry["trial"] for entry in rows] == ["baseline", "0", "1", "2", "3", "4", "9"]
    assert rows[1]["val/overall"] == "0.5" and rows[1]["test/tail"] == "0.5" and rows[-1]["error"] == "no luck"
    with (tmp_path / "pareto.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 3


def finished(seed: int, tail: float) -> dict[str, Any]:
    final = {"val/tail": tail, "test/tail": 1 - tail, "val/overall": 0.5, "test/overall": 0.25}
    return {"status": "completed", "final": final, "computed_rounds": 3, "key": f"k{seed}"}


def test_seeds_are_averaged_with_the_sample_deviation() -> None:
    outcome = combine([finished(1, 0.1), finished(2, 0.2), finished(3, 0.6)], ("val/tail",))
    assert outcome.values == (pytest.approx(0.3),)
    assert outcome.std["val/tail"] == pytest.approx(0.07**0.5)
    assert outcome.std["val/overall"] == 0
    assert combine([finished(1, 0.1)], ("val/tail",)).std == {}


def test_objectives_are_read_from_the_slice_that_selects(tmp_path: Path) -> None:
    results = [finished(1, 0.1), finished(2, 0.2)]
    asked = request(tmp_path)
    assert combine(results, asked.objectives).values == pytest.approx((0.5, 0.15))
    oracle = {name: config(evaluation__selection="oracle") for name in asked.bases}
    assert combine(results, replace(asked, bases=oracle).objectives).values == pytest.approx((0.25, 0.85))
    for result in results:
        del result["final"]["val/tail"]
    assert combine(results, asked.objectives).status == "invalid"


def test_a_study_with_nothing_to_compute_says_so(tmp_path: Path) -> None:
    result = study(tmp_path)
    result.counts |= {"cells_computed": 0, "trunks_computed": 0}
    assert "was finished already: 5 trials, nothing to compute" in render_text(result)


def test_an_objective_in_which_no_setting_beats_the_baseline_is_named(tmp_path: Path) -> None:
    result = study(tmp_path)
    best = max(result.trials, key=lambda row: row.outcome.values)
    beaten = replace(best.outcome, values=(0.9, 0.9))
    result.baselines = [Row("fedavg (baseline)", "fedavg", {}, beaten)]
    text = render_text(result)
    assert "no setting beats fedavg (baseline) in val/overall (90.00 %)" in text
    assert "no setting beats fedavg (baseline) in val/tail (90.00 %)" in text


def test_a_rule_without_finished_baselines_to_compare_with_is_said(tmp_path: Path) -> None:
    asked = request(tmp_path, {"algorithm": "fedavg"}, stages=("search",), futility=Futility(1, 0.1))
    plan = plan_for(asked)
    session = SimpleNamespace(plan=plan, ledgers=[], broken=False, confirms_defaults_only=False)
    assert "add trunks to --stage" in _remarks(session)[0]  # type: ignore[arg-type]
    for trunk in plan.trunks():
        run_trunk(trunk.config, FakeDataset("data-1"), plan.runtime)
    assert _remarks(session) == []  # type: ignore[arg-type]
