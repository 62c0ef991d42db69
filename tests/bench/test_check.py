"""Comparison with a baseline: a slow-down is seen, noise is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrela_bench.bench.check import (
    ATTEMPTS,
    confirmed,
    missing,
    notes,
    pooled,
    read_baseline,
    slower,
    uncompared,
    update_baseline,
)
from fedrela_bench.errors import ConfigError, StoreError
from tests.bench.makers import MACHINE, case, result

BASE = {"fm": {"ours/naive": 0.50, "round/bare": 1.02}}


def measured(slowdown: float, noise: float, rng: np.random.Generator, repetitions: int = 3) -> dict[str, Any]:
    """A measurement of a program that is slower than the baseline by a factor, on a machine with noise."""
    values = 0.50 * slowdown * rng.lognormal(0, noise, repetitions)
    return case("fm", {"ours/naive": [float(value) for value in values]})


def called_worse(slowdown: float, noise: float, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    _, worse = confirmed(BASE, [measured(slowdown, noise, rng)], 0.10, lambda key: measured(slowdown, noise, rng))
    return bool(worse)


def test_slower_by_more_than_the_tolerance_is_seen_and_less_is_not() -> None:
    at = {name: slower(BASE, case("fm", {"ours/naive": [0.50 * name]}), 0.10) for name in (1.09, 1.11, 0.5)}
    assert not at[1.09] and not at[0.5]
    assert [str(item) for item in at[1.11]] == ["fm: ours/naive was 0.500 and is 0.555 (+11 %)"]
    assert not slower(BASE, case("fm", {"ours/naive": [0.58]}), 0.20)


@pytest.mark.parametrize("ratio", ["ours/naive", "round/bare"])
def test_every_ratio_is_held(ratio: str) -> None:
    ratios = {"ours/naive": [0.50], "round/bare": [1.02]}
    assert not slower(BASE, case("fm", ratios), 0.10)
    ratios[ratio] = [ratios[ratio][0] * 1.2]
    assert [item.ratio for item in slower(BASE, case("fm", ratios), 0.10)] == [ratio]


def test_noise_is_rarely_called_a_slow_down() -> None:
    assert sum(called_worse(1.0, 0.08, seed) for seed in range(200)) <= 4
    assert not any(called_worse(1.0, 0.03, seed) for seed in range(200))


def test_a_real_slow_down_is_seen_through_noise() -> None:
    assert sum(called_worse(1.15, 0.03, seed) for seed in range(200)) >= 190
    assert sum(called_worse(1.30, 0.08, seed) for seed in range(200)) >= 190


def test_only_what_seems_worse_is_measured_again_and_all_measurements_count() -> None:
    asked: list[str] = []

    def again(key: str) -> dict[str, Any]:
        asked.append(key)
        return case(key, {"ours/naive": [0.50, 0.50, 0.50]})

    good = case("digits", {"ours/naive": [0.3]})
    bad = case("fm", {"ours/naive": [0.60, 0.60, 0.50]})
    cases, worse = confirmed({**BASE, "digits": {"ours/naive": 0.3}}, [good, bad], 0.10, again)
    assert asked == ["fm"] and not worse
    assert cases[0] is good
    assert cases[1]["ratios"]["ours/naive"]["values"] == [0.60, 0.60, 0.50, 0.50, 0.50, 0.50]
    assert cases[1]["ratios"]["ours/naive"]["median"] == 0.50


def test_measuring_again_ends() -> None:
    asked: list[str] = []

    def again(key: str) -> dict[str, Any]:
        asked.append(key)
        return case(key, {"ours/naive": [0.9]})

    cases, worse = confirmed(BASE, [case("fm", {"ours/naive": [0.9]})], 0.10, again)
    assert len(asked) == ATTEMPTS - 1
    assert len(cases[0]["ratios"]["ours/naive"]["values"]) == ATTEMPTS
    assert [item.now for item in worse] == [0.9]


def test_pooling_keeps_the_rest_of_the_first_measurement() -> None:
    first, second = case("fm"), case("fm")
    both = pooled(first, second)
    assert len(both["ratios"]["ours/naive"]["values"]) == 6
    assert both["lanes"] == first["lanes"]


@pytest.mark.parametrize("machine", [[1], 3, {"flags": 3}, {"flags": None}])
def test_a_baseline_with_a_damaged_machine_is_refused_before_anything_runs(tmp_path: Path, machine: Any) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps({"schema": 1, "machine": machine, "cases": {"fm": {"ours/naive": 0.5}}}))
    with pytest.raises(ConfigError, match="no baseline of schema"):
        read_baseline(path)
    assert list(notes({"machine": {"cpu": 7, "flags": [1]}, "cases": {}}, result()))


def test_what_is_not_compared_is_said() -> None:
    base = {"fm": {"ours/naive": 0.5, "ours w2/naive": 0.3}, "digits": {"other": 0.5}}
    said = list(notes({"machine": MACHINE, "cases": base}, result(case("fm", {"ours/naive": [0.5]}))))
    assert said == ["fm: in the baseline but not measured here, and not compared: ours w2/naive"]
    assert uncompared(base, [case("fm"), case("digits")]) == ["digits"]


def test_baselines_are_written_read_and_extended(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks" / "baseline.json"
    update_baseline(path, result(case("fm"), case("digits", {"ours/naive": [0.33333]})))
    update_baseline(path, result(case("fm", {"ours/naive": [0.4], "ours w2/naive": [0.3]})))
    baseline = read_baseline(path)
    assert baseline["cases"] == {
        "digits": {"ours/naive": 0.3333},
        "fm": {"ours/naive": 0.4, "round/bare": 1.03, "ours w2/naive": 0.3},
    }
    assert baseline["machine"] == MACHINE
    assert "seconds" not in path.read_text()
    assert missing(baseline["cases"], ["fm", "fm short"]) == ["fm short"]
    assert [item.name for item in path.parent.iterdir()] == ["baseline.json"]


def test_a_reader_is_told_of_another_processor_and_of_new_ratios(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    update_baseline(path, result(case("fm", {"ours/naive": [0.5]})))
    baseline, same = read_baseline(path), result(case("fm", {"ours/naive": [0.5]}))
    assert list(notes(baseline, same)) == []
    other = {**result(case("fm")), "machine": {**MACHINE, "flags": ["avx2"]}}
    told = list(notes(baseline, other))
    assert "can differ between processors" in told[0]
    assert told[1] == "fm: not in the baseline and not compared: round/bare"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("{", "is not JSON"),
        ("[]", "is no baseline"),
        ('{"schema": 99, "cases": {}}', "is no baseline"),
        ('{"schema": 1, "cases": {"fm": {"ours/naive": 0}}}', "is no baseline"),
        ('{"schema": 1, "cases": {"fm": {"ours/naive": "fast"}}}', "is no baseline"),
        ('{"schema": 1, "cases": {"fm": 3}}', "is no baseline"),
    ],
)
def test_what_is_no_baseline_is_refused_with_the_remedy(text: str | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=said) as refused:
        read_baseline(path)
    assert f"--update-baseline {path}" in str(refused.value)


def test_a_foreign_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_text(json.dumps({"mine": 1}))
    with pytest.raises(ConfigError):
        update_baseline(path, result(case()))
    assert json.loads(path.read_text()) == {"mine": 1}


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="choose another place"):
        update_baseline(tmp_path / "file" / "baseline.json", result(case()))
