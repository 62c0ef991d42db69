"""Messages between processes: pickles in which tensors travel as arrays."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class _Pickler(pickle.Pickler):
    # A view of a flat vector would otherwise drag the whole vector along, once per view.
    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, Tensor):
            return NotImplemented
        values = np.ascontiguousarray(obj.detach().numpy()).reshape(tuple(obj.shape))
        if isinstance(obj, nn.Parameter):
            return _parameter, (values, obj.requires_grad)
        return torch.from_numpy, (values,)


def _parameter(values: np.ndarray, requires_grad: bool) -> nn.Parameter:
    return nn.Parameter(torch.from_numpy(values), requires_grad)


def dumps(value: Any) -> bytes:
    """Bytes of a value with CPU tensors in it."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


def loads(message: bytes) -> Any:
    """The value again; only for bytes from a process of ours."""
    return pickle.loads(message)
