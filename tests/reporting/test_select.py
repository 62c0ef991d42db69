"""Round rules."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from fedrela_bench.errors import ConfigError
from fedrela_bench.reporting.select import at_round, run_value, selection_metric, values_by_seed
from tests.reporting.fakes import row, rows, study

CURVE = pd.Series({1: 0.1, 2: 0.9, 3: 0.3, 4: 0.4, 5: 0.5, 6: 0.6, 7: 0.7})
CHOICE = pd.Series({1: 0.2, 2: 0.1, 3: 0.8, 4: 0.8, 5: 0.3})


def test_rules_on_a_curve() -> None:
    assert at_round(CURVE, "last") == 0.7
    assert at_round(CURVE, "last5") == pytest.approx(0.5)
    assert at_round(CURVE, "best_oracle", CURVE) == 0.9
    assert at_round(CURVE, "best_selected", CHOICE) == 0.3


def test_the_order_of_points_and_gaps_do_not_matter() -> None:
    shuffled = CURVE.iloc[[3, 0, 6, 1, 5, 2, 4]]
    assert at_round(shuffled, "last") == 0.7
    gaps = pd.Series({5: 0.5, 10: math.nan, 15: 0.7})
    assert at_round(gaps, "last") == 0.7
    assert at_round(gaps, "last5") == pytest.approx(0.6)


def test_what_was_not_measured_is_not_a_number() -> None:
    assert math.isnan(at_round(pd.Series(dtype=float), "last5"))
    assert math.isnan(at_round(CURVE, "best_selected", pd.Series(dtype=float)))
    assert math.isnan(run_value(study(), "trunk-baseline/fedavg-1", "test/medium", "last5"))


def test_stored_numbers_are_used_where_the_rule_is_theirs() -> None:
    runs = study()
    assert run_value(runs, "trunk-baseline/fedavg-1", "test/overall", "last5") == 0.60
    assert run_value(runs, "trunk-baseline/fedavg-1", "test/overall", "last") == 0.604
    assert run_value(runs, "trunk-baseline/fedavg-1", "test/overall", "best_oracle") == pytest.approx(0.61)


def test_a_seed_with_two_different_numbers_is_refused() -> None:
    again = {**row("trunk", "baseline/fedavg", 1), "run_id": "other", "metric:final/test/overall": 0.1}
    runs = study([*rows(), again])
    with pytest.raises(ConfigError, match="seed 1 disagree on test/overall"):
        values_by_seed(runs, runs.frame[runs.frame["kind"] == "trunk"], "test/overall", "last5")


def test_objectives_are_chosen_on_the_selection_slice_unless_it_is_an_oracle() -> None:
    assert selection_metric("tail", "test_slice") == "val/tail"
    assert selection_metric("tail", "oracle") == "test/tail"
