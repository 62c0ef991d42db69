"""Real measurements in short forms: which figures there are, and ratios with wide margins."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedrela_bench.bench.case import Case, prepare
from fedrela_bench.bench.machine import describe, peak_bytes
from fedrela_bench.bench.measure import Lane, Settings, lane, measure_round, take_turns
from fedrela_bench.bench.memory import measure_memory
from fedrela_bench.bench.naive_process import NaiveProcess
from fedrela_bench.bench.relabeling import measure_relabel
from fedrela_bench.bench.runner import measure_case
from fedrela_bench.bench.timing import Span
from fedrela_bench.bench.workloads import WORKLOADS
from fedrela_bench.errors import RunError

AHEAD = 0.8
"""Wide: `ours / naive` is well below on a quiet machine."""


def short(name: str) -> Case:
    return prepare(WORKLOADS[name], short=True, device="cpu")


def test_a_round_is_timed_in_every_format_beside_everything_else() -> None:
    told: list[str] = []
    case = short("digits")
    found = measure_case(case, Settings(rounds=1, amps=("none", "bf16")), told.append)
    assert list(found["lanes"]) == ["ours", "ours bf16", "bare", "bare bf16", "naive"]
    assert set(found["ratios"]) == {
        *("ours/naive", "round/bare", "ours/floor", "ours bf16/naive", "round bf16/bare", "ours bf16/floor"),
    }
    assert found["ratios"]["ours/naive"]["median"] < AHEAD
    assert 0.7 < found["ratios"]["round/bare"]["median"] < 1.6
    for name in ("ours", "naive", "bare"):
        figures = found["lanes"][name]
        assert figures["rounds_per_second"] == pytest.approx(1 / figures["seconds"]["median"])
        assert figures["samples_per_second"] == pytest.approx(case.samples / figures["seconds"]["median"])
    parts, bare = found["parts"]["none"], found["lanes"]["bare"]["cpu_seconds"]
    assert 0.7 * bare["low"] < sum(parts.values()) < 1.3 * bare["high"]
    assert found["peak_rss_mib"] > 100 and found["peak_rss_naive_mib"] > 100
    assert told == ["digits short: repetition 1 of 1"]
    assert found["config"]["training"]["model"] == "digits"


def test_the_relabelling_pass_is_a_small_part_of_a_round() -> None:
    found = measure_relabel(short("relabel"), Settings(rounds=1), lambda line: None)
    assert 0.005 < found["ratios"]["relabel/round"]["median"] < 1 / 3
    assert list(found["lanes"]) == ["training", "relabel"]


def test_memory_does_not_grow_with_the_clients() -> None:
    found = measure_memory(short("memory"), Settings(), lambda line: None)
    few, many = found["memory"]["10"], found["memory"]["2000"]
    assert few["start"] <= few["peak"] and many["start"] <= many["peak"]
    assert few["state"] == many["state"] == 0
    assert 0.7 < found["ratios"]["memory"]["median"] < 1.1


def test_peaks_are_this_processs_own() -> None:
    before = peak_bytes()
    size = max(0, before - _resident()) + (64 << 20)
    # Not from the heap, which may have as much that was freed before.
    with mmap.mmap(-1, size) as block:
        np.frombuffer(block, dtype=np.uint8).fill(1)
        assert peak_bytes() >= before + (32 << 20)
    code = "from fedrela_bench.bench.machine import peak_bytes; print(peak_bytes())"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 1 << 20 < int(child.stdout) < 4 << 30


def _resident() -> int:
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if pages.exists() else 0


def test_a_diverged_run_is_no_measurement() -> None:
    case = short("digits")
    wild = Case(**{**vars(case), "config": case.config.replace({"training.lr": 1e30})})
    with pytest.raises(RunError, match="digits short diverged"):
        measure_round(wild, Settings(rounds=1), lambda line: None)


def test_a_naive_loop_that_ends_says_why() -> None:
    case = short("digits")
    with (
        NaiveProcess(case, "no such device") as naive,
        pytest.raises(RunError, match=r"the naive loop ended: .*device"),
    ):
        naive.measure(1)


def test_lanes_take_turns_from_a_different_one_each_time() -> None:
    order: list[str] = []

    def fake(name: str) -> Lane:
        def measure(times: int) -> Span:
            order.append(name)
            return Span(0.01, 0.01)

        return Lane(name, measure)

    lanes = [fake(name) for name in "abc"]
    for _ in range(3):
        take_turns(lanes, seconds=10)
    assert "".join(order) == "abcbcacab"
    take_turns(lanes, seconds=0.5)
    assert len(lanes[0].spans) == 3 + 4


def test_short_lanes_are_repeated_within_a_turn() -> None:
    calls: list[int] = []
    item = lane("quick", lambda: calls.append(1), Settings().place)
    item.warm_up()
    assert item.times == 50
    item.take()
    assert len(calls) == 52 and len(item.spans) == 1


def test_the_machine_is_described() -> None:
    machine = describe("cpu")
    assert machine["device"] == "cpu" and machine["cores"] >= 1
    assert set(machine) == {
        *("cpu", "flags", "cores", "threads", "device", "system", "python", "torch", "fedrela_bench"),
    }
