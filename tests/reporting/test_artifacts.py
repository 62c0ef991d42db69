"""Files of runs from a real MLflow store, what a trunk records of its classes, and the reader of images here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrela_bench.cli.training_data import training_data_reader
from fedrela_bench.config import TrialConfig
from fedrela_bench.data import load_dataset
from fedrela_bench.errors import DataError, StoreError
from fedrela_bench.reporting.artifacts import MlflowArtifacts
from fedrela_bench.reporting.source import StudyRuns
from fedrela_bench.study.simulator import SimulationEngine
from fedrela_bench.yaml_io import dump_yaml
from tests.data.makers import config, visits, write_text
from tests.reporting.fakes import study
from tests.reporting.files import npz


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, str, Path]:
    """A client, a run with files, and where they lie."""
    from mlflow.tracking import MlflowClient

    folder = tmp_path_factory.mktemp("store")
    client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    run = client.create_run(client.create_experiment("e", artifact_location=str(folder / "artifacts"))).info.run_id
    made = folder / "made"
    (made / "plots").mkdir(parents=True)
    (made / "curves.npz").write_bytes(npz(per_class_rounds=[1, 2]))
    (made / "broken.npz").write_bytes(b"PK\x03\x04 half a file")
    (made / "config.yaml").write_text(dump_yaml({"data": {"source": "digits", "alpha": 1e-05}, "seed": 1}))
    (made / "plots" / "a.png").write_bytes(b"x")
    client.log_artifacts(run, str(made))
    return client, run, folder


def runs_of(client: Any) -> StudyRuns:
    known = study()
    return StudyRuns(
        known.dataset, known.frame, known.load_history, known.objectives, artifacts=MlflowArtifacts(client)
    )


def test_arrays_of_a_run(store: tuple[Any, str, Path], capfd: pytest.CaptureFixture[str]) -> None:
    client, run, _ = store
    runs = runs_of(client)
    assert runs.artifacts.names(run) == ("broken.npz", "config.yaml", "curves.npz")
    arrays = runs.arrays(run, "curves.npz")
    assert arrays is not None and arrays["per_class_rounds"].tolist() == [1, 2]
    assert runs.arrays(run, "partition.npz") is None
    assert capfd.readouterr().err == "", "no progress bars"
    with pytest.raises(StoreError, match=r"broken\.npz is damaged"):
        runs.arrays(run, "broken.npz")


def test_a_recorded_configuration_reads_back_as_it_was(store: tuple[Any, str, Path]) -> None:
    client, run, _ = store
    assert runs_of(client).configuration(run) == {"data": {"source": "digits", "alpha": 1e-05}, "seed": 1}


def test_runs_without_files_have_none() -> None:
    assert study().arrays("cell-a-1", "curves.npz") is None
    assert study().configuration("cell-a-1") is None


def test_files_that_are_gone_are_said(store: tuple[Any, str, Path]) -> None:
    client, run, folder = store
    runs = runs_of(client)
    assert "curves.npz" in runs.artifacts.names(run)
    (folder / "artifacts").rename(folder / "moved")
    try:
        with pytest.raises(StoreError, match="check the artifact store"):
            runs.arrays(run, "curves.npz")
        assert runs_of(client).artifacts.names(run) == ()
    finally:
        (folder / "moved").rename(folder / "artifacts")


# the data behind runs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "groups"), [("lt", {"head", "medium", "tail"}), ("step", {"majority", "minority"})]
)
def test_a_trunk_records_its_classes_and_the_reader_agrees(profile: str, groups: set[str]) -> None:
    config = TrialConfig().replace({"data.profile": profile, "data.imbalance_factor": 20.0, "federation.clients": 5})
    dataset = load_dataset(config)
    recorded = SimulationEngine().partition(config, dataset)
    found = training_data_reader()(config.model_dump(mode="json"))
    assert recorded["names"].tolist() == list(found.names) == [str(digit) for digit in range(10)]
    assert recorded["groups"].tolist() == list(found.groups)
    assert set(found.groups) == groups
    assert np.array_equal(recorded["client_counts"], found.client_counts)
    assert recorded["client_counts"].sum() == len(dataset.labels) == len(found.labels)
    assert found.digest == dataset.digest
    pictures = found.images(np.array([0, 5]))
    assert pictures.shape == (2, 8, 8, 1) and pictures.dtype == np.uint8
    assert np.array_equal(pictures[1], dataset.train_images[dataset.subset[5]])


def test_rows_of_a_table_are_known_to_be_no_pictures(tmp_path: Path) -> None:
    read, source = training_data_reader(), f"table:{write_text(tmp_path / 't.csv', visits())}"
    assert not read(config(source, profile="balanced").model_dump(mode="json")).pictures
    assert read(config("digits").model_dump(mode="json")).pictures


def test_nothing_is_downloaded_for_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedrela_bench.data.sources import download

    def never(source: str, cache_dir: Path) -> None:
        raise AssertionError(f"a report downloads {source}")

    monkeypatch.setattr(download, "_download", never)
    monkeypatch.setenv("FEDRELA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDRELA_DATA", raising=False)
    config = TrialConfig().replace({"data.source": "cifar100"})
    with pytest.raises(DataError, match="cifar100 are not on this machine; give --data-dir"):
        training_data_reader()(config.model_dump(mode="json"))
    own = TrialConfig().replace({"data.source": f"folder:{tmp_path / 'gone'}"})
    with pytest.raises(DataError, match="not a folder"):
        training_data_reader()(own.model_dump(mode="json"))
