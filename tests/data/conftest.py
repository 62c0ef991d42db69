"""Each test has its own cache, and no place outside it is searched."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedrela_bench.data.sources import places


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("FEDRELA_CACHE", str(folder))
    monkeypatch.delenv("FEDRELA_DATA", raising=False)
    monkeypatch.setattr(places, "SYSTEM_FOLDERS", {})
    return folder
