"""Communication and privacy in reports, from what finished runs store."""

from __future__ import annotations

from typing import Any

import pytest

from fedrela_bench.reporting.build import build_table
from fedrela_bench.reporting.costs import short
from fedrela_bench.tracking.payload import cost_tags, guarantee
from tests.reporting import fakes
from tests.reporting.test_build import spec

SENT = {"down": 1200, "up": 1000, "participations": 40, "total_down": 48000, "total_up": 40000, "relabel_down": 0}
PRIVATE = {"level": "client", "clip": 1.0, "noise_multiplier": 2.0, "sampling": "poisson", "delta": 1e-5}
PRIVATE |= {"rounds": 8, "clients": 5, "epsilon": 1.25}


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (1200, "1.2 k"), (48_000, "48 k"), (12_345_678, "12.3 M"), (10**9, "1 G")],
)
def test_counts_are_short(count: int, text: str) -> None:
    assert short(count) == text


def test_tags_say_what_the_record_says() -> None:
    assert cost_tags({}) == {}
    assert cost_tags({"communication": SENT}) == {
        "cost.down": "1200",
        "cost.up": "1000",
        "cost.total_down": "48000",
        "cost.total_up": "40000",
    }
    assert "epsilon 1.25 at delta 1e-05" in cost_tags({"privacy": PRIVATE})["privacy.guarantee"]


def test_guarantees_are_told_as_they_are() -> None:
    assert guarantee(PRIVATE).startswith("client level, clip 1, noise multiplier 2: epsilon 1.25")
    assert "no guarantee without noise" in guarantee({**PRIVATE, "noise_multiplier": 0.0, "epsilon": None})
    ended = {"epsilon": None, "epsilon_before_relabelling": 0.5, "epsilon_labels_given": 2.0}
    text = guarantee({**PRIVATE, "level": "sample", **ended})
    assert "poisson sampling" in text and "no guarantee of the whole run" in text and "0.5 up to T" in text


def _facts(rows: list[dict[str, Any]]) -> dict[str, str]:
    wanted = [{"runs": {"kind": "trunk"}}, {"runs": {"kind": "cell"}, "choose": "each"}]
    return dict(build_table(fakes.study(rows), spec(rows=wanted)).facts)


def test_a_table_names_what_its_runs_sent() -> None:
    tags = {**cost_tags({"communication": SENT}), **cost_tags({"privacy": PRIVATE})}
    same = _facts([{**row, **tags} for row in fakes.rows()])
    assert same["communication"] == ("1.2 k floats down, 1 k up per participant and round; 48 k down, 40 k up in a run")
    assert same["privacy"] == guarantee(PRIVATE)
    rows = [
        {**row, **tags, "cost.total_down": "60000"} if row["kind"] == "cell" else {**row, **tags}
        for row in fakes.rows()
    ]
    uneven = _facts(rows)["communication"]
    assert uneven.count(": ") == 2 and "48 k down" in uneven and "60 k down" in uneven


def test_older_runs_say_nothing() -> None:
    assert not {"communication", "privacy"} & set(_facts(fakes.rows()))
