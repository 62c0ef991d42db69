"""Rates of this machine: measured within seconds, kept by what decides them, turned into hours."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from fedrela_bench.bench import rates
from fedrela_bench.bench.case import prepare
from fedrela_bench.bench.rates import Rate, measure_rate, rate_key, rate_of, study_hours
from fedrela_bench.bench.workloads import WORKLOADS
from fedrela_bench.cli import main
from fedrela_bench.cli.forecast import duration
from fedrela_bench.config import parse
from fedrela_bench.data import load_dataset
from fedrela_bench.simulation import Simulation

CONFIG = parse({"federation": {"clients": 4, "rounds": 6}, "training": {"model": "digits"}})
DATA = load_dataset(CONFIG)


def test_a_full_run_adds_up_to_its_parts() -> None:
    rate = Rate(step_image=0.01, client=0.5, tested=0.001, relabelled=0.002)
    config = parse(
        {
            "federation": {"clients": 10, "rounds": 100, "participation": 0.5},
            "training": {"local_epochs": 3},
            "evaluation": {"eval_every": 10},
        }
    )
    # 100 rounds of 500 images x 3 epochs and 5 clients, 10 evaluations of 200 images.
    assert rate.run_seconds(config, images=1_000, tested=200) == pytest.approx(100 * (15 + 2.5) + 10 * 0.2)


def test_hours_of_a_study() -> None:
    seconds = {"a": 7200.0, "b": 21600.0}
    assert study_hours(seconds, longest=7200.0, slots=2) == pytest.approx(4)
    # Nothing takes less than its longest run.
    assert study_hours(seconds, longest=7200.0, slots=1_000) == pytest.approx(2)
    assert study_hours({"a": 0.0}, longest=7200.0, slots=1) == 0


@pytest.mark.parametrize(
    ("hours", "text"), [(0, "1 s"), (0.01, "36 s"), (0.5, "30 min"), (3.2, "3.2 h"), (100, "4.2 days")]
)
def test_durations_are_read_easily(hours: float, text: str) -> None:
    assert duration(hours) == text


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "fedetf"])
def test_a_measured_rate_foretells_a_run(algorithm: str) -> None:
    config = CONFIG.replace({"federation.algorithm": algorithm})
    rate = measure_rate(config, DATA, "cpu", seconds=2)
    foretold = rate.run_seconds(config, len(DATA.labels), len(DATA.test_labels))
    simulation = Simulation(config, DATA)
    simulation.run_round()
    started = time.process_time()
    for _ in range(5):
        simulation.run_round()
    took = (time.process_time() - started) * 6 / 5
    assert took / 4 < foretold < took * 4
    assert rate.relabelled > 0


def test_a_network_that_is_too_large_is_timed_in_part_and_in_time() -> None:
    case = prepare(WORKLOADS["cifar10_lt"], short=False, device="cpu")
    started = time.process_time()
    rate = measure_rate(case.config.replace({"training.batch_size": 64}), case.dataset, "cpu", seconds=1)
    assert time.process_time() - started < 15
    assert rate.step_image > rate.tested > 0


def test_a_heavy_set_up_is_not_repeated_beyond_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []

    def slow(*arguments: Any) -> Simulation:
        built.append(1)
        time.sleep(1.5)
        return Simulation(*arguments)

    monkeypatch.setattr(rates, "Simulation", slow)
    assert measure_rate(CONFIG, DATA, "cpu", seconds=2).step_image > 0
    assert len(built) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"training.batch_size": 8},
        {"training.model": "lenet"},
        {"training.amp": "bf16"},
        {"federation.algorithm": "fedprox"},
        {"relabel.posterior_views": 5},
        {"data.imbalance_factor": 10},
        {"data.profile": "balanced"},
        {"data.alpha": 0.1},
        {"federation.clients": 5},
    ],
)
def test_what_decides_a_rate_is_in_its_key(change: dict[str, Any]) -> None:
    assert rate_key(CONFIG.replace(change), DATA, "cpu") != rate_key(CONFIG, DATA, "cpu")


@pytest.mark.parametrize("change", [{"seed": 2}, {"relabel.tau": 0.2}, {"federation.rounds": 9}, {"training.lr": 0.2}])
def test_what_does_not_decide_a_rate_is_not(change: dict[str, Any]) -> None:
    assert rate_key(CONFIG.replace(change), DATA, "cpu") == rate_key(CONFIG, DATA, "cpu")


def test_a_rate_is_measured_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def fake(config: Any, dataset: Any, device: str, seconds: float) -> Rate:
        measured.append(config.training.model)
        return Rate(0.1, 0.2, 0.3, 0.4)

    monkeypatch.setattr(rates, "measure_rate", fake)
    assert rate_of(CONFIG, DATA, "cpu", folder=tmp_path) == rate_of(CONFIG, DATA, "cpu", folder=tmp_path)
    other = CONFIG.replace({"training.model": "lenet"})
    rate_of(other, DATA, "cpu", folder=tmp_path)
    rate_of(CONFIG, DATA, "cpu", folder=tmp_path)
    assert measured == ["digits", "lenet"]
    path = tmp_path / rates.FILE
    assert len(json.loads(path.read_text())["rates"]) == 2
    for damage in (
        "{",
        "[]",
        '{"version": 0, "rates": {}}',
        '{"version": 1, "rates": {"a": {"b": 1}}}',
        '{"version": 1}',
    ):
        path.write_text(damage)
        rate_of(CONFIG, DATA, "cpu", folder=tmp_path)
        assert len(json.loads(path.read_text())["rates"]) == 1
    monkeypatch.setattr(rates, "SIMULATION_VERSION", "another")
    rate_of(CONFIG, DATA, "cpu", folder=tmp_path)
    assert len(measured) == 2 + 5 + 1


def test_a_cache_that_cannot_be_written_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "measure_rate", lambda *_: Rate(0.1, 0.2, 0.3, 0.4))
    (tmp_path / "file").write_text("")
    assert rate_of(CONFIG, DATA, "cpu", folder=tmp_path / "file").client == 0.2


def test_a_dry_run_says_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDRELA_CACHE", str(tmp_path / "cache"))
    line = ["tune", "--dataset", "digits_lt", "--dry-run", "--device", "cpu", "--out", str(tmp_path / "study")]
    assert main([*line, "--max-concurrent", "1"]) == 0
    out = capsys.readouterr().out
    said = next(text for text in out.splitlines() if text.startswith("time: about "))
    assert "on 1 trial at a time (timed here: digits, batch 32: " in said and said.endswith("samples/s)")
    assert (tmp_path / "cache" / rates.FILE).is_file()
    assert not (tmp_path / "study").exists()
    monkeypatch.setattr(rates, "measure_rate", None)
    assert main([*line, "--json", "--max-concurrent", "1"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["hours"] > 0 and plan["slots"] == 1
