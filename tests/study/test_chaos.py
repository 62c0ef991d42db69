"""Whatever dies, and whenever: the study that is resumed until it is done is the study that was never disturbed."""

from __future__ import annotations

import json
import os
import signal
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

from fedrela_bench.errors import ConfigError
from fedrela_bench.study.runner import tune
from tests.study import fakes
from tests.study.drive import launch, mlflow_runs
from tests.study.fakes import FakeEngine, request

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
SPACE: dict[str, Any] = {
    "algorithm": "fedavg",
    "parameters": {
        "relabel.tau": {"choice": [0.05, 0.1]},
        "relabel.start": {"choice": [0.5, 0.7]},
        "relabel.period": {"choice": [0, 1, 2]},
    },
}
POINTS, KILLS = 12, 10
VOLATILE = ("owner", "seconds", "digest", "files")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A Ray cluster of two nodes; studies in processes of their own find it by its address."""
    import ray
    from ray.cluster_utils import Cluster

    os.environ["RAY_CHDIR_TO_TRIAL_DIR"] = "0"
    settings = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=settings)
    cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    cloudpickle.register_pickle_by_value(fakes)
    yield cluster
    ray.shutdown()
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


def repeated(log: Path) -> int:
    return sum(count - 1 for count in Counter(log.read_text().splitlines()).values())


def test_ten_kills_of_the_driver_change_nothing_and_cost_a_few_rounds(tmp_path: Path, nodes: Any) -> None:
    settings = {"sampler": "grid", "trials": POINTS, "ray_address": nodes.address, "max_concurrent": 2}
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    undisturbed = launch(calm, SPACE, tmp_path / "calm.log", **settings)
    output, _ = undisturbed.communicate(timeout=300)
    assert undisturbed.returncode == 0, output
    assert repeated(tmp_path / "calm.log") == 0
    rng, kills = np.random.default_rng(4), 0
    while True:
        process = launch(rough, SPACE, tmp_path / "rough.log", delay=0.4, **settings)
        if kills < KILLS:
            time.sleep(float(rng.uniform(2, 12)))
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                kills += 1
        output, _ = process.communicate(timeout=300)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, output
    assert kills >= 3
    assert finished(rough) == finished(calm)
    assert told(rough) == told(calm)
    assert tracked(rough) == tracked(calm)
    assert table(rough) == table(calm)
    lost = repeated(tmp_path / "rough.log")
    print(f"{kills} kills, {lost} rounds repeated of {len((tmp_path / 'calm.log').read_text().splitlines())}")
    # A state is written after every round; at a kill each of two runs is inside one, and may not have recorded another.
    assert lost <= 4 * kills


def test_two_drivers_on_one_store_compute_nothing_twice(tmp_path: Path, nodes: Any) -> None:
    settings = {"sampler": "grid", "trials": POINTS, "ray_address": nodes.address, "max_concurrent": 1}
    settings |= {"store": str(tmp_path / "store")}
    log = tmp_path / "log"
    drivers = [launch(tmp_path / name, SPACE, log, delay=0.1, **settings) for name in ("a", "b")]
    for driver in drivers:
        output, _ = driver.communicate(timeout=300)
        assert driver.returncode == 0, output
    assert repeated(log) == 0
    assert told(tmp_path / "a") == told(tmp_path / "b")
    assert len(told(tmp_path / "a")) == POINTS


def test_a_second_driver_of_a_living_study_is_refused_and_does_no_harm(tmp_path: Path, nodes: Any) -> None:
    settings = {"sampler": "grid", "trials": POINTS, "ray_address": nodes.address, "max_concurrent": 2}
    first = launch(tmp_path / "s", SPACE, tmp_path / "log", delay=0.2, **settings)
    while not (tmp_path / "s" / "study.json").exists():
        time.sleep(0.1)
    second = launch(tmp_path / "s", SPACE, tmp_path / "log", **settings)
    output, _ = second.communicate(timeout=120)
    assert second.returncode == 1
    assert f"process {first.pid} on" in output and "runs the study in" in output
    output, _ = first.communicate(timeout=300)
    assert first.returncode == 0, output
    assert repeated(tmp_path / "log") == 0


def test_what_no_node_of_a_cluster_has_is_refused_with_numbers(tmp_path: Path, nodes: Any) -> None:
    asked = request(tmp_path / "s", SPACE, ray_address=nodes.address, cpus_per_trial=64)
    began = time.monotonic()
    with pytest.raises(
        ConfigError, match=r"asks for 64 CPUs and 0 GPUs, but there are \d nodes, the largest with 1 CPUs"
    ):
        tune(asked)
    assert time.monotonic() - began < 30
    assert not list((tmp_path / "s" / "store").glob("*/*/rounds.jsonl"))


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

    node = nodes.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    try:
        removal = Removal(nodes, node, tmp_path / "s" / "store", 3)
        removal.start()
        engine = FakeEngine(delay=0.2, log=tmp_path / "log")
        settings = {"sampler": "grid", "trials": POINTS, "rolling_rounds": 1, "max_concurrent": 3}
        result = tune(request(tmp_path / "s", SPACE, engine=engine, **settings))
        removal.join(60)
    finally:
        ray.shutdown()
    assert not removal.is_alive(), "the node was never removed"
    assert (result.status, result.exit_code, len(result.trials)) == ("finished", 0, POINTS)
    assert {row.outcome.status for row in result.trials} == {"completed"}
    assert {run.info.status for run in mlflow_runs(tmp_path / "s")} == {"FINISHED"}
    assert repeated(tmp_path / "log") <= 4


def test_a_node_that_cannot_start_runs_is_left_out_and_the_study_finishes(tmp_path: Path, nodes: Any) -> None:
    import ray

    node = nodes.add_node(num_cpus=1, object_store_memory=80 * 2**20, env_vars={"BAD_NODE": "1"})
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    try:
        engine = FakeEngine(delay=0.3, bad_nodes="BAD_NODE")
        settings = {"sampler": "grid", "trials": POINTS, "max_concurrent": 3}
        result = tune(request(tmp_path / "s", SPACE, engine=engine, **settings))
    finally:
        ray.shutdown()
        nodes.remove_node(node)
    assert (result.exit_code, len(result.trials)) == (0, POINTS)
    assert {row.outcome.status for row in result.trials} == {"completed"}
