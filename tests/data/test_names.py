"""Dataset names, without loading anything heavy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedrela_bench.data.names import dataset_name, parse_dataset_name
from fedrela_bench.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("digits", ("digits", None)),
        ("fashion_mnist_step", ("fashion_mnist", "step")),
        ("cifar100_lt", ("cifar100", "lt")),
        ("cifar10_balanced", ("cifar10", "balanced")),
        ("folder:some/where", ("folder:some/where", None)),
        ("folder:some/where_lt", ("folder:some/where", "lt")),
        ("parquet:x_step", ("parquet:x", "step")),
        ("table:x.csv_natural", ("table:x.csv", "natural")),
        ("npz:x.npz_lt", ("npz:x.npz", "lt")),
        ("npz:x.npz", ("npz:x.npz", None)),
    ],
)
def test_names(name: str, expected: tuple[str, str | None]) -> None:
    assert parse_dataset_name(name) == expected


def test_suffix_of_an_existing_path_belongs_to_the_path(tmp_path: Path) -> None:
    folder = tmp_path / "images_lt"
    folder.mkdir()
    assert parse_dataset_name(f"folder:{folder}") == (f"folder:{folder}", None)
    assert parse_dataset_name(f"folder:{folder}_step") == (f"folder:{folder}", "step")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cifar100_tl", "cifar100_lt"),
        ("cifar1000", "cifar100"),
        ("CIFAR100_LT", "cifar100_lt"),
        ("fashion-mnist", "fashion_mnist"),
        ("_lt", "digits_lt"),
        ("", "valid:"),
        ("folder:", "names no path"),
        ("folder:_lt", "names no path"),
        ("zzzz:/x", "folder:PATH"),
        ("csv:x.csv", "table:PATH"),
        ("table:", "names no path; write table:PATH"),
    ],
)
def test_unknown_names(name: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_dataset_name(name)
    assert words in str(caught.value)


def test_short_names_hold_no_path() -> None:
    assert dataset_name("folder:/secret/place", "balanced") == "folder_place_balanced"
    assert dataset_name("table:~/a/visits 2024 (é).csv", "natural") == "table_visits-2024-é_natural"
    assert dataset_name("npz:.", "lt") == "npz_lt"
    assert len(dataset_name(f"npz:{'x' * 300}.npz", "lt")) < 60
    assert dataset_name("cifar100", "lt") == "cifar100_lt"
    assert dataset_name("fashion_mnist", "step") == "fashion_mnist_step"


def test_reading_names_imports_nothing_heavy() -> None:
    code = (
        "import sys; from fedrela_bench.data.names import parse_dataset_name; import fedrela_bench.data; "
        "print(sorted({'torch', 'sklearn', 'pyarrow', 'PIL', 'torchvision', 'matplotlib', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
