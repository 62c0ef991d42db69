"""load_dataset: digits, profiles, notes, digests, wrong input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrela_bench.data import FederatedDataset, load_dataset
from fedrela_bench.data.inputs import choose_inputs
from fedrela_bench.data.sources import read_source
from fedrela_bench.errors import ConfigError, DataError
from tests.data.makers import config, pixels, write_cifar10, write_folder


def test_digits() -> None:
    dataset = load_dataset(config("digits", clients=4))
    assert dataset.name == "digits_lt"
    assert dataset.class_counts[0] == 122
    assert dataset.class_counts[-1] == 1
    assert dataset.input_shape == (1, 8, 8)
    assert (dataset.normalization, dataset.augment, dataset.num_classes) == (None, "none", 10)
    assert dataset.train_images.max() == 255
    np.testing.assert_array_equal(np.sort(np.concatenate(dataset.clients)), np.arange(len(dataset.labels)))
    np.testing.assert_array_equal(dataset.client_counts.sum(0), dataset.class_counts)
    assert (np.diff(dataset.labels) >= 0).all()


def test_digits_split_is_stratified_and_complete() -> None:
    raw = read_source("digits")
    train, test = np.bincount(raw.train_labels), np.bincount(raw.test_labels)
    assert (train + test).sum() == 1797
    np.testing.assert_allclose(train / (train + test), 0.7, atol=0.004)
    both = np.concatenate([raw.train_images, raw.test_images]).reshape(1797, -1)
    from sklearn.datasets import load_digits

    source = np.rint(load_digits().data * 15.9375).astype(np.uint8)
    np.testing.assert_array_equal(np.sort(both, axis=0), np.sort(source, axis=0))


def test_seed_moves_clients_but_not_images() -> None:
    first, second = (load_dataset(config("digits", seed=seed)) for seed in (1, 2))
    np.testing.assert_array_equal(first.subset, second.subset)
    assert first.digest != second.digest
    fixed = [load_dataset(config("digits", seed=seed, partition_seed=1)).digest for seed in (1, 2)]
    assert fixed == [first.digest] * 2


def test_digest_covers_what_decides_numbers(tmp_path: Path) -> None:
    base: dict[str, Any] = {"profile": "step", "imbalance_factor": 10}
    changes: list[dict[str, Any]] = [
        {},
        {"subset_seed": 1},
        {"imbalance_factor": 12},
        {"minority": "last"},
        {"alpha": 1.0},
        {"partition": "iid"},
        {"augment": "crop_flip"},
        {"normalize": "own"},
        {"n_max": 100},
        {"min_client_samples": 60, "on_small_client": "pad"},
    ]
    digests = [load_dataset(config("digits", clients=8, **{**base, **change})).digest for change in changes]
    assert len(set(digests)) == len(digests)
    clients = load_dataset(config("digits", clients=9, **base)).digest
    assert clients not in digests


def test_digest_is_the_same_without_a_cache(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    wanted = config("digits")
    uncached = load_dataset(wanted, None, blocker / "cache")
    assert any("kept in memory" in note for note in uncached.notes)
    assert not isinstance(uncached.train_images, np.memmap)
    for _ in range(2):
        assert load_dataset(wanted).digest == uncached.digest


def test_profiles() -> None:
    step = load_dataset(config("digits", profile="step", imbalance_factor=10, n_max=100))
    assert step.class_counts.tolist() == [10, 100, 10, 100, 10] + [100] * 5
    assert step.minority == (0, 2, 4)
    listed = load_dataset(config("digits", profile="step", imbalance_factor=10, n_max=100, minority=[7, 3]))
    assert listed.minority == (3, 7)
    everything = load_dataset(config("digits", profile="balanced"))
    np.testing.assert_array_equal(everything.class_counts, np.bincount(read_source("digits").train_labels))
    capped = load_dataset(config("digits", profile="balanced", n_max=125))
    np.testing.assert_array_equal(capped.class_counts, np.minimum(everything.class_counts, 125))
    assert (capped.minority, capped.name) == ((), "digits_balanced")


def test_test_slices() -> None:
    dataset = load_dataset(config("digits"))
    selection, report = dataset.test_slices()
    np.testing.assert_array_equal(np.sort(np.concatenate([selection, report])), np.arange(len(dataset.test_labels)))
    chosen, reported = (np.bincount(dataset.test_labels[rows], minlength=10) for rows in (selection, report))
    assert set((reported - chosen).tolist()) <= {0, 1}
    other = load_dataset(config("digits", seed=9, profile="balanced"))
    np.testing.assert_array_equal(other.test_slices()[0], selection)


def test_more_clients_than_images() -> None:
    dataset = load_dataset(config("digits", clients=2000))
    assert dataset.client_counts.shape == (2000, 10)
    assert any("of 2000 clients hold no images" in note for note in dataset.notes)


def test_small_client_rules() -> None:
    with pytest.raises(DataError, match=r"digits_lt dealt with alpha = 0\.05 has .* images") as caught:
        load_dataset(config("digits", clients=10, alpha=0.05, min_client_samples=5))
    assert caught.value.exit_code == 2
    skipped = load_dataset(config("digits", clients=10, alpha=0.05, min_client_samples=5, on_small_client="skip"))
    assert all(len(part) == 0 or len(part) >= 5 for part in skipped.clients)
    assert len(skipped.notes) == 2
    padded = load_dataset(config("digits", clients=10, alpha=0.05, min_client_samples=5, on_small_client="pad"))
    assert min(len(part) for part in padded.clients) >= 5
    assert sum(len(part) for part in padded.clients) == len(padded.labels)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"source": "cifar1000"}, ["cifar100"]),
        ({"source": "folder:"}, ["names no path"]),
        ({"source": "digits", "image_size": 16}, ["image_size"]),
        ({"source": "digits", "subset_seed": 2**32}, ["subset_seed", "less than"]),
        ({"source": "digits", "partition_seed": 2**32}, ["partition_seed", "less than"]),
        ({"source": "digits", "n_max": 500}, ["asks for", "of class 0 (0), which has 125", "at most 125"]),
        ({"source": "digits", "imbalance_factor": 200}, ["leaves no images of class 9", "at most 122"]),
        ({"source": "digits", "normalize": "imagenet"}, ["3 channels", "have 1"]),
        (
            {"source": "digits", "normalize": "cifar100", "profile": "step", "minority": [12]},
            ["2 faults", "3 channels", "[12] are not classes"],
        ),
        ({"source": "digits", "alpha": 1e-9}, ["data.alpha = 1e-09"]),
    ],
)
def test_wrong_input(data: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_dataset(config(**data))
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize("n_max", [3, 49, 98, 103, 107])
def test_suggested_imbalance_factor_works(n_max: int) -> None:
    # 49 * (1 / 49) is below 1 in binary floating point.
    with pytest.raises(ConfigError) as caught:
        load_dataset(config("digits", n_max=n_max, imbalance_factor=1000))
    limit = int(str(caught.value).split("at most ")[1].split()[0])
    assert n_max - 1 <= limit <= n_max
    assert load_dataset(config("digits", n_max=n_max, imbalance_factor=limit)).class_counts[-1] == 1


def test_suggested_n_max_works_and_one_more_does_not(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "set", {"a": 20, "b": 5, "c": 9})
    for profile in ("lt", "step"):
        wanted: dict[str, Any] = {"profile": profile, "imbalance_factor": 4, "minority_fraction": 0.4}
        with pytest.raises(ConfigError) as caught:
            load_dataset(config(f"folder:{root}", n_max=1000, **wanted))
        limit = int(str(caught.value).rsplit(" ", 1)[1])
        load_dataset(config(f"folder:{root}", n_max=limit, **wanted))
        with pytest.raises(ConfigError):
            load_dataset(config(f"folder:{root}", n_max=limit + 1, **wanted))


def test_default_n_max_of_unequal_classes(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "set", {"a": 5, "b": 8, "c": 4})
    assert load_dataset(config(f"folder:{root}", imbalance_factor=4)).class_counts.tolist() == [4, 2, 1]


def test_one_class(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "set", {"only": 4})
    with pytest.raises(DataError, match=r"only is the only class; with a single class .* give at least two"):
        load_dataset(config(f"folder:{root}"))
    (root / "train" / "other").mkdir()
    with pytest.raises(DataError, match=r"class other is in train/ but not in test/; train/other/ holds no image"):
        load_dataset(config(f"folder:{root}"))


def test_automatic_inputs_follow_the_released_code(tmp_path: Path) -> None:
    assert choose_inputs("cifar100", "auto", "auto") == ("cifar100", "crop_flip")
    assert choose_inputs("fashion_mnist", "auto", "auto") == ("none", "none")
    assert choose_inputs("folder:x", "auto", "auto") == ("own", "none")
    assert choose_inputs("cifar10", "none", "none") == ("none", "none")
    labels = np.repeat(np.arange(10), 2)
    root = write_cifar10(tmp_path, pixels(20), labels, pixels(10), np.arange(10))
    dataset = load_dataset(config("cifar10", profile="balanced"), root)
    assert dataset.normalization == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert dataset.augment == "crop_flip"


def test_loading_needs_no_torch() -> None:
    code = (
        "import sys; from fedrela_bench.config import TrialConfig; from fedrela_bench.data import load_dataset; "
        "load_dataset(TrialConfig()); print(sorted({'torch', 'torchvision', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_exported_names() -> None:
    import fedrela_bench.data as package

    assert package.FederatedDataset is FederatedDataset
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = package.nonsense
