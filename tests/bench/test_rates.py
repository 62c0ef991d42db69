"""Rates of this machine: measured within seconds, kept by what decides them, turned into hours."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
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
    # What the server does in a round does not grow with its clients.
    assert replace(rate, server=0.7).run_seconds(config, 1_000, 200) == pytest.approx(100 * (15 + 2.5 + 0.7) + 2)


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


class Clock:
    """Stands for the clock: a round costs what a table says of the images, clients and earlier rounds."""

    def __init__(self, *, image: float, client: float, server: float, every_fifth: float = 0.0) -> None:
        self.image, self.client, self.server, self.every_fifth = image, client, server, every_fifth

    def __call__(self, call: Any, place: Any, times: int = 1) -> float:
        run = getattr(call, "__self__", None)
        if getattr(call, "__name__", "") != "run_round":
            call()
            return 0.01
        total = 0.0
        for _ in range(times):
            index, sizes = run.completed_rounds, [len(rows) for rows in run.dataset.clients if len(rows)]
            call()
            # A first round in which clients have no state of their own yet costs nothing, as MOON's contrast does.
            total += bool(index) * (self.image * sum(sizes) + self.client * len(sizes) + self.server)
            total += self.every_fifth * (index % 5 == 0)
        return total / times


def test_parts_are_told_apart_and_a_first_round_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_seconds", Clock(image=1e-5, client=2e-3, server=5e-3))
    rate = measure_rate(CONFIG, DATA, "cpu", seconds=60)
    assert (rate.step_image, rate.client, rate.server) == pytest.approx((1e-5, 2e-3, 5e-3))


def test_a_server_that_takes_most_of_a_round_is_not_multiplied_by_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_seconds", Clock(image=1e-5, client=0.0, server=1.0))
    rate = measure_rate(CONFIG, DATA, "cpu", seconds=4)
    assert rate.server == pytest.approx(1, rel=0.15) and rate.step_image < 0.01


def test_what_happens_every_few_rounds_is_spread_over_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_seconds", Clock(image=1e-5, client=0.0, server=0.0, every_fifth=5e-3))
    assert measure_rate(CONFIG, DATA, "cpu", seconds=60).server == pytest.approx(1e-3)


def test_a_network_that_is_too_large_is_timed_in_part_and_in_time() -> None:
    case = prepare(WORKLOADS["cifar10_lt"], short=False, device="cpu")
    started = time.process_time()
    rate = measure_rate(case.config.replace({"training.batch_size": 64}), case.dataset, "cpu", seconds=1)
    assert time.process_time() - started < 15
    assert rate.step_image > rate.tested > 0


def test_a_heavy_set_up_is_not_repeated_beyond_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    built, spent = list[int](), [0.0]
    clock = SimpleNamespace(process_time=lambda: time.process_time() + spent[0])
    monkeypatch.setattr(rates, "time", clock)

    def slow(*arguments: Any) -> Simulation:
        built.append(1)
        spent[0] += 1.5
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


def test_every_algorithm_is_timed_and_costs_what_it_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    factors = {"fedavg": 1.0, "moon": 2.6, "fedyoyo": 3.5, "climb": 1.25}
    seconds: list[float] = []

    def fake(config: Any, dataset: Any, device: str, given: float) -> Rate:
        seconds.append(given)
        return Rate(0.001 * factors[config.federation.algorithm], 0.0, 0.0, 0.0)

    monkeypatch.setenv("FEDRELA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(rates, "measure_rate", fake)
    line = ["tune", "--dataset", "digits_lt", "--dry-run", "--device", "cpu", "--out", str(tmp_path / "study")]
    line += ["--max-concurrent", "1", "--stage", "trunks"]
    hours = {}
    for asked in ("fedavg", "moon", ",".join(factors)):
        assert main([*line, "--algorithm", asked, "--json"]) == 0
        plan = json.loads(capsys.readouterr().out)
        hours[asked] = plan["hours"]
    assert plan["relative_seconds"] == factors
    assert hours["moon"] == pytest.approx(2.6 * hours["fedavg"], abs=2e-4)
    assert hours[",".join(factors)] == pytest.approx(sum(factors.values()) * hours["fedavg"], abs=5e-4)
    assert len(seconds) == 4 and max(seconds) <= 5
    assert main([*line, "--algorithm", "fedavg,moon"]) == 0
    assert "samples/s; a run relative to fedavg: moon 2.6 x)" in capsys.readouterr().out


def test_a_dry_run_says_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDRELA_CACHE", str(tmp_path / "cache"))
    line = ["tune", "--dataset", "digits_lt", "--dry-run", "--device", "cpu", "--out", str(tmp_path / "study")]
    assert main([*line, "--max-concurrent", "1"]) == 0
    out = capsys.readouterr().out
    said = next(text for text in out.splitlines() if text.startswith("time: about "))
    assert "on 1 trial at a time (timed here: digits, batch 32: " in said
    assert re.search(r"samples/s; a run relative to fedavg: fedetf \d+\.\d x\)$", said)
    assert (tmp_path / "cache" / rates.FILE).is_file()
    assert not (tmp_path / "study").exists()
    monkeypatch.setattr(rates, "measure_rate", None)
    assert main([*line, "--json", "--max-concurrent", "1"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["hours"] > 0 and plan["slots"] == 1
