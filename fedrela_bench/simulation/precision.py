"""Number formats of a simulation."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

DTYPES = {"float32": torch.float32, "float64": torch.float64}


def autocast(amp: str, device: torch.device) -> AbstractContextManager[Any]:
    """The context that forward passes run in: bfloat16 autocast for ``bf16``, nothing for ``none``."""
    return nullcontext() if amp == "none" else torch.autocast(device.type, dtype=torch.bfloat16)
