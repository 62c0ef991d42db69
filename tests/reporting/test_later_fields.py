"""Runs of before a field existed are found by its value that changes nothing."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from fedrela_bench.reporting import arms
from fedrela_bench.reporting.arms import filtered


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"training.warmup": 0}, ["old trunk", "old cell", "new"]),
        ({"training.warmup": 2}, ["warm"]),
        ({"relabel.judge": "loss"}, ["old cell", "new", "warm"]),
    ],
)
def test_what_a_run_does_not_record_it_does_not_do(
    monkeypatch: pytest.MonkeyPatch, wanted: dict[str, Any], found: list[str]
) -> None:
    monkeypatch.setattr(arms, "OPTIONS", {"training.warmup": 0, "relabel.judge": "loss"})
    rows = [("old trunk", "trunk", None), ("old cell", "cell", None), ("new", "cell", "0"), ("warm", "cell", "2")]
    frame = pd.DataFrame(rows, columns=["run_id", "kind", "param:training.warmup"])
    assert filtered(frame, wanted)["run_id"].tolist() == found
