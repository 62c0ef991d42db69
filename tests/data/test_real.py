"""The real Fashion-MNIST and CIFAR-100, where they are."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrela_bench.data import load_dataset
from fedrela_bench.data.inputs import PUBLISHED, measure
from tests.data.makers import config

FASHION = Path("/usr/share/datasets/fashion-mnist")


@pytest.mark.skipif(not FASHION.is_dir(), reason="the system's package dataset-fashion-mnist is not installed")
def test_fashion_mnist() -> None:
    wanted: dict[str, Any] = {"profile": "step", "imbalance_factor": 20, "minority": [0, 2, 4]}
    dataset = load_dataset(config("fashion_mnist", clients=100, **wanted), FASHION)
    assert dataset.class_counts.tolist() == [300, 6000, 300, 6000, 300, 6000, 6000, 6000, 6000, 6000]
    assert dataset.input_shape == (1, 28, 28)
    assert dataset.test_images.shape == (10000, 28, 28, 1)
    assert (dataset.normalization, dataset.augment) == (None, "none")
    assert len(dataset.clients) == 100
    mean = dataset.train_images.mean() / 255
    assert mean == pytest.approx(0.2860, abs=1e-4)


@pytest.fixture(scope="module")
def cifar_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cifar-cache")


def test_cifar100(shared_data: Path, cifar_cache: Path, golden: Callable[[str], Path]) -> None:
    wanted = config("cifar100", clients=10, alpha=0.1)
    dataset = load_dataset(wanted, shared_data / "cifar100", cifar_cache)
    assert dataset.class_counts.sum() == 10847
    assert dataset.test_images.shape == (10000, 32, 32, 3)
    assert np.bincount(dataset.test_labels).tolist() == [100] * 100
    assert dataset.class_names[:2] == ("apple", "aquarium_fish")
    assert dataset.augment == "crop_flip"
    cases = json.loads(golden("dirichlet.json").read_text())["cases"]
    key = ("cifar100_exp_if100", 10, 0.1, 1)
    case = next(c for c in cases if (c["labels"], c["K"], c["alpha"], c["seed"]) == key)
    assert dataset.client_counts.tolist() == case["matrix"]
    own = measure(dataset.train_images, np.arange(50000))
    np.testing.assert_allclose(own, PUBLISHED["cifar100"], atol=6e-6)
    # A second load maps what the first one decoded, and the digest is quick.
    start = time.perf_counter()
    again = load_dataset(wanted, shared_data / "cifar100", cifar_cache)
    assert time.perf_counter() - start < 5
    assert again.digest == dataset.digest
    assert isinstance(again.train_images, np.memmap)
