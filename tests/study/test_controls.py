"""Controls in a study: searched, confirmed beside FedReLa, never recommended; schedules share what they can."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrela_bench.config import TrialConfig
from fedrela_bench.errors import ConfigError
from fedrela_bench.study.cell import run_cell
from fedrela_bench.study.confirm import confirmed_rows, fixed_arms, leaders, with_controls
from fedrela_bench.study.controls import Control, candidates, difference_lines, difference_table
from fedrela_bench.study.engine import Runtime
from fedrela_bench.study.forecast import forecast
from fedrela_bench.study.output import render_text
from fedrela_bench.study.results import best_rows, collect
from fedrela_bench.study.runner import tune
from fedrela_bench.study.trunk import run_trunk
from tests.study.drive import local_ray, mlflow_runs
from tests.study.fakes import FakeDataset, config, request, runtime
from tests.study.test_ledger import ledger_for, plan_for, work
from tests.study.test_sharing import curve, full

DATA = FakeDataset("data-1")
MIXED = {
    "algorithm": "fedavg",
    "parameters": {
        "relabel.method": {"choice": ["fedrela", "random"]},
        "relabel.options.match": {"choice": ["rate", "flow"], "when": {"relabel.method": "random"}},
        "relabel.tau": {"choice": [0.05, 0.1]},
    },
}
TAUS = {"algorithm": "fedavg", "parameters": {"relabel.tau": {"choice": [0.05, 0.1, 0.2]}}}
RANDOM = Control("random")


def test_a_control_can_be_searched_and_is_never_recommended(tmp_path: Path) -> None:
    plan = plan_for(request(tmp_path, MIXED, sampler="grid", trials=50))
    ledger = ledger_for(plan)
    points = [proposal.point for proposal in work(ledger)]
    assert len(points) == 6 and points[0] == {"algorithm": "fedavg", "relabel.method": "fedrela", "relabel.tau": 0.05}
    trials = collect(plan, [ledger])[1]
    assert len({row.outcome.keys for row in trials}) == 6
    methods = [row.point["relabel.method"] for row in trials]
    assert sorted(methods) == ["fedrela"] * 2 + ["random"] * 4
    # The best number of all is made a control's.
    best = next(row for row in trials if row.point["relabel.method"] == "random")
    trials[trials.index(best)] = replace(best, outcome=replace(best.outcome, values=(1.0, 1.0)))
    assert {row.point["relabel.method"] for row in best_rows(plan, trials, [], ()).values()} == {"fedrela"}
    assert {arm.point["relabel.method"] for arm in leaders(plan, ledger)} == {"fedrela"}
    controls = [row for row in trials if row.point["relabel.method"] == "random"]
    assert candidates(controls, plan.bases) == controls


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"relabel.method": {"choice": ["fedrela", "randm"]}}, "did you mean random?"),
        ({"relabel.options.match": {"choice": ["rate"]}}, "when: {relabel.method: NAME}"),
        (
            {
                "relabel.method": {"choice": ["fedrela", "random"]},
                "relabel.options.match": {"choice": ["rate", "rates"], "when": {"relabel.method": "random"}},
            },
            "relabel.options.match = 'rates'",
        ),
        ({"relabel.schedule": {"choice": ["fixed", "linar"]}}, "did you mean linear?"),
        ({"relabel.schedule_options.first": {"uniform": [0.1, 0.9]}}, "fixed has no options"),
    ],
)
def test_a_space_with_wrong_names_is_refused(tmp_path: Path, parameters: dict[str, Any], words: str) -> None:
    asked = request(tmp_path, {"algorithm": "fedavg", "parameters": parameters})
    assert any(words in fault for fault in asked.faults())


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("random", "random", {}),
        ("random, match=flow", "random", {"match": "flow"}),
        ("loss,confidence=0.8", "loss", 0.8),
    ],
)
def test_a_control_is_written_as_a_name_and_its_options(text: str, name: str, options: Any) -> None:
    found = Control.parse(text)
    assert (found.name, dict(found.options)) == (
        name,
        options if isinstance(options, dict) else {"confidence": options},
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("randm", "did you mean random?"),
        ("random,match", "match has no value"),
        ("random,match=rates", "relabel.options.match = 'rates'"),
        ("fedrela", "what the control is compared with"),
    ],
)
def test_a_wrong_control_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Control.parse(text)
    assert words in str(caught.value) and f"--control {text}" in str(caught.value)


def test_every_relabelled_arm_gets_its_control_and_the_difference_is_paired(tmp_path: Path) -> None:
    asked = request(
        tmp_path,
        TAUS,
        control=RANDOM,
        confirm_seeds=(1, 2, 3),
        confirm_top=2,
        lr_drop=0.1,
        stages=("trunks", "confirm"),
    )
    plan = plan_for(asked)
    arms = with_controls(plan, fixed_arms(plan))
    assert [arm.name for arm in arms[4:]] == ["fedavg paper default: random (same rate)"]
    assert arms[4].partner == arms[2].name == "fedavg paper default" and arms[4].role == "relabeler"
    for arm in arms:
        for seed in asked.final_seeds:
            run_cell(plan.config(arm.point, seed), FakeDataset(f"data-{seed}"), plan.runtime)
    rows = confirmed_rows(plan, arms, asked.final_seeds)
    default, control = rows[2], rows[4]
    gaps = [a - b for a, b in zip(*(r.outcome.per_seed["val/tail"] for r in (default, control)), strict=True)]
    assert control.against["val/tail"].value == pytest.approx(np.mean(gaps)) and control.against["val/tail"].n == 3
    assert any(gaps) and control.gains and not default.against
    told = list(difference_lines(rows, asked.objectives))
    assert told[0].startswith("fedavg paper default - random (same rate): val/overall ")
    assert f"val/tail {100 * np.mean(gaps):+.2f} [" in told[0] and "paired over 3 seeds" in told[0]
    table = difference_table(rows)
    assert len(table) == 1 + len(control.against) and {len(line) for line in table} == {10}


def test_the_papers_default_is_fedrelas_whatever_the_study_relabels_with(tmp_path: Path) -> None:
    asked = request(tmp_path, TAUS)
    bases = {"fedavg": config(relabel__method="random", relabel__options__match="flow")}
    plan = plan_for(replace(asked, bases=bases, control=RANDOM))
    default, control = with_controls(plan, fixed_arms(plan))
    relabel = plan.config(default.point, 1).relabel
    assert (relabel.method, relabel.options, relabel.tau) == ("fedrela", {}, 0.05)
    assert plan.config(control.point, 1).relabel.method == "random"


def test_controls_are_forecast(tmp_path: Path) -> None:
    asked = request(
        tmp_path, TAUS, trials=3, stages=("trunks", "search", "confirm"), confirm_seeds=(1, 2), confirm_top=1
    )
    without, more = (forecast(plan_for(replace(asked, control=control)), 1) for control in (None, RANDOM))
    assert more.confirmed == without.confirmed + 2 - (without.confirmed == 1)
    assert more.confirm_runs > without.confirm_runs


# schedules -----------------------------------------------------------------------------------------------------------


def ramp(first: float = 0.5, **changes: Any) -> TrialConfig:
    plug = {"relabel__schedule": "linear", "relabel__schedule_options__first": first}
    return config(relabel__tau=0.1, relabel__start=0.4, relabel__period=2, **{**plug, **changes})


@pytest.mark.parametrize("periods", [None, (0, 2)])
def test_a_run_of_any_schedule_is_its_own_full_run(tmp_path: Path, periods: tuple[int, ...] | None) -> None:
    environment = runtime(tmp_path, periods)
    run_trunk(ramp(), DATA, environment, [4])
    for first in (0.5, 0.25, 1.0):
        run_cell(ramp(first), DATA, environment)
        assert curve(environment, ramp(first)) == full(environment, ramp(first))


def test_schedules_share_rounds_until_the_first_refresh_that_differs(tmp_path: Path) -> None:
    environment = runtime(tmp_path, (0, 2))
    once = config(relabel__tau=0.05, relabel__start=0.4)
    run_trunk(ramp(), DATA, environment, [4])
    run_cell(once, DATA, environment)
    environment.meter.rounds = 0
    run_cell(ramp(0.5), DATA, environment)
    # The first refresh of the ramp spends half of 0.1: until the second one it is the run that relabels once at 0.05.
    assert environment.meter.rounds == 10 - 6
    assert [(part.first, part.last) for part in lineage(environment, ramp(0.5))] == [(1, 4), (5, 6), (7, 10)]
    assert lineage(environment, ramp(0.5))[1].entry.key == environment.entry(once, "data-1").key
    assert [(part.first, part.last) for part in lineage(environment, once)] == [(1, 4), (5, 10)]


def lineage(environment: Runtime, asked: TrialConfig) -> list[Any]:
    return environment.lineage(asked, "data-1")


# on Ray --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[None]:
    with local_ray():
        yield


@pytest.mark.cluster
def test_tune_confirms_the_control_beside_the_default(tmp_path: Path, cluster: None) -> None:
    asked = request(tmp_path, TAUS, trials=2, control=RANDOM, confirm_seeds=(1, 2), confirm_top=1)
    result = tune(replace(asked, stages=("trunks", "search", "confirm")))
    assert result.exit_code == 0
    controls = [row for row in result.confirmed if row.partner]
    assert controls and all(row.against and row.role == "relabeler" for row in controls)
    assert not any(row.point.get("relabel.method") == "random" for row in [*result.trials, *result.pareto])
    text = " ".join(render_text(result).split())
    assert "fedavg paper default - random (same rate): val/overall" in text
    with (tmp_path / "controls.csv").open() as file:
        assert {line["control"] for line in csv.DictReader(file)} == {row.label for row in controls}
    assert json.loads(json.dumps(result.to_json()))["confirmed"][-1]["control_of"] == controls[-1].partner
    tagged = [run for run in mlflow_runs(tmp_path) if run.data.tags.get("arm") == "relabeler"]
    assert len(tagged) == 2 * len({row.outcome.keys for row in controls})
    assert {run.data.params["relabel.method"] for run in tagged} == {"random"}
    assert {run.data.tags["relabeler"] for run in tagged} == {"random (same rate)"}
    cells = [run for run in mlflow_runs(tmp_path) if run.data.tags["kind"] == "cell"]
    others = [run for run in cells if run.data.tags.get("arm") != "relabeler"]
    assert {run.data.params["relabel.method"] for run in others} == {"fedrela"}
