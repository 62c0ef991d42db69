"""The best configuration's model in MLflow: loaded by its URI it repeats the recorded confusion matrix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrela_bench import TrialConfig, load_dataset
from fedrela_bench.data.federated import FederatedDataset
from fedrela_bench.study.cell import run_cell
from fedrela_bench.study.engine import Runtime
from fedrela_bench.study.simulator import SimulationEngine
from fedrela_bench.study.store import Store
from fedrela_bench.study.trunk import run_trunk
from fedrela_bench.tracking.manifest import Manifest, Record
from fedrela_bench.tracking.mlflow_sink import Sink, sync
from fedrela_bench.tracking.state import is_complete, load_state
from fedrela_bench.tracking.ui import default_uri

CONFIG = TrialConfig(
    data={"source": "digits", "profile": "lt", "imbalance_factor": 20},
    federation={"algorithm": "logit_adjustment", "options": {"form": "posthoc"}, "clients": 4, "rounds": 4},
    training={"model": "digits", "lr": 0.1, "batch_size": 16},
    relabel={"tau": 0.1, "start": 0.5},
    evaluation={"selection": "test_slice"},
)


class Study:
    """One trunk and one cell, really computed, whose cell is the best."""

    def __init__(self, out: Path) -> None:
        self.out, self.uri = out, default_uri(out)
        self.dataset: FederatedDataset = load_dataset(CONFIG)
        engine = SimulationEngine()
        environment = Runtime(Store(out / "store"), engine, model_seed=CONFIG.seed)
        run_trunk(CONFIG, self.dataset, environment, [2])
        run_cell(CONFIG, self.dataset, environment)
        digest = self.dataset.digest
        self.trunk, self.cell = environment.trunk(CONFIG, digest), environment.entry(CONFIG, digest)
        manifest, tags = Manifest(out), {"data_digest": digest}
        common: dict[str, Any] = {"algorithm": "logit_adjustment", "seed": CONFIG.seed, "created": 1.0, "tags": tags}
        for entry, config in ((self.trunk, CONFIG.base()), (self.cell, CONFIG)):
            fork = {"trunk_folder": manifest.relative(self.trunk.folder), "fork_round": 2, "trial": 0}
            manifest.add(
                Record(
                    entry.kind,
                    entry.key,
                    manifest.relative(entry.folder),
                    config=config.model_dump(mode="json"),
                    name=entry.kind,
                    trunk_key=self.trunk.key,
                    **(fork if entry.kind == "cell" else {}),
                    **common,
                )
            )
        self.write(best={"overall": f"cell:{self.cell.key}", "tail": f"cell:{self.cell.key}"})

    def write(self, log_models: str = "best", best: dict[str, str] | None = None) -> None:
        facts = SimulationEngine().facts(CONFIG, self.dataset)
        space = {"algorithms": ["logit_adjustment"], "parameters": {"relabel.tau": ["choice", [0.1, 0.2]]}}
        values = {
            "study": "abc",
            "created": 1.0,
            "experiment": "fedrela-bench/digits_lt",
            "dataset": "digits_lt",
            "status": "finished",
            "identity": {"space": space, "seeds": [CONFIG.seed], "objectives": ["val/overall", "val/tail"]},
            "parent_tags": {"study": "abc"},
            "datasets": {self.dataset.digest: facts},
            "log_models": log_models,
            "best": best or {},
        }
        (self.out / "study.json").write_text(json.dumps(values))

    def client(self) -> Any:
        from mlflow.tracking import MlflowClient

        return MlflowClient(tracking_uri=self.uri)

    def models(self) -> list[Any]:
        client = self.client()
        return list(client.search_logged_models([e.experiment_id for e in client.search_experiments()]))

    def run(self, name: str) -> Any:
        return self.client().get_run(load_state(self.out, self.uri).runs[name].run_id)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    made = Study(tmp_path_factory.mktemp("study"))
    assert Sink(made.out, made.uri).close("FINISHED")
    return made


def test_the_loaded_model_repeats_the_recorded_confusion_matrix(study: Study) -> None:
    import mlflow

    (logged,) = study.models()
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(study.uri)
    try:
        model = mlflow.pyfunc.load_model(f"models:/{logged.model_id}")
    finally:
        mlflow.set_tracking_uri(before)
    labels = model.predict(study.dataset.test_images)
    selection, report = study.dataset.test_slices()
    with np.load(study.cell.folder / "curves.npz") as arrays:
        for name, rows in (("test", report), ("val", selection)):
            seen = np.zeros((10, 10), dtype=np.int64)
            np.add.at(seen, (study.dataset.test_labels[rows], labels[rows]), 1)
            assert (seen == arrays[f"confusion_{name}"]).all()
    logits = model.predict(study.dataset.test_images[:3], params={"output": "logits"})
    assert (logits.argmax(axis=1) == labels[:3]).all()
    assert model.metadata.signature.inputs.inputs[0].shape == (-1, 8, 8, 1)
    assert (model.input_example == study.dataset.test_images[:1]).all()


def test_the_model_says_what_it_needs(study: Study) -> None:
    import torch

    (logged,) = study.models()
    folder = Path(logged.artifact_location.removeprefix("file://"))
    required = (folder / "requirements.txt").read_text().split()
    assert f"torch=={torch.__version__.partition('+')[0]}" in required
    assert any(line.startswith("fedrela-bench==") for line in required)
    assert str(study.out) not in (folder / "MLmodel").read_text()


def test_best_runs_are_marked_and_only_they_have_models(study: Study) -> None:
    cell = study.run(f"cell:{study.cell.key}")
    assert cell.data.tags["best"] == "overall, tail"
    assert [output.model_id for output in cell.outputs.model_outputs] == [study.models()[0].model_id]
    trunk = study.run(f"trunk:{study.trunk.key}")
    assert "best" not in trunk.data.tags and not (trunk.outputs and trunk.outputs.model_outputs)


def test_nothing_is_logged_twice_and_marks_move(study: Study) -> None:
    assert is_complete(study.out, study.uri)
    (study.out / "tracking.json").unlink()
    sync(study.out)
    assert len(study.models()) == 1 and is_complete(study.out, study.uri)
    study.write(best={"overall": f"trunk:{study.trunk.key}", "tail": f"cell:{study.cell.key}"})
    assert not is_complete(study.out, study.uri)
    sync(study.out)
    assert is_complete(study.out, study.uri)
    assert study.run(f"cell:{study.cell.key}").data.tags["best"] == "tail"
    assert study.run(f"trunk:{study.trunk.key}").data.tags["best"] == "overall"
    assert len(study.models()) == 2
    study.write(best={"tail": f"cell:{study.cell.key}"})
    sync(study.out)
    assert "best" not in study.run(f"trunk:{study.trunk.key}").data.tags


def test_a_kill_between_a_models_parts_leaves_one_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.tracking import MlflowClient

    study, real, lost = Study(tmp_path), MlflowClient.finalize_logged_model, list[int]()

    def gone(self: Any, *arguments: Any) -> Any:
        if not lost:
            lost.append(1)
            raise ConnectionError("gone")
        return real(self, *arguments)

    monkeypatch.setattr(MlflowClient, "finalize_logged_model", gone)
    sink = Sink(study.out, study.uri)
    assert not sink.close("FINISHED") and "gone" in str(sink.down)
    assert study.run(f"cell:{study.cell.key}").info.status == "FINISHED", "everything else is logged"
    assert not is_complete(study.out, study.uri)
    (study.out / "tracking.json").unlink()
    sync(study.out)
    assert [str(model.status) for model in study.models()] == ["READY"]
    assert len(study.run(f"cell:{study.cell.key}").outputs.model_outputs) == 1


def test_no_models_are_logged_where_none_are_wanted(tmp_path: Path) -> None:
    study = Study(tmp_path)
    study.write(log_models="none", best={"overall": f"cell:{study.cell.key}"})
    assert Sink(study.out, study.uri).close("FINISHED")
    assert not study.models() and is_complete(study.out, study.uri)


@pytest.mark.slow
def test_the_command_line_predicts(study: Study, tmp_path: Path) -> None:
    logged = next(model for model in study.models() if model.tags["key"] == study.cell.key)
    example = Path(logged.artifact_location.removeprefix("file://")) / "serving_input_example.json"
    root = Path(__file__).resolve().parents[2]
    settings = {"MLFLOW_TRACKING_URI": study.uri, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "mlflow", "models", "predict", "-m", f"models:/{logged.model_id}"]
    command += ["-i", str(example), "-o", str(tmp_path / "out.json"), "--env-manager", "local"]
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (label,) = json.loads((tmp_path / "out.json").read_text())["predictions"]
    assert label in range(10)
