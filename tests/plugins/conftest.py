"""Every test leaves the process without plugins."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fedrela_bench import plugins


@pytest.fixture(autouse=True)
def without_plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """None before, none after, none in the environment."""
    monkeypatch.delenv("FEDRELA_PLUGINS", raising=False)
    plugins.activate(())
    yield
    plugins.activate(())
