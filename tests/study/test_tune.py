"""`tune` on Ray as a user runs it: real digits, a second call, a killed driver, failing trials, signals."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedrela_bench import Simulation, TrialConfig, load_dataset
from fedrela_bench.config import parse
from fedrela_bench.errors import ConfigError, RunError
from fedrela_bench.study.request import TuneRequest
from fedrela_bench.study.runner import render_text, tune
from fedrela_bench.study.simulator import SimulationEngine
from fedrela_bench.study.space import parse_space
from fedrela_bench.yaml_io import load_mapping
from tests.study.drive import PATIENT, local_ray, mlflow_runs, optuna_states, soon, start, wait_for
from tests.study.fakes import FakeEngine, request

pytestmark = pytest.mark.cluster
TINY = {
    "data.imbalance_factor": 10,
    "federation.clients": 3,
    "federation.rounds": 5,
    "training.batch_size": 64,
    "training.model": "digits",
    "evaluation.selection": "test_slice",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One Ray for the module."""
    with local_ray():
        yield


def digits(out: Path, **changes: Any) -> TuneRequest:
    space = parse_space(
        {
            "algorithm": "fedavg",
            "parameters": {"relabel.tau": {"choice": [0.05, 0.1]}, "relabel.start": {"choice": [0.4, 0.6]}},
            "trials": 2,
            "seeds": 2,
        }
    )
    settings = {"progress": "quiet", "device": "cpu", "stages": ("trunks", "search"), **changes}
    return TuneRequest({"fedavg": TrialConfig().replace(TINY)}, space, out, "digits_lt", **settings)


def test_a_study_on_real_images(tmp_path: Path, cluster: None) -> None:
    out = tmp_path / "study"
    result = tune(digits(out))
    assert (result.status, result.exit_code, len(result.trials)) == ("finished", 0, 2)
    assert result.counts["trunks_computed"] == 2 and result.counts["cells_computed"] == 4
    assert result.baselines[0].outcome.metrics["val/overall"] > 0
    assert all(row.outcome.std for row in result.trials)
    assert "fedavg (baseline)" in render_text(result)
    json.dumps(result.to_json(), allow_nan=False)

    runs = mlflow_runs(out)
    parent = next(run for run in runs if run.data.tags["kind"] == "study")
    children = [run for run in runs if run is not parent]
    assert sorted(run.data.tags["kind"] for run in children) == ["cell"] * 4 + ["trunk"] * 2
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parent.info.run_id}
    assert {run.info.status for run in runs} == {"FINISHED"}

    config = parse(load_mapping(out / "best" / "overall.yaml", "a configuration").value)
    final = [round_.metrics for round_ in Simulation(config, load_dataset(config))][-1]
    cell = next(run for run in children if run.data.tags.get("config_key") and _is(run, config))
    assert {name: final[name] for name in ("test/overall", "val/overall")} == {
        name: cell.data.metrics[name] for name in ("test/overall", "val/overall")
    }

    before = (out / "optuna.journal").stat().st_size
    began = time.monotonic()
    again = tune(digits(out))
    assert again.counts["cells_computed"] == again.counts["trunks_computed"] == 0
    assert [row.outcome for row in again.trials] == [row.outcome for row in result.trials]
    assert time.monotonic() - began < soon(5)
    assert (out / "optuna.journal").stat().st_size <= before + 2000
    assert len(mlflow_runs(out)) == len(runs)
    more = tune(digits(out, trials=3))
    assert more.counts["cells_computed"] == 2 and len(more.trials) == 3


def _is(run: Any, config: TrialConfig) -> bool:
    params = run.data.params
    return bool(
        run.data.tags["kind"] == "cell"
        and params["seed"] == str(config.seed)
        and params["relabel.tau"] == str(config.relabel.tau)
        and params["relabel.start"] == str(config.relabel.start)
    )


def test_another_space_in_the_same_folder_is_refused(tmp_path: Path, cluster: None) -> None:
    tune(request(tmp_path, trials=1))
    other = request(tmp_path, {"parameters": {"relabel.tau": {"choice": [0.1]}}, "seeds": 2}, trials=1)
    with pytest.raises(ConfigError) as caught:
        tune(other)
    text = str(caught.value)
    for part in ("space.parameters.relabel.tau was", "seeds was [1] and is [1, 2]", "choose another --out"):
        assert part in text


def test_a_trial_process_never_imports_mlflow(tmp_path: Path, cluster: None) -> None:
    note = tmp_path / "modules"
    tune(request(tmp_path / "study", engine=FakeEngine(modules_note=note), trials=2))
    modules = note.read_text().split()
    assert "fedrela_bench.study.cell" in modules
    assert not {"mlflow", "optuna"} & set(modules)


def test_failures_do_not_end_a_study(tmp_path: Path, cluster: None) -> None:
    space = {"algorithm": "fedavg", "parameters": {"relabel.tau": {"choice": [0.03, 0.05, 0.07, 0.1]}}}
    engine = FakeEngine(crashes_at=0.1, diverges_at=0.05, dies_at=0.03)
    result = tune(request(tmp_path, space, engine=engine, sampler="grid", trials=4))
    by_tau = {row.point["relabel.tau"]: row.outcome for row in result.trials}
    assert {tau: outcome.status for tau, outcome in by_tau.items()} == {
        0.03: "failed",
        0.05: "diverged",
        0.07: "completed",
        0.1: "failed",
    }
    assert by_tau[0.03].error == "the trial's process died"
    assert "no luck" in by_tau[0.1].error
    assert result.exit_code == 1
    assert [row.point["relabel.tau"] for row in result.pareto] == [0.07]
    assert "RUNNING" not in optuna_states(tmp_path)
    healed = tune(request(tmp_path, space, sampler="grid", trials=4))
    assert (healed.exit_code, healed.counts["cells_computed"]) == (0, 2)
    assert {run.info.status for run in mlflow_runs(tmp_path)} == {"FINISHED"}


def test_a_failed_baseline_says_why(tmp_path: Path, cluster: None) -> None:
    space = {"algorithm": "fedavg"}
    broken = FakeEngine(worker_fault=OSError("no luck"))
    with pytest.raises(RunError, match=r"fedavg baseline seed 1 failed: OSError: no luck \(details in ") as caught:
        tune(request(tmp_path / "a", space, engine=broken))
    kept = tmp_path / "a" / str(caught.value).rpartition("details in ")[2].rstrip(")")
    assert "Traceback" in kept.read_text()
    wrong = FakeEngine(worker_fault=ConfigError("bad lr; use 0.1"))
    with pytest.raises(ConfigError, match=r"^bad lr; use 0\.1$"):
        tune(request(tmp_path / "b", space, engine=wrong))


def test_a_group_without_classes_is_said_before_the_search(tmp_path: Path, cluster: None) -> None:
    with pytest.raises(ConfigError, match="val/tail cannot be measured on digits_lt"):
        tune(request(tmp_path, engine=FakeEngine(measures_tail=False)))


def finished_cells(out: Path) -> dict[str, float]:
    return {path.parent.name: path.stat().st_mtime for path in out.glob("store/*/*/result.json")}


@pytest.mark.slow
def test_a_killed_driver_loses_nothing_that_was_finished(tmp_path: Path) -> None:
    first = start(tmp_path)
    wait_for(first, "[2/6]")
    first.send_signal(signal.SIGKILL)
    first.wait()
    time.sleep(2)
    before = finished_cells(tmp_path)
    assert len(before) >= 3
    second = start(tmp_path)
    output, _ = second.communicate(timeout=PATIENT)
    assert second.returncode == 0, output
    assert "DONE finished 6" in output
    after = finished_cells(tmp_path)
    assert len(after) == 7
    assert {name: after[name] for name in before} == before
    assert "RUNNING" not in optuna_states(tmp_path)
    runs = mlflow_runs(tmp_path)
    assert len(runs) == 8 and {run.info.status for run in runs} == {"FINISHED"}


def test_the_engine_of_the_package_is_the_default(tmp_path: Path) -> None:
    asked = digits(tmp_path)
    assert isinstance(asked.engine, SimulationEngine)
    assert replace(asked, trials=9).target == 9
