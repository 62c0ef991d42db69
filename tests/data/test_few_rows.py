"""Groups of classes whose accuracy hangs on single test rows are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrela_bench.data import load_dataset
from fedrela_bench.data.testrows import FEW, few_rows
from fedrela_bench.defaults import resolve
from fedrela_bench.simulation.setup import evaluation_slices
from fedrela_bench.study.simulator import SimulationEngine
from fedrela_bench.study.survey import Survey
from tests.data.makers import visits, write_text
from tests.study.fakes import request

GROUPS = {"head": [0], "medium": [], "tail": [1, 2]}
REST = "and intervals over seeds do not cover that"


def texts(counts: list[int], halved: bool = False, balanced: bool = False) -> list[str]:
    return [group.text for group in few_rows(GROUPS, counts, halved, balanced).values()]


def test_what_is_said_of_few_rows() -> None:
    assert texts([900, 13, 0]) == [f"tail has 13 test rows: one row is 7.7 points, {REST}"]
    half = f"tail has 12 test rows (6 in the reported half): one row is 16.7 points, {REST}"
    assert texts([900, 6, 6], halved=True) == [half]
    assert texts([900, 15, 15]) == texts([900, 30, 29], halved=True) == []
    assert texts([1, 30, 0]) == [f"head has 1 test row: one row is 100.0 points, {REST}"]
    assert texts([900, 0, 0]) == ["tail has no test rows, so that its accuracy is not measured"]


def test_a_row_of_a_smaller_class_counts_for_more_where_classes_count_alike() -> None:
    assert texts([900, 20, 5], balanced=True) == [f"tail has 25 test rows: one row is up to 10.0 points, {REST}"]
    assert texts([900, 6, 6], balanced=True) == [f"tail has 12 test rows: one row is 8.3 points, {REST}"]


@given(st.lists(st.integers(0, 60), min_size=3, max_size=3), st.booleans())
def test_groups_are_named_by_the_rows_that_are_reported(counts: list[int], halved: bool) -> None:
    found = few_rows(GROUPS, counts, halved, False)
    parts = [count - count // 2 if halved else count for count in counts]
    assert set(found) == {name for name, own in GROUPS.items() if own and sum(parts[c] for c in own) < FEW}
    assert all(group.reported <= group.rows <= 2 * group.reported for group in found.values())


@pytest.mark.parametrize("balanced", [False, True])
def test_a_study_counts_natural_rows_of_the_half_that_is_reported(tmp_path: Path, balanced: bool) -> None:
    source = f"table:{write_text(tmp_path / 't.csv', visits())}_natural"
    settings = {"evaluation.selection": "test_slice", "data.balanced_test": balanced}
    base = resolve(source, overrides=settings).config
    space = {"algorithm": "fedavg", "objectives": ["overall"]}
    survey = Survey(replace(request(tmp_path / "s", space, SimulationEngine()), bases={"fedavg": base}))
    survey.look(base)
    dataset = load_dataset(base)
    reported = np.unique(evaluation_slices(base, dataset)["test"])
    assert survey.few and sum(group.reported for group in survey.few.values()) == len(reported)
    assert sum(group.rows for group in survey.few.values()) == len(dataset.test_labels)
    assert survey.notes == [*survey.stated, *(group.text for group in survey.few.values())]
    assert not any("one row is" in note for note in (*dataset.stated, *dataset.notes))
