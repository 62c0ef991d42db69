"""Reading small tables in tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedrela_bench.config import TrialConfig
from fedrela_bench.data.sources import RawData, Reading, read_source
from fedrela_bench.errors import DataError
from tests.data.makers import config


def read(path: Path, **reading: Any) -> RawData:
    return read_source(f"table:{path}", Reading(**reading))


def trial(path: Path, **data: Any) -> TrialConfig:
    return config(f"table:{path}", **{"profile": "balanced", **data})


def table(tmp_path: Path, text: str | bytes, name: str = "t.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(path: Path, **reading: Any) -> str:
    with pytest.raises(DataError) as caught:
        read(path, **reading)
    assert str(path) in str(caught.value)
    return str(caught.value)
