"""Where the golden figures and the real images are, and one thread so that figures repeat."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")

BESIDE = Path(__file__).resolve().parents[2] / "shared"


def _shared(variable: str, folder: str) -> Path:
    path = Path(os.environ.get(variable, BESIDE / folder))
    if not path.is_dir():
        pytest.skip(f"{folder} figures are not here; set {variable} to their folder")
    return path


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Path]:
    """The path of a golden file; skips where the folder is absent."""
    return lambda name: _shared("FEDRELA_GOLDEN", "golden") / name


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real CIFAR-100 parquet files; skips where it is absent."""
    return _shared("FEDRELA_SHARED_DATA", "data")
