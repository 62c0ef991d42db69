"""Served models: alone in a file they score images as the run did, whatever the algorithm's score needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedrela_bench import Simulation
from fedrela_bench.errors import ConfigError, StoreError
from fedrela_bench.simulation.metrics import confusion_matrix
from fedrela_bench.simulation.served import Predictor, load_model, save_model, scored_model
from tests import kit_tools
from tests.kits import ROWS, Row


def served(simulation: Simulation, path: Path) -> Predictor:
    save_model(path, scored_model(simulation))
    return Predictor(load_model(path))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_every_algorithm_is_served_by_the_score_that_is_reported(row: Row, tmp_path: Path) -> None:
    dataset = kit_tools.skewed()
    config = kit_tools.trial(row, relabel={"tau": 0.2, "start": 0.5})
    simulation = Simulation(config, dataset)
    last = list(simulation)[-1]
    predictor = served(simulation, tmp_path / "model.bin")
    for _ in range(2):
        labels = predictor.predict(dataset.test_images)
        for name, rows in simulation.data.slices.items():
            seen = confusion_matrix(dataset.test_labels[rows], labels[rows], dataset.num_classes)
            assert (seen == last.confusion[name]).all()
    logits = predictor.predict(dataset.test_images, {"output": "logits"})
    assert logits.shape == (len(labels), dataset.num_classes)
    assert (logits.argmax(axis=1) == labels).all()


@pytest.fixture
def predictor(tmp_path: Path) -> Predictor:
    simulation = Simulation(kit_tools.trial(Row("fedavg")), kit_tools.skewed())
    return served(simulation, tmp_path / "model.bin")


def test_wrong_images_and_outputs_say_what_is_taken(predictor: Predictor) -> None:
    images = kit_tools.skewed().test_images
    for wrong in (images[0], images.astype(np.float32), images[:, :-1]):
        with pytest.raises(ConfigError, match=r"the model takes \(n, .*\) uint8, not .*neither scaled"):
            predictor.predict(wrong)
    with pytest.raises(ConfigError, match="output probabilities is unknown; valid: label, logits"):
        predictor.predict(images, {"output": "probabilities"})


def test_no_images_give_no_labels(predictor: Predictor) -> None:
    images = kit_tools.skewed().test_images[:0]
    assert predictor.predict(images).shape == (0,)
    assert predictor.predict(images, {"output": "logits"}).shape == (0, 4)


def test_damaged_and_foreign_files_are_named(tmp_path: Path, predictor: Predictor) -> None:
    path = tmp_path / "model.bin"
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(StoreError, match=r"model .*model\.bin is damaged .*delete it"):
        load_model(path)
    with pytest.raises(StoreError, match="cannot read model"):
        load_model(tmp_path / "absent")
