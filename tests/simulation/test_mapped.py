"""Images that stay in their file give the same bits as images in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedrela_bench import Simulation, load_dataset
from fedrela_bench.config import TrialConfig, parse
from fedrela_bench.data.federated import FederatedDataset
from fedrela_bench.simulation import mapped, solver
from fedrela_bench.simulation.mapped import Mapped, resident_images
from fedrela_bench.simulation.wire import dumps, loads

CPU = torch.device("cpu")


def config_of(algorithm: str = "fedavg", **fields: object) -> TrialConfig:
    values = {
        "data": {"source": "digits", "profile": "lt", "imbalance_factor": 10, "augment": "crop_flip"},
        "federation": {"algorithm": algorithm, "clients": 3, "rounds": 2},
        "training": {"model": "digits", "batch_size": 16},
        "relabel": {"tau": 0.1, "start": 1},
    }
    return parse(values).replace(fields)


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FederatedDataset:
    """Digits whose images are mapped, as those of a cache are."""
    monkeypatch.setenv("FEDRELA_CACHE", str(tmp_path))
    dataset = load_dataset(config_of())
    assert isinstance(dataset.train_images, np.memmap)
    return dataset


def numbers(config: TrialConfig, dataset: FederatedDataset, **kind: int) -> list[dict[str, float]]:
    # Wall-clock is no number of the run.
    return [
        {name: value for name, value in result.metrics.items() if "seconds" not in name}
        for result in Simulation(config, dataset, **kind)
    ]


@pytest.mark.parametrize("algorithm", ["fedavg", "fedyoyo", "creff", "smote", "fedmix", "climb"])
def test_runs_on_mapped_images_are_the_runs_in_memory(
    algorithm: str, stored: FederatedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(algorithm)
    kept = numbers(config, stored)
    monkeypatch.setattr(mapped, "KEPT_BYTES", 0)
    simulation = Simulation(config, stored)
    assert isinstance(simulation.data.images, Mapped) and isinstance(simulation.data.test_images, Mapped)
    assert numbers(config, stored) == kept


@pytest.mark.parametrize("algorithm", ["fedavg", "fedyoyo", "fedloge"])
def test_no_more_than_a_batch_is_read_at_once(
    algorithm: str, stored: FederatedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(algorithm).replace({"relabel.posterior_batch": 32})
    monkeypatch.setattr(mapped, "KEPT_BYTES", 0)
    # So that a chunk of training images is a batch, as it is with large images.
    monkeypatch.setattr(solver, "CHUNK_BYTES", 0)
    sizes: list[int] = []
    read = Mapped.__getitem__

    def counted(images: Mapped, index: object) -> torch.Tensor:
        sizes.append(len(result) if (result := read(images, index)).dim() == 4 else 1)
        return result

    monkeypatch.setattr(Mapped, "__getitem__", counted)
    numbers(config, stored)
    assert len(stored.labels) > 400
    assert 16 <= max(sizes) <= 200


def test_worker_processes_open_the_file_itself(
    stored: FederatedDataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = config_of()
    kept = numbers(config, stored)
    monkeypatch.setattr(mapped, "KEPT_BYTES", 0)
    assert numbers(config, stored, workers=2) == kept
    images = resident_images(stored.train_images, stored.subset, CPU)
    message = dumps(images)
    assert len(message) < images.nbytes // 2
    assert torch.equal(loads(message)[:], torch.from_numpy(stored.train_images[stored.subset]))


def test_mapped_images_answer_like_a_tensor(stored: FederatedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "KEPT_BYTES", 0)
    rows = np.array([5, 3, 8, 8, 0])
    images, tensor = resident_images(stored.train_images, rows, CPU), torch.from_numpy(stored.train_images[rows])
    assert len(images) == 5 and images.shape == tensor.shape and images.nbytes == tensor.nbytes
    assert images.stride(0) == tensor.stride(0) and images.stride(2) == tensor.stride(2)
    for index in (slice(1, 3), torch.tensor([4, 0]), tensor[:, 0, 0, 0] < 300, np.array([1, 1]), 2):
        assert torch.equal(images[index], tensor[index])
    for piece, wanted in zip(torch.split(images, 2), torch.split(tensor, 2), strict=True):
        assert isinstance(piece, Mapped) and torch.equal(piece[:], wanted)
    assert torch.equal(images.float(), tensor.float())
    assert torch.equal(torch.flip(images, [0]), torch.flip(tensor, [0]))


def test_arrays_in_memory_are_never_mapped(stored: FederatedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "KEPT_BYTES", 0)
    copied = replace(stored, train_images=np.array(stored.train_images))
    assert isinstance(resident_images(copied.train_images, copied.subset, CPU), torch.Tensor)
    # A part of a mapped file could not be found again by its name and length.
    assert isinstance(resident_images(stored.train_images[3:], np.arange(4), CPU), torch.Tensor)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_gets_the_same_images_either_way(stored: FederatedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    place, wanted = torch.device("cuda"), torch.from_numpy(stored.train_images[stored.subset])
    monkeypatch.setattr(mapped, "KEPT_BYTES", 0)
    copied = resident_images(stored.train_images, stored.subset, place)
    assert isinstance(copied, torch.Tensor) and torch.equal(copied.cpu(), wanted)
    monkeypatch.setattr(mapped, "_room", lambda device: 0)
    left = resident_images(stored.train_images, stored.subset, place)
    assert isinstance(left, Mapped)
    assert left[:4].device.type == "cuda" and torch.equal(left[:].cpu(), wanted)
