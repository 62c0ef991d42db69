"""Requests that cannot work end at once with numbers and exit code 2; nothing is started or written."""

from __future__ import annotations

import math
import os
import pickle
import re
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from fedrela_bench.errors import ConfigError
from fedrela_bench.study.cluster import Capacity, _cuda_devices, concurrency, gpu_faults, pick_device
from fedrela_bench.study.futility import Futility
from fedrela_bench.study.identity import check_identity, register
from fedrela_bench.study.runner import make_plan, preflight, tune
from fedrela_bench.study.samplers import check_sampler, check_storage
from fedrela_bench.study.simulator import SimulationEngine
from fedrela_bench.study.space import parse_space
from fedrela_bench.study.worker import trainable
from tests.study.drive import ROOT, soon
from tests.study.fakes import SPACE, FakeEngine, config, request

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def refused(tmp_path: Path, **changes: Any) -> str:
    out = tmp_path / "study"
    with pytest.raises(ConfigError) as caught:
        tune(request(out, **changes))
    assert caught.value.exit_code == 2
    assert not out.exists()
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "numbers"),
    [
        ({"cpus_per_trial": 10_000}, r"asks for 10000 CPUs, but there are \d+; lower --cpus-per-trial"),
        ({"device": "cuda", "gpus_per_trial": 3.0}, r"asks for 1 CPUs and 3 GPUs, but there are \d+ CPUs and \d GPUs;"),
    ],
)
def test_what_this_machine_does_not_have_is_said_before_images_are_read(
    tmp_path: Path, changes: dict[str, Any], numbers: str
) -> None:
    engine, began = FakeEngine(), time.monotonic()
    text = refused(tmp_path, engine=engine, **changes)
    assert re.search(numbers, text) and engine.loads == []
    assert time.monotonic() - began < soon(5)


COMMAND = """
import sys
from fedrela_bench.cli import main
code = main(sys.argv[1:])
print(sorted({"ray", "optuna", "mlflow", "sqlalchemy", "sklearn"} & set(sys.modules)))
sys.exit(code)
"""


@pytest.mark.parametrize("asked", [["--cpus-per-trial", "10000"], ["--gpus-per-trial", "3"]])
def test_the_command_refuses_it_without_a_folder_and_without_ray(tmp_path: Path, asked: list[str]) -> None:
    if asked[0].startswith("--gpus") and _cuda_devices() >= 3:
        pytest.skip("this machine has as many GPUs")
    began = time.monotonic()
    command = [sys.executable, "-c", COMMAND, "tune", "--dataset", "digits_lt", "--out", "s", *asked]
    ended = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert time.monotonic() - began < soon(5)
    assert ended.returncode == 2 and "error: a trial asks for" in ended.stderr
    assert ended.stdout.splitlines()[-1] == "[]", "what was imported in vain"
    assert not list(tmp_path.iterdir())


def test_a_cluster_that_does_not_answer(tmp_path: Path) -> None:
    began = time.monotonic()
    text = refused(tmp_path, ray_address="127.0.0.1:9")
    assert text.startswith("no Ray cluster answers at 127.0.0.1:9 (")
    assert time.monotonic() - began < soon(5)


@pytest.mark.parametrize("banner", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", None])
def test_something_else_than_ray_at_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, banner: bytes | None
) -> None:
    """Ray would ask it again and again, for minutes."""
    monkeypatch.setattr("fedrela_bench.study.address.CONNECT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        answer = threading.Thread(target=_say, args=(server, banner), daemon=True)
        answer.start()
        text = refused(tmp_path, ray_address=f"127.0.0.1:{server.getsockname()[1]}")
    assert ("is no Ray cluster" in text) if banner is not None else "(timed out)" in text
    assert "--ray-address" in text


def _say(server: socket.socket, banner: bytes | None) -> None:
    line, _ = server.accept()
    with line:
        line.recv(1000)
        line.sendall(banner or b"")
        if banner is None:
            line.recv(1000)


def test_a_database_without_a_driver_or_a_server_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    for driver in ("psycopg", "psycopg2"):
        monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(ConfigError) as caught:
        check_storage("postgresql://me:secret@127.0.0.1:9/x")
    text = str(caught.value)
    assert "needs the package psycopg" in text and "pip install 'fedrela-bench[postgres]'" in text
    assert "postgresql://me:***@127.0.0.1:9/x" in text and "secret" not in text


def test_a_device_and_a_gpu_request_that_contradict_each_other(tmp_path: Path) -> None:
    assert "with device cpu" in refused(tmp_path, gpus_per_trial=1.0)
    assert "needs --gpus-per-trial above 0" in refused(tmp_path, device="cuda", gpus_per_trial=0.0)


def test_everything_wrong_is_said_at_once(tmp_path: Path) -> None:
    text = refused(
        tmp_path, space={"objectives": ["minority"]}, sampler="tpee", trials=0, tracking_uri="file:///somewhere"
    )
    for part in (
        "unknown sampler tpee; did you mean tpe?",
        "--trials 0",
        "use sqlite:////somewhere/mlflow.db",
        "objective minority is not measured here; valid: overall, head, medium, tail",
    ):
        assert part in text


@pytest.mark.parametrize("fraction", [0.0, 0.2, 0.25, 1 / 3, 0.33, 0.5, 1.0, 2.0])
def test_fractions_that_fill_a_gpu(fraction: float) -> None:
    assert gpu_faults(fraction) == []


def test_a_fraction_that_wastes_a_third_names_better_ones() -> None:
    assert gpu_faults(0.34) == [
        "--gpus-per-trial 0.34 fits 2 times on a GPU and wastes the rest; use 0.3333 (3 per GPU) or 0.5 (2 per GPU)"
    ]
    assert "use 1 or 2" in gpu_faults(1.5)[0]


@pytest.mark.parametrize("fraction", [-1.0, math.nan, math.inf, -math.inf, 5e-324, 1e-9])
def test_no_share_of_a_gpu(tmp_path: Path, fraction: float) -> None:
    assert len(gpu_faults(fraction)) == 1
    assert f"--gpus-per-trial {fraction:g} " in refused(tmp_path, gpus_per_trial=fraction, device="cuda")
    assert f"--gpus-per-trial {fraction:g} " in refused(tmp_path, gpus_per_trial=fraction, device="auto")


def test_how_many_trials_run_at_once(tmp_path: Path) -> None:
    two_nodes = Capacity(((8.0, 2.0), (4.0, 0.0)))
    assert two_nodes.fit(1, 0) == 12
    assert two_nodes.fit(1, 0.25) == 8
    assert two_nodes.fit(2, 0.5) == 4
    assert two_nodes.fit(1, 2) == 1
    assert concurrency(request(tmp_path, max_concurrent=3), 0.0, two_nodes) == 3
    with pytest.raises(ConfigError, match="2 nodes, the largest with 8 CPUs and 2 GPUs"):
        concurrency(request(tmp_path), 3.0, two_nodes)


def test_grid_needs_a_finite_space() -> None:
    space = parse_space({"algorithm": "fedavg", "parameters": {"training.lr": {"loguniform": [1e-3, 1e-1]}}})
    with pytest.raises(ConfigError, match="step or choices"):
        check_sampler("grid", space)


def test_a_trial_is_a_few_kilobytes_to_ship(tmp_path: Path) -> None:
    asked = request(tmp_path)
    plan = make_plan(asked, asked.settled(), "cpu")
    assert len(cloudpickle.dumps(trainable(plan, 0.0))) < 2**20
    assert pickle.loads(pickle.dumps(plan)).digests == plan.digests


def test_paths_hold_in_any_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = request(Path("study"), data_dir=Path("data")).rooted()
    assert asked.data_dir == tmp_path / "data"
    asked = request(Path("study"))
    bases = {name: config(data__source="folder:images") for name in asked.bases}
    rooted = type(asked)(bases, asked.space, asked.out, "x").rooted()
    assert rooted.bases["fedavg"].data.source == f"folder:{tmp_path / 'images'}"


def test_selection_is_honest_unless_the_test_set_is_asked_for(tmp_path: Path) -> None:
    asked = request(tmp_path)
    plain = {name: config(evaluation__selection="none") for name in asked.bases}
    honest = type(asked)(plain, asked.space, tmp_path, "x")
    assert {base.evaluation.selection for base in honest.settled().values()} == {"test_slice"}
    assert honest.objectives == ("val/overall", "val/tail")
    oracle = {name: config(evaluation__selection="oracle") for name in asked.bases}
    assert type(asked)(oracle, asked.space, tmp_path, "x").objectives == ("test/overall", "test/tail")
    step = {name: config(data__profile="step") for name in asked.bases}
    assert type(asked)(step, asked.space, tmp_path, "x").objectives == ("val/overall", "val/minority")


def test_device_auto_follows_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedrela_bench.study.cluster._cuda_devices", lambda: 0)
    assert pick_device(request(tmp_path, device="auto")) == ("cpu", 0.0)
    monkeypatch.setattr("fedrela_bench.study.cluster._cuda_devices", lambda: 2)
    assert pick_device(request(tmp_path, device="auto")) == ("cuda", 1.0)
    assert pick_device(request(tmp_path, device="auto", gpus_per_trial=0.5)) == ("cuda", 0.5)


def test_checking_a_request_starts_nothing(tmp_path: Path) -> None:
    request(tmp_path, SPACE).settled()
    assert "ray" not in sys.modules or not __import__("ray").is_initialized()


def test_an_objective_without_classes_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeEngine, "measured", lambda *_: {"overall", "head"})
    with pytest.raises(ConfigError, match=r"has no tail classes.*among head, overall"):
        preflight(request(tmp_path / "study", {"objectives": ["overall", "tail"]}))
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("measured", "objectives", "told"),
    [
        ({"overall", "head", "tail"}, ("val/overall", "val/tail"), ""),
        ({"overall", "head", "medium"}, ("val/overall", "val/medium"), "so val/overall and val/medium (the rarest cl"),
        ({"overall", "head"}, ("val/overall",), "so val/overall alone is the objective"),
    ],
)
def test_without_tail_classes_the_rarest_that_there_are_are_the_objective_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: set[str], objectives: tuple[str, ...], told: str
) -> None:
    monkeypatch.setattr(FakeEngine, "measured", lambda *_: measured)
    plan = preflight(request(tmp_path / "study", futility=Futility(2, 0.1))).plan
    assert plan.request.objectives == objectives
    assert plan.runtime.futility is not None and plan.runtime.futility.objectives == objectives
    assert len(plan.data_notes) == bool(told) and told in "".join(plan.data_notes)
    assert register(plan)["identity"]["objectives"] == list(objectives)
    check_identity(preflight(request(tmp_path / "study", futility=Futility(2, 0.1))).plan)


def test_an_objective_is_one_that_every_seed_can_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups by truncated counts per client depend on the partition."""
    groups = {1: {"overall", "head", "medium", "tail"}, 2: {"overall", "head", "medium"}}
    monkeypatch.setattr(FakeEngine, "measured", lambda self, config, dataset: groups[config.seed])
    plan = preflight(request(tmp_path / "study", seeds=(1, 2))).plan
    assert plan.request.objectives == ("val/overall", "val/medium")
    with pytest.raises(ConfigError, match="has no tail classes"):
        preflight(request(tmp_path / "study", {"objectives": ["tail"]}, seeds=(1, 2)))


def test_a_table_of_two_classes_has_objectives(tmp_path: Path) -> None:
    """80 rows of one class and 20 of the other are head and medium."""
    rows = [f"{index % 7},{index % 5},{'no' if index % 5 else 'yes'}" for index in range(100)]
    (tmp_path / "claims.csv").write_text("\n".join(["amount,age,label", *rows]) + "\n")
    base = config(**{"data.source": f"table:{tmp_path / 'claims.csv'}", "data.profile": "natural"})
    base = base.replace({"federation.clients": 2, "data.alpha": 100.0, "evaluation.selection": "none"})
    asked = request(tmp_path / "study", {"algorithm": "fedavg"}, engine=SimulationEngine())
    assert preflight(replace(asked, bases={"fedavg": base})).plan.request.objectives == ("val/overall", "val/medium")
