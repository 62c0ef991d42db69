"""What users of other tools miss: threads, memory shares, short names, clean folders, a quick second call."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fedrela_bench.errors import ConfigError
from fedrela_bench.study.engine import SimulationEngine
from fedrela_bench.study.runner import tune
from tests.study.drive import launch
from tests.study.fakes import request

SPACE = {"algorithm": "fedavg"}


def test_a_trial_computes_with_as_many_threads_as_the_cores_it_asked_for() -> None:
    code = (
        "from fedrela_bench.study.engine import SimulationEngine; import torch\n"
        "SimulationEngine().prepare(3, 0.0); print(torch.get_num_threads())"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "3"


@pytest.mark.parametrize(("share", "capped"), [(0.25, [0.25]), (1.0, []), (0.0, [])])
def test_a_trial_that_shares_a_gpu_may_use_its_part_and_gives_it_back(
    monkeypatch: pytest.MonkeyPatch, share: float, capped: list[float]
) -> None:
    import torch

    caps, emptied, threads = list[float](), list[int](), torch.get_num_threads()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", caps.append)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(1))
    SimulationEngine().prepare(threads, share)
    SimulationEngine().release()
    assert (caps, emptied) == (capped, [1])


def test_more_gpus_than_there_are_is_said_at_once(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(ConfigError, match=r"asks for 1 CPUs and 3 GPUs, but there are .* GPUs; lower") as caught:
        tune(request(tmp_path / "study", SPACE, device="cuda", gpus_per_trial=3.0))
    assert time.monotonic() - began < 5
    assert caught.value.exit_code == 2 and not (tmp_path / "study").exists()


@pytest.mark.cluster
@pytest.mark.slow
def test_a_study_leaves_a_small_folder_of_short_names_and_answers_at_once_when_repeated(tmp_path: Path) -> None:
    out, log = tmp_path / "study", tmp_path / "log"
    settings: dict[str, Any] = {"sampler": "random", "trials": 12, "max_concurrent": 2}
    first = launch(out, SPACE, log, delay=0.0, **settings)
    output, _ = first.communicate(timeout=300)
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
    output, _ = second.communicate(timeout=60)
    assert second.returncode == 0 and "DONE finished 12 0" in output
    assert time.monotonic() - began < (15 if os.getloadavg()[0] < 2 * (os.cpu_count() or 1) else 45)
    assert len(log.read_text().splitlines()) == rounds
