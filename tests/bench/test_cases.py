"""Workloads: what they are made of, and where their images come from."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from fedrela_bench.bench.case import prepare
from fedrela_bench.bench.workloads import DEFAULT, WORKLOADS
from fedrela_bench.data.sources.places import SYSTEM_FOLDERS
from fedrela_bench.defaults import resolve
from fedrela_bench.simulation import Simulation
from fedrela_bench.simulation.batches import batch_bounds


@pytest.fixture(autouse=True)
def no_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any images."""
    monkeypatch.setenv("FEDRELA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDRELA_DATA", raising=False)
    monkeypatch.setitem(SYSTEM_FOLDERS, "fashion_mnist", ())
    return tmp_path


def test_fm_has_the_sizes_it_says() -> None:
    case = prepare(WORKLOADS["fm"], short=False, device="cpu")
    assert (case.samples, case.evaluated) == (12_000, 10_000)
    sizes = [len(rows) for rows in case.dataset.clients]
    assert (len(sizes), min(sizes), max(sizes)) == (20, 69, 527)
    assert 2 * sum(len(batch_bounds(size, 10, "join", False)) for size in sizes) == 1_218
    assert Simulation(case.config, case.dataset).model.params.numel() == 582_026
    assert not case.real_images
    assert case.notes() == ["synthetic images of the same shape and split; times do not depend on it"]
    assert not (Path(case.dataset.name)).exists()


def test_digits_is_the_default_study() -> None:
    config = prepare(WORKLOADS["digits"], short=False, device="cpu").config
    default = resolve("digits_lt", None, "cpu", None, {}).config
    assert config.training == default.training
    assert config.data == default.data
    assert config.federation.clients == default.federation.clients


@pytest.mark.parametrize("name", sorted(WORKLOADS))
@pytest.mark.parametrize("short", [True, False])
def test_every_workload_can_be_simulated(name: str, short: bool) -> None:
    for device in ("cpu", "cuda"):
        case = prepare(WORKLOADS[name], short, device)
        held = np.concatenate(case.dataset.clients)
        assert len(held) == len(np.unique(held)) > 0
        assert min(case.left_out) >= 1
    assert case.config.federation.participation == 1
    assert set(DEFAULT) <= set(WORKLOADS)


def test_published_sizes_are_timed_in_part_and_said_so() -> None:
    case = prepare(WORKLOADS["cifar100_lt"], short=False, device="cpu")
    whole = prepare(WORKLOADS["cifar10_lt"], short=False, device="cuda")
    assert len(case.dataset.clients) == 10 and len(whole.dataset.clients) == 40
    assert case.config.training.model == "resnet34" and case.config.training.batch_size == 8
    assert sum(len(rows) for rows in whole.dataset.clients) == 1_500
    assert whole.left_out == pytest.approx((12_406 / 1_500, 1))
    assert any("12,406 training" in note and "extrapolated" in note for note in whole.notes())


def test_real_images_are_used_where_they_are(no_images: Path) -> None:
    folder = no_images / "images"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name, count in (("train", 6_000), ("t10k", 100)):
        labels = np.arange(count, dtype=np.uint8) % 10
        pixels = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        head = struct.pack(">iiii", 2051, count, 28, 28)
        (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + pixels.tobytes(), 1))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">ii", 2049, count) + labels.tobytes())
    case = prepare(WORKLOADS["fm"], short=True, device="cpu", data_dir=folder)
    assert case.real_images
    assert not any("synthetic" in note for note in case.notes())
    assert len(case.dataset.test_images) == 100
    assert len(np.concatenate(case.dataset.clients)) == 300


def test_memory_always_deals_the_same_images() -> None:
    case = prepare(WORKLOADS["memory"], short=False, device="cpu")
    assert len(case.dataset.clients) == 10_000
    assert len(np.concatenate(case.dataset.clients)) == len(case.dataset.labels) == 20_000
