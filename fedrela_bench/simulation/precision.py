"""Number formats of a simulation."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

DTYPES = {"float32": torch.float32, "float64": torch.float64}


def set_arithmetic(tf32: bool, device: torch.device) -> None:
    """How the process's GPU computes from now on: TF32 or full float32, and the same bits every time."""
    if device.type != "cuda":
        return
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def autocast(amp: str, device: torch.device) -> AbstractContextManager[Any]:
    """The context that forward passes run in: bfloat16 autocast for ``bf16``, nothing for ``none``."""
    return nullcontext() if amp == "none" else torch.autocast(device.type, dtype=torch.bfloat16)
