"""How the GPU check keeps to its time, and how it gets from what it timed to a round and a profile."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from fedrela_bench.bench.gpu import runner
from fedrela_bench.bench.gpu.budget import Budget, OutOfTime, alarm
from fedrela_bench.bench.gpu.federation import Case
from fedrela_bench.bench.gpu.ladder import Rate, Rung, climb, fit, round_steps, rungs
from fedrela_bench.bench.gpu.profile import Event, busy, summary
from fedrela_bench.bench.gpu.steps import Settings, Step, over_cases, verdict
from fedrela_bench.bench.gpu.table import table
from fedrela_bench.bench.gpu.work import Work

CPU = Settings("cpu", tiny=True)


def _read(out: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((out / "gpu_check.json").read_text())
    return document


# time ----------------------------------------------------------------------------------------------------------------


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def budget(self, seconds: float) -> Budget:
        return Budget(seconds, self)


def test_the_time_is_kept_and_what_there_was_is_written(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    def quick(settings: Settings, budget: Budget, results: Any) -> Any:
        results["value"] = 1
        return "passed"

    def endless(settings: Settings, budget: Budget, results: Any) -> Any:
        seen.append(_read(tmp_path))
        results["half"] = True
        while True:
            time.sleep(0.01)

    steps = [Step(name, "", 1, call) for name, call in (("a", quick), ("b", endless), ("c", quick))]
    started = time.monotonic()
    document = runner.run(steps, CPU, Budget(2.0), tmp_path, "command", lambda line: None)
    assert time.monotonic() - started < 4
    assert [step["status"] for step in document["steps"]] == ["passed", "stopped", "skipped"]
    assert _read(tmp_path) == document and document["steps"][1]["results"] == {"half": True}
    assert [step["name"] for step in seen[0]["steps"]] == ["a"] and not seen[0]["finished"]
    assert runner.exit_code(document) == 0


def test_an_error_in_a_step_is_told_and_the_others_run(tmp_path: Path) -> None:
    def broken(settings: Settings, budget: Budget, results: Any) -> Any:
        raise RuntimeError("an illegal access\nand more")

    steps = [Step("a", "", 1, broken), Step("b", "", 1, lambda settings, budget, results: "done")]
    document = runner.run(steps, CPU, Budget(30.0), tmp_path, "command", lambda line: None)
    assert [step["status"] for step in document["steps"]] == ["error", "done"]
    assert "an illegal access" in document["steps"][0]["error"] and "an illegal access" in table(document)
    assert runner.exit_code(document) == 1


def test_steps_share_what_is_left_by_weight(tmp_path: Path) -> None:
    clock, allowed = Clock(), list[float]()

    def taking(seconds: float) -> Any:
        def run(settings: Settings, budget: Budget, results: Any) -> Any:
            allowed.append(budget.left)
            clock.now += seconds
            return "done"

        return run

    steps = [Step("a", "", 1, taking(5)), Step("b", "", 2, taking(10)), Step("c", "", 1, taking(1))]
    runner.run(steps, CPU, clock.budget(100), tmp_path, "command", lambda line: None)
    assert allowed == pytest.approx([25, 95 * 2 / 3, 85])


def test_cases_are_left_when_the_next_would_not_end_in_time() -> None:
    clock = Clock()

    def measure(case: Case) -> dict[str, Any]:
        clock.now += 4
        return {}

    results: dict[str, Any] = {}
    over_cases([Case(name) for name in "abcd"], clock.budget(11), results, measure)
    assert list(results["cases"]) == ["a", "b"] and results["not_run"] == ["c", "d"]
    assert verdict(True, results) == "incomplete" and verdict(False, results) == "failed"


def test_a_case_that_ends_with_an_error_fails_the_step_and_the_next_ones_run() -> None:
    def measure(case: Case) -> dict[str, Any]:
        if case.key == "a":
            raise RuntimeError("no kernel for this")
        return {}

    results: dict[str, Any] = {}
    over_cases([Case(name) for name in "ab"], Budget(60), results, measure)
    assert list(results["cases"]) == ["b"] and not results["not_run"]
    assert "RuntimeError" in results["errors"]["a"] and "no kernel for this" in results["errors"]["a"]
    assert verdict(True, results) == "failed"


def test_the_alarm_rings_and_leaves_an_earlier_timer_running() -> None:
    before, _ = signal.getitimer(signal.ITIMER_REAL)
    with pytest.raises(OutOfTime), alarm(0.05):
        time.sleep(10)
    with alarm(60):
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60
    after, _ = signal.getitimer(signal.ITIMER_REAL)
    assert (after == 0) if before == 0 else (before - 5 < after <= before)


# times ---------------------------------------------------------------------------------------------------------------


def test_a_round_is_extrapolated_from_clients_and_steps() -> None:
    ladder = [Rung(k, 8 << k, 5 << k) for k in range(6)]
    clock = Clock()

    def seconds_of(rung: Rung) -> float:
        seconds = 0.5 + 0.01 * rung.steps
        clock.now += seconds
        return seconds

    found = climb(ladder, seconds_of, clock.budget(4.5))
    assert [rung.steps for rung, _ in found] == [5, 10, 20, 40]  # 80 more steps could take 2.2 times 0.9 seconds.
    rate = fit(found)
    assert [rate.client_seconds, rate.step_seconds] == pytest.approx([0.5, 0.01])
    assert rate.seconds(10, 6_800) == pytest.approx(73)
    assert fit(found[:1]) == Rate(0.0, found[0][1] / 5)
    assert fit([(ladder[0], 1.0), (ladder[1], 0.9)]) == Rate(0.0, 0.09)


def test_the_ladder_doubles_and_the_round_counts_its_steps() -> None:
    work = Work("fm", "float32")
    config = work.config(tiny=False)
    dataset = work.dataset(config, tiny=False)
    dealt, ladder = rungs(dataset, config)
    assert [rung.steps for rung in ladder] == [2 << k for k in range(len(ladder))]
    assert [len(rows) for rows in dealt.clients] == [rung.images for rung in ladder] + [0] * (20 - len(ladder))
    assert ladder[-1].images == 5_120 and len(dealt.clients) == 20
    assert round_steps(dataset, config, batch_norm=False) == (20, 1_218)


def test_overlapping_kernels_are_busy_once() -> None:
    def kernel(start: float, end: float, name: str = "gemm") -> Event:
        return Event(name, start, end, True, end - start)

    events = [kernel(0, 100), kernel(50, 150), kernel(60, 70), kernel(400, 500, "Memcpy HtoD")]
    assert busy(events) == 250
    host = [Event(name, 0, 1, False, 1.0) for name in ("cudaLaunchKernel", "cuLaunchKernelEx", "aten::mm", "other")]
    found = summary([*events, *host], steps=2, step_seconds=0.0005, on_gpu=True)
    assert found["device_busy"] == pytest.approx(0.25) and "launch overhead decides" in found["verdict"]
    assert (found["kernels_per_step"], found["copies_per_step"], found["launches_per_step"]) == (1.5, 0.5, 1.0)
    assert found["operators_per_step"] == 0.5
    assert [item["name"] for item in found["top"]] == ["gemm", "Memcpy HtoD"]
    assert found["top"][0]["share"] == pytest.approx(210 / 310)
    assert "kernels decide" in summary(events, 2, 0.000125, on_gpu=True)["verdict"]
    assert "both count" in summary(events, 2, 0.0002, on_gpu=True)["verdict"]
