"""Ratios, medians and the table, from times that are made up."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrela_bench.bench.figures import lane_json, lane_name, overhead, ratios, whole_over_timed
from fedrela_bench.bench.results import ratios_of, table
from fedrela_bench.bench.timing import Span, spread
from tests.bench.makers import case, result, spans


def test_lanes_are_named_by_format_and_workers() -> None:
    assert [lane_name(amp, workers) for amp in ("none", "bf16") for workers in (1, 2)] == [
        "ours",
        "ours w2",
        "ours bf16",
        "ours bf16 w2",
    ]


def test_every_lane_is_compared_with_what_is_of_its_kind() -> None:
    times = {
        "ours": spans(6, 6.6),
        "ours bf16": spans(3, 3),
        "ours w2": spans(4, 4),
        "naive": spans(10, 11),
        "bare": spans(5, 6),
        "bare bf16": spans(2, 2),
    }
    found = ratios(times, {"none": [3, 3], "bf16": [1, 2]}, on_gpu=False)
    assert found == {
        "ours/naive": pytest.approx([0.6, 0.6]),
        "round/bare": pytest.approx([1.2, 1.1]),
        "ours/floor": pytest.approx([2.0, 2.2]),
        "ours bf16/naive": pytest.approx([0.3, 3 / 11]),
        "round bf16/bare": pytest.approx([1.5, 1.5]),
        "ours bf16/floor": pytest.approx([2.0, 2.0]),
        "ours w2/naive": pytest.approx([0.4, 4 / 11]),
    }


def test_other_load_changes_no_ratio_of_single_processes() -> None:
    quiet = {"ours": [Span(6, 6)], "naive": [Span(10, 10)]}
    loaded = {"ours": [Span(18, 6)], "naive": [Span(11, 10)]}
    assert ratios(quiet, {}, on_gpu=False) == ratios(loaded, {}, on_gpu=False)


def test_workers_and_gpus_are_compared_by_the_clock() -> None:
    times = {"ours w2": [Span(4, 0.1)], "ours": [Span(5, 1)], "naive": [Span(10, 10)]}
    assert ratios(times, {}, on_gpu=False)["ours w2/naive"] == [0.4]
    assert ratios(times, {}, on_gpu=True)["ours/naive"] == [0.5]


def test_overhead_is_a_share_of_the_round() -> None:
    assert overhead(1 / (1 - 0.03)) == pytest.approx(0.03)
    assert overhead(1.0) == 0


def test_whole_rounds_are_extrapolated_part_by_part() -> None:
    # 8 s of training stand for 80, 2 s of evaluation for 6.
    assert whole_over_timed(2, 10, (10, 3)) * 10 == pytest.approx(86)
    assert lane_json(spans(10, 10), 500, 8.6)["whole_round_seconds"] == pytest.approx(86)
    assert lane_json(spans(10, 10), 500, 1)["samples_per_second"] == 50


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=20))
def test_spreads_lie_in_order_within_the_values(values: list[float]) -> None:
    found = spread(values)
    assert min(values) <= found.low <= found.median <= found.high <= max(values)


def test_the_table_fits_a_terminal_and_has_every_figure() -> None:
    short = case("digits short")
    text = table(result(case(), short))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in text and text.isascii()
    assert "avx512_bf16" in text and "naive research loop" in text and "12,346 MiB" in text
    assert any(line.split()[:2] == ["ours/naive", "0.580"] and line.endswith("aim 0.570 missed") for line in lines)
    assert any(line.split()[:2] == ["round/bare", "1.030"] and line.endswith("aim 1.050 met") for line in lines)
    assert "everything else: 2.9 % of the round" in text
    header = next(line for line in lines if "whole" in line)
    row = next(line for line in lines if "naive research" in line)
    assert len(header) == len(row)


def test_documents_are_json_and_their_ratios_are_found_by_name() -> None:
    document = json.loads(json.dumps(result(case(), case("digits short", {"ours/naive": [0.3]}))))
    assert ratios_of(document) == {
        "fm": {"ours/naive": 0.58, "round/bare": 1.03},
        "digits short": {"ours/naive": 0.3},
    }
