"""A share of a GPU that a finished baseline has already shown to be too small is refused with the one that fits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedrela_bench.errors import ConfigError
from fedrela_bench.simulation import devices
from fedrela_bench.study.preflight import preflight
from fedrela_bench.study.request import TuneRequest
from fedrela_bench.study.simulator import SimulationEngine
from fedrela_bench.study.trunk import run_trunk
from tests.study.fakes import FakeDataset, FakeEngine, request

MIB = 1 << 20
SPACE = {"algorithm": "fedavg"}


@pytest.fixture(autouse=True)
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedrela_bench.study.cluster._cuda_devices", lambda: 1)


def asking(out: Path, gpus: float, peak: int = 0, total: int = 24_000) -> TuneRequest:
    memory = {"peak_bytes": peak * MIB, "total_bytes": total * MIB} if peak else {}
    return request(out, SPACE, engine=FakeEngine(gpu_memory=memory), device="cuda", gpus_per_trial=gpus)


def with_baseline(out: Path, peak: int) -> None:
    plan = preflight(asking(out, 1.0, peak)).plan
    for trunk in plan.trunks():
        run_trunk(trunk.config, FakeDataset(f"data-{trunk.seed}"), plan.runtime, trunk.fork_rounds)


def test_a_share_below_the_baselines_peak_is_refused_with_the_one_that_fits(tmp_path: Path) -> None:
    preflight(asking(tmp_path, 0.125))
    with_baseline(tmp_path, peak=5000)
    with pytest.raises(ConfigError) as caught:
        preflight(asking(tmp_path, 0.125))
    assert caught.value.exit_code == 2
    assert str(caught.value) == (
        "--gpus-per-trial 0.125 gives a trial 3,000 of a GPU's 24,000 MiB, but the fedavg baseline with seed 1 held "
        "5,000 MiB; use 0.25 or more (at most 4 on a GPU)"
    )
    for enough in (0.25, 0.5, 1.0):
        preflight(asking(tmp_path, enough))


def test_the_share_that_is_named_is_accepted_although_it_is_rounded(tmp_path: Path) -> None:
    with_baseline(tmp_path, peak=8000)
    with pytest.raises(ConfigError, match=r"use 0\.3333 or more \(at most 3 on a GPU\)"):
        preflight(asking(tmp_path, 0.25))
    preflight(asking(tmp_path, 0.3333))


def test_a_baseline_that_recorded_no_peak_refuses_nothing(tmp_path: Path) -> None:
    with_baseline(tmp_path, peak=0)
    preflight(asking(tmp_path, 0.125))


def test_the_peak_is_recorded_on_a_gpu_and_absent_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert SimulationEngine().peak_memory() == {}
    gpu = type("Gpu", (), {"total_memory": 24_000 * MIB})
    monkeypatch.setattr(devices.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(devices.torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(devices.torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(devices.torch.cuda, "max_memory_allocated", lambda: 5000 * MIB)
    monkeypatch.setattr(devices.torch.cuda, "get_device_properties", lambda place: gpu)
    assert SimulationEngine().peak_memory() == {"peak_bytes": 5000 * MIB, "total_bytes": 24_000 * MIB}
