"""The worked examples of the algorithms, by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Golden = Callable[[str], Path]


def worked_example(golden: Golden, name: str) -> dict[str, Any]:
    """Inputs, expected values and tolerance of one worked example."""
    return dict(json.loads(golden("algorithm_examples.json").read_text())["examples"][name])
