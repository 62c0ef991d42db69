"""What users of other tools miss: threads, memory shares, short names, clean folders, a quick second call."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fedrela_bench.errors import ConfigError, RunError
from fedrela_bench.study.batch import Crew
from fedrela_bench.study.nodes import Nodes
from fedrela_bench.study.runner import make_plan, tune
from fedrela_bench.study.simulator import SimulationEngine
from tests.study.drive import PATIENT, launch, soon
from tests.study.fakes import request

SPACE = {"algorithm": "fedavg"}


def test_a_trial_computes_with_as_many_threads_as_the_cores_it_asked_for() -> None:
    code = (
        "from fedrela_bench.study.simulator import SimulationEngine; import torch\n"
        "with SimulationEngine().process(3, 0.0): print(torch.get_num_threads())"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "3"


@pytest.mark.parametrize(("share", "capped"), [(0.25, [0.25, 1.0]), (2.0, [1.0, 1.0]), (0.0, [])])
def test_a_trial_that_shares_a_gpu_may_use_its_part_and_gives_it_back(
    monkeypatch: pytest.MonkeyPatch, share: float, capped: list[float]
) -> None:
    import torch

    caps, emptied, threads = list[float](), list[int](), torch.get_num_threads()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda part, device: caps.append(part))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(1))
    with SimulationEngine().process(threads, share):
        assert caps == capped[:1]
    assert (caps, emptied) == (capped, [1])


def test_a_trial_that_wants_more_gpu_memory_than_its_share_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    gpu = type("Gpu", (), {"total_memory": 1000 << 20})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    for name in ("set_per_process_memory_fraction", "reset_peak_memory_stats", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda *arguments: None)
    with (
        pytest.raises(RunError, match=r"may hold 25\.0% of it, 250 MiB.*larger share.*--gpus-per-trial"),
        SimulationEngine().process(torch.get_num_threads(), 0.25),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_more_gpus_than_there_are_is_said_at_once(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(ConfigError, match=r"asks for 1 CPUs and 3 GPUs, but there are .* GPUs; lower") as caught:
        tune(request(tmp_path / "study", SPACE, device="cuda", gpus_per_trial=3.0))
    assert time.monotonic() - began < soon(5)
    assert caught.value.exit_code == 2 and not (tmp_path / "study").exists()


@pytest.mark.cluster
@pytest.mark.slow
def test_a_study_leaves_a_small_folder_of_short_names_and_answers_at_once_when_repeated(tmp_path: Path) -> None:
    out, log = tmp_path / "study", tmp_path / "log"
    settings: dict[str, Any] = {"sampler": "random", "trials": 12, "max_concurrent": 2}
    first = launch(out, SPACE, log, delay=0.0, **settings)
    output, _ = first.communicate(timeout=PATIENT)
    assert first.returncode == 0, output
    files = [path for path in out.rglob("*") if path.is_file()]
    assert not [path for path in files if "tfevents" in path.name or path.name.endswith(".tmp")]
    assert not [path for path in files if path.suffix == ".pt" and path.parent.parent.name == "cells"]
    assert max(len(path.name) for path in files if "artifacts" not in path.parts) <= 32
    assert sum(path.stat().st_size for path in files) < 20 * 2**20
    assert not [name for name in (".ray", ".ray_dir", ".tune", ".stop", ".lock") if (out / name).exists()]
    rounds = len(log.read_text().splitlines())
    began = time.monotonic()
    second = launch(out, SPACE, log, delay=0.0, **settings)
    output, _ = second.communicate(timeout=PATIENT)
    assert second.returncode == 0 and "DONE finished 12 0" in output
    assert time.monotonic() - began < soon(15)
    assert len(log.read_text().splitlines()) == rounds


def test_names_of_folders_do_not_grow_with_what_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty parameters with slashes in their values are no part of a path."""
    from ray import tune as ray_tune

    from fedrela_bench.study import tuner

    seen: dict[str, Any] = {}
    monkeypatch.setattr(ray_tune, "Tuner", lambda trainable, **settings: seen.update(settings))
    monkeypatch.setattr(ray_tune, "with_resources", lambda trainable, resources: trainable)
    monkeypatch.setattr("fedrela_bench.study.search.SafeOptunaSearch", lambda *arguments: None)
    asked = request(tmp_path, SPACE)
    plan = make_plan(asked, asked.settled(), "cpu")
    crew = Crew(plan, *([None] * 2), Nodes(), 0.0, 1, 1.0)  # type: ignore[arg-type]
    ledger = type("Books", (), {"remaining": 3, "in_flight": {}})
    tuner._tuner(crew, ledger, *([None] * 4), tmp_path)  # type: ignore[arg-type]
    trial = type("Trial", (), {"trial_id": "0a1b2c3d", "config": {f"a/{n}": "b/" * 40 for n in range(30)}})
    named = seen["tune_config"]
    assert named.trial_name_creator(trial) == named.trial_dirname_creator(trial) == "0a1b2c3d"
