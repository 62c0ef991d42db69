"""Whatever dies, and whenever: the study that is resumed until it is done is the study that was never disturbed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import optuna
import pytest

from fedrela_bench.errors import ConfigError, StoreError
from fedrela_bench.study import connection
from fedrela_bench.study.connection import leave, patiently
from fedrela_bench.study.runner import tune
from tests.study import fakes
from tests.study.drive import PATIENT, launch, mlflow_runs, soon
from tests.study.fakes import FakeEngine, request

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(3600)]
SPACE: dict[str, Any] = {
    "algorithm": "fedavg",
    "parameters": {
        "relabel.tau": {"choice": [0.05, 0.1]},
        "relabel.start": {"choice": [0.5, 0.7]},
        "relabel.period": {"choice": [0, 1, 2]},
    },
}
POINTS, FEW, KILLS = 12, 8, 10
VOLATILE = ("owner", "seconds", "digest", "files")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A Ray cluster of two nodes; studies in processes of their own find it by its address."""
    from ray.cluster_utils import Cluster

    os.environ.update(connection.FLAGS)
    settings = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    cloudpickle.register_pickle_by_value(fakes)
    cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args=settings))
    patiently(lambda: cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20))
    yield cluster
    leave()
    cluster.shutdown()


def finished(out: Path) -> dict[str, Any]:
    """Every result of a store without what is different in every run, by key."""
    results = {}
    for path in sorted((out / "store").glob("*/*/result.json")):
        values = json.loads(path.read_text())
        results[values["key"]] = {name: value for name, value in values.items() if name not in VOLATILE}
    return results


def told(out: Path) -> dict[str, Any]:
    """What Optuna's storage says of every configuration; nothing may be RUNNING."""
    backend = optuna.storages.journal.JournalFileBackend(str(out / "optuna.journal"))
    study = optuna.load_study(study_name="study", storage=optuna.storages.JournalStorage(backend))
    assert {trial.state.name for trial in study.trials} <= {"COMPLETE", "FAIL"}
    complete = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    return {json.dumps(trial.params, sort_keys=True): trial.values for trial in complete}


def tracked(out: Path) -> dict[str, Any]:
    """Status, curve and final numbers of every MLflow run, by key; each key once."""
    from mlflow.tracking import MlflowClient

    client, found = MlflowClient(tracking_uri=f"sqlite:///{out / 'mlflow.db'}"), dict[str, Any]()
    for run in mlflow_runs(out):
        key = run.data.tags.get("key", "study")
        assert key not in found
        status, params = run.info.status, dict(run.data.params)
        history = client.get_metric_history(run.info.run_id, "val/tail") if key != "study" else []
        found[key] = (status, [(point.step, point.value) for point in history], params)
    return found


def table(out: Path) -> list[list[str]]:
    """The report's rows without the order in which Optuna happened to number them."""
    return sorted(line.split(",")[1:] for line in (out / "trials.csv").read_text().splitlines())


def rounds(log: Path) -> list[str]:
    """What was computed so far, by any process."""
    return log.read_text().splitlines() if log.exists() else []


def repeated(log: Path) -> int:
    return sum(count - 1 for count in Counter(rounds(log)).values())


def kill(process: subprocess.Popen[str], log: Path, rng: np.random.Generator, delay: float) -> bool:
    """SIGKILL while the study starts, or in the midst of one of its next rounds; False when it ended before."""
    more, before = int(rng.integers(0, 4)), len(rounds(log))
    if more == 0:
        time.sleep(float(rng.uniform(0.5, 4)))
    while process.poll() is None and len(rounds(log)) < before + more:
        time.sleep(0.01)
    time.sleep(float(rng.uniform(0, delay)))
    if process.poll() is not None:
        return False
    process.kill()
    return True


def test_ten_kills_of_the_driver_change_nothing_and_cost_a_few_rounds(tmp_path: Path, nodes: Any) -> None:
    settings = {"sampler": "grid", "trials": POINTS, "ray_address": nodes.address, "max_concurrent": 2}
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    undisturbed = launch(calm, SPACE, tmp_path / "calm.log", **settings)
    output, _ = undisturbed.communicate(timeout=PATIENT)
    assert undisturbed.returncode == 0, output
    assert repeated(tmp_path / "calm.log") == 0
    rng, kills, log, delay = np.random.default_rng(4), 0, tmp_path / "rough.log", 0.2
    while True:
        process = launch(rough, SPACE, log, delay=delay, **settings)
        kills += kills < KILLS and kill(process, log, rng, delay)
        output, _ = process.communicate(timeout=PATIENT)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, output
    assert kills >= KILLS / 2
    assert finished(rough) == finished(calm)
    assert told(rough) == told(calm)
    assert tracked(rough) == tracked(calm)
    assert table(rough) == table(calm)
    lost = repeated(log)
    print(f"{kills} kills, {lost} rounds repeated of {len(rounds(tmp_path / 'calm.log'))}")
    # A state is written after every round; at a kill each of two runs is inside one, and may not have recorded another.
    assert lost <= 4 * kills


def test_two_drivers_on_one_store_compute_nothing_twice(tmp_path: Path, nodes: Any) -> None:
    settings = {"sampler": "grid", "trials": FEW, "ray_address": nodes.address, "max_concurrent": 1}
    settings |= {"store": str(tmp_path / "store")}
    log = tmp_path / "log"
    drivers = [launch(tmp_path / name, SPACE, log, **settings) for name in ("a", "b")]
    for driver in drivers:
        output, _ = driver.communicate(timeout=PATIENT)
        assert driver.returncode == 0, output
    assert repeated(log) == 0
    assert told(tmp_path / "a") == told(tmp_path / "b")
    assert len(told(tmp_path / "a")) == FEW


def test_a_second_driver_of_a_living_study_is_refused_and_does_no_harm(tmp_path: Path, nodes: Any) -> None:
    settings = {"sampler": "grid", "trials": 2, "ray_address": nodes.address, "max_concurrent": 2}
    gate = tmp_path / "gate"
    first = launch(tmp_path / "s", SPACE, tmp_path / "log", gate=gate, **settings)
    while not (tmp_path / "s" / "study.json").exists():
        assert first.poll() is None, first.communicate()[0]
        time.sleep(0.1)
    second = launch(tmp_path / "s", SPACE, tmp_path / "log", **settings)
    output, _ = second.communicate(timeout=PATIENT)
    assert second.returncode == 1
    assert f"process {first.pid} on" in output and "runs the study in" in output
    gate.touch()
    output, _ = first.communicate(timeout=PATIENT)
    assert first.returncode == 0, output
    assert repeated(tmp_path / "log") == 0


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"cpus_per_trial": 64}, "64 CPUs and 0 GPUs"),
        ({"device": "cuda", "gpus_per_trial": 3.0}, "1 CPUs and 3 GPUs"),
    ],
)
def test_what_no_node_of_a_cluster_has_is_refused_once_it_is_joined(
    tmp_path: Path, nodes: Any, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], told: str
) -> None:
    import ray

    connect, stamps = connection._connect, list[float]()
    monkeypatch.setattr(connection, "_connect", lambda *given: (connect(*given), stamps.append(time.monotonic())))
    with pytest.raises(
        ConfigError, match=rf"asks for {told}, but there are \d nodes, the largest with 1 CPUs"
    ) as caught:
        tune(request(tmp_path / "s", SPACE, ray_address=nodes.address, **asked))
    assert time.monotonic() - stamps[0] < soon(5)
    assert caught.value.exit_code == 2
    assert not list(tmp_path.iterdir()) and not ray.is_initialized()


class Removal(threading.Thread):
    """Takes a node away once some cells are finished."""

    def __init__(self, nodes: Any, node: Any, store: Path, after: int) -> None:
        super().__init__(daemon=True)
        self.nodes, self.node, self.store, self.after = nodes, node, store, after

    def run(self) -> None:
        while len(list(self.store.glob("cells/*/result.json"))) < self.after:
            time.sleep(0.1)
        self.nodes.remove_node(self.node, allow_graceful=False)


def test_a_node_that_goes_away_in_mid_search_costs_a_few_rounds(tmp_path: Path, nodes: Any) -> None:
    import ray

    node = patiently(lambda: nodes.add_node(num_cpus=1, object_store_memory=80 * 2**20))
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    try:
        removal = Removal(nodes, node, tmp_path / "s" / "store", 2)
        removal.start()
        engine = FakeEngine(delay=0.2, log=tmp_path / "log")
        settings = {"sampler": "grid", "trials": FEW, "rolling_rounds": 1, "max_concurrent": 3}
        result = tune(request(tmp_path / "s", SPACE, engine=engine, **settings))
        removal.join(PATIENT)
    finally:
        leave()
    assert not removal.is_alive(), "the node was never removed"
    assert (result.status, result.exit_code, len(result.trials)) == ("finished", 0, FEW)
    assert {row.outcome.status for row in result.trials} == {"completed"}
    assert {run.info.status for run in mlflow_runs(tmp_path / "s")} == {"FINISHED"}
    assert repeated(tmp_path / "log") <= 4


def test_a_node_that_cannot_start_runs_is_left_out_and_the_study_finishes(tmp_path: Path, nodes: Any) -> None:
    import ray

    settings = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "env_vars": {"BAD_NODE": "1"}}
    node = patiently(lambda: nodes.add_node(**settings))
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    try:
        engine = FakeEngine(delay=0.2, bad_nodes="BAD_NODE")
        settings = {"sampler": "grid", "trials": FEW, "max_concurrent": 3}
        result = tune(request(tmp_path / "s", SPACE, engine=engine, **settings))
    finally:
        leave()
        nodes.remove_node(node)
    assert (result.exit_code, len(result.trials)) == (0, FEW)
    assert {row.outcome.status for row in result.trials} == {"completed"}
    failures = [path.read_text() for path in (tmp_path / "s" / "errors").glob("*.txt")]
    assert failures and all("no luck on this node" in text for text in failures)


APART = """
mount -t tmpfs tmpfs "$1" || exit 3
shift
exec "$@"
"""


@pytest.fixture
def blind_node(tmp_path: Path, nodes: Any) -> Iterator[Path]:
    """A node that has an empty folder where the others have the study's, where this process may make one."""
    import ray

    hidden = tmp_path / "studies"
    hidden.mkdir()
    unshare = [shutil.which("unshare") or "false", "--mount", "sh", "-c", APART, "sh", str(hidden)]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no right to mount here; tests of the roll call with scripted nodes cover the same code")
    start = ["-m", "ray.scripts.scripts", "start", f"--address={nodes.address}", "--num-cpus=1", "--block"]
    command = [*unshare, sys.executable, *start, "--object-store-memory=83886080"]
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    before = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    node = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not {node["NodeID"] for node in ray.nodes() if node["Alive"]} - before:
            assert node.poll() is None, "the node did not start"
            time.sleep(0.1)
        yield hidden
    finally:
        os.killpg(node.pid, signal.SIGKILL)
        node.wait()
        leave()


def test_a_node_that_does_not_see_the_study_ends_it_before_anything_is_computed(blind_node: Path) -> None:
    engine = FakeEngine(log=blind_node.parent / "log")
    with pytest.raises(StoreError, match=r"store is not visible on .*; choose one that all nodes share") as caught:
        tune(request(blind_node / "s", SPACE, engine=engine, sampler="grid", trials=2))
    assert caught.value.exit_code == 1 and not (blind_node.parent / "log").exists()
