"""Reports tell FedReLa from other relabelers and never average the two."""

from __future__ import annotations

from typing import Any

import pytest

from fedrela_bench.errors import ConfigError
from fedrela_bench.reporting.arms import build_arms, filtered
from fedrela_bench.reporting.build import build_table
from fedrela_bench.reporting.pairs import pairs
from fedrela_bench.reporting.spec import ReportSpec
from fedrela_bench.reporting.trials import trials
from tests.reporting.fakes import row, rows, study

RANDOM = {"param:relabel.method": "random", "arm": "relabeler", "relabeler": "random (same rate)"}


def with_control(**more: Any) -> Any:
    """The study with a control of configuration a: as good as the baseline in every seed but the third."""
    controls = []
    for seed in (1, 2, 3):
        run = row("cell", "a", seed, **RANDOM, **more)
        names = {"config_key": "control", "run_id": f"cell-control-{seed}", "key": f"control/{seed}"}
        values = {name: value - 0.01 * seed for name, value in run.items() if name.startswith("metric:")}
        controls.append({**run, **names, **values})
    return study([*rows(), *controls])


def spec(*listed: dict[str, Any], **more: Any) -> ReportSpec:
    return ReportSpec.model_validate({"title": "t", "rows": list(listed), **more})


def test_a_control_is_a_row_of_its_own_with_the_paired_difference_below() -> None:
    runs = with_control()
    asked = spec({"runs": {"kind": "cell", "relabel.tau": 0.05}}, {"runs": {"kind": "cell", "arm": "relabeler"}})
    table = build_table(runs, asked)
    assert [line[0] for line in table.rows] == [
        "fedavg, τ=0.05, T=8 of 10",
        "fedavg + random (same rate), τ=0.05, T=8 of 10",
    ]
    [note] = [text for text in table.notes if text.startswith("FedReLa minus control")]
    assert "fedavg, τ=0.05, T=8 of 10 minus fedavg + random (same rate)" in note
    assert "overall +2.00 [-0.48, +4.48] (n = 3)" in note and "tail +2.00" in note


def test_rows_that_do_not_ask_for_controls_get_none() -> None:
    runs = with_control()
    for wanted in (
        {"kind": "cell", "relabel.tau": 0.05},
        {"kind": "cell", "relabel.method": "fedrela", "relabel.tau": 0.05},
    ):
        [arm] = build_arms(runs, spec({"runs": wanted}))
        assert set(arm.runs["config_key"]) == {"a"}
    [arm] = build_arms(runs, spec({"runs": {"relabel.method": "random"}}))
    assert set(arm.runs["config_key"]) == {"control"}
    with pytest.raises(ConfigError, match="2 configurations fit"):
        build_arms(runs, spec({"runs": {"kind": "cell", "arm": ""}}))


def test_controls_are_no_trials_and_no_pairs() -> None:
    runs = with_control()
    assert {trial.arm.label for trial in trials(runs, spec({"runs": {}}))} == {"a", "b"}
    arms = build_arms(
        runs, spec({"runs": {"relabel.method": "random"}}, {"runs": {"kind": "cell", "relabel.tau": 0.05}})
    )
    assert [pair.label for pair in pairs(runs, arms, "last5")] == ["fedavg, τ=0.05, T=8 of 10"]


def test_runs_of_before_there_was_a_choice_are_fedrelas() -> None:
    frame = study().frame
    assert len(filtered(frame, {"kind": "cell", "relabel.method": "fedrela", "relabel.schedule": "fixed"})) == 6
