"""Finds, without a GPU, where the host would wait for one: reads of values, and uploads that block.

Two modes listen together. Operators see reads that the library makes itself (a boolean mask is turned into positions,
a tensor into a condition); functions see what never becomes an operator on a CPU, such as `Tensor.numpy`. The ``meta``
device, whose tensors have no values, serves as the GPU: what branches on the device takes the GPU's way, uploads are
seen, and a read cannot go on.
"""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import fedrela_bench

ROOT = Path(fedrela_bench.__file__).parent
READING = frozenset(
    {
        "_local_scalar_dense",
        "item",
        "is_nonzero",
        "nonzero",
        "nonzero_numpy",
        "argwhere",
        "masked_select",
        "bincount",
        "histc",
        "equal",
        "allclose",
        "unique_dim",
        "unique_consecutive",
        "unique_dim_consecutive",
        "_unique",
        "_unique2",
    }
)
"""Operators whose result, or its shape, the host must know."""
LEAVING = ("numpy", "tolist", "cpu", "item", "__array__", "__bool__", "__int__", "__float__", "__index__")
"""Methods that hand values to the host."""
_METHODS = {getattr(Tensor, name): name for name in LEAVING}
_INDEXING = frozenset({"index", "index_put", "index_put_", "_index_put_impl_"})
_COPYING = frozenset({"_to_copy", "copy_"})


@dataclass(frozen=True)
class Wait:
    """One place where the host waits."""

    place: str
    """File of this package, line and function."""
    line: str
    """The source there."""
    what: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what} in `{self.line}`"


Found = dict[str, Wait]
"""By place: what is seen there first."""


def listen(call: Callable[[], object]) -> list[Wait]:
    """Run the call; every place where it would wait, once each, in order of appearance.

    On the meta device the first read ends the call.
    """
    found: Found = {}
    functions = _Functions(found)
    try:
        with functions, _Operators(found, functions):
            call()
    except (RuntimeError, NotImplementedError):
        if not found:
            raise
    return list(found.values())


class _Functions(TorchFunctionMode):
    def __init__(self, found: Found) -> None:
        super().__init__()
        self.found = found
        self.unchecked = 0
        """Inside functions that look at values on a CPU only."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if func is Tensor.pin_memory:
            return args[0]  # There is nothing to pin for without a GPU.
        what = _METHODS.get(func) or (_host_index(args) if func is Tensor.__getitem__ else None)
        if what:
            note(self.found, what)
        with self._only_on_cpu(func is F.one_hot and _classes_given(args, given)):
            return func(*args, **given)

    @contextmanager
    def _only_on_cpu(self, applies: bool) -> Iterator[None]:
        self.unchecked += applies
        try:
            yield
        finally:
            self.unchecked -= applies


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, found: Found, functions: _Functions) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = found
        self.functions = functions

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        name = func.overloadpacket.__name__
        what = _waiting(name, str(func._overloadname), args, given)
        if what and not self.functions.unchecked:
            note(self.found, what)
        if name == "_fused_sgd_" and args[0] and args[0][0].is_meta:
            return None  # The meta device lacks it; it reads nothing.
        return func(*args, **given)


def _waiting(name: str, overload: str, args: Sequence[Any], given: Mapping[str, Any]) -> str | None:
    """What the host would wait for in this operator, or None."""
    if name in READING:
        return name
    if name == "repeat_interleave" and overload == "Tensor" and given.get("output_size") is None:
        return "repeat_interleave without output_size"
    if name in _INDEXING and any(_is_mask(index) for index in args[1]):
        return "a boolean mask as index"
    if name in _COPYING and _uploads(name, args, given):
        return "a copy to the device that is not non_blocking"
    return None


def _is_mask(index: Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def _uploads(name: str, args: Sequence[Any], given: Mapping[str, Any]) -> bool:
    """Whether a tensor on the host is copied to another device, the host waiting; a single number need not wait."""
    source = args[1] if name == "copy_" else args[0]
    target = args[0].device if name == "copy_" else given.get("device") or source.device
    calm = given.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2])
    return bool(source.device.type == "cpu" and target.type != "cpu" and source.numel() > 0 and not calm)


def _host_index(args: Sequence[Any]) -> str | None:
    """Lists and arrays become tensors on the host, which are then uploaded."""
    parts = args[1] if isinstance(args[1], tuple) else (args[1],)
    return "an index from the host" if any(isinstance(part, list | np.ndarray) for part in parts) else None


def _classes_given(args: Sequence[Any], given: Mapping[str, Any]) -> bool:
    return bool((args[1] if len(args) > 1 else given.get("num_classes", -1)) > 0)


def note(found: Found, what: str) -> None:
    """Add the wait that happens in the package's innermost frame of the running stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _ours(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        wait = Wait("outside the package", "", what)
    else:
        wait = _wait(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, what)
    found.setdefault(wait.place, wait)


def place_of(error: BaseException) -> Wait:
    """The package's innermost line that an error came through."""
    what = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    steps = [step for step in traceback.extract_tb(error.__traceback__) if _ours(step.filename)]
    if not steps:
        return Wait("outside the package", "", what)
    return _wait(steps[-1].filename, steps[-1].lineno or 0, steps[-1].name, what)


def place_at(filename: str, number: int, what: str) -> Wait:
    """The place of a warning."""
    if _ours(filename):
        return _wait(filename, number, "", what)
    return Wait(f"{Path(filename).name}:{number}", linecache.getline(filename, number).strip(), what)


def _ours(filename: str) -> bool:
    path = Path(filename)
    return path.is_relative_to(ROOT) and path != Path(__file__)


def _wait(filename: str, number: int, function: str, what: str) -> Wait:
    inside = f" in {function}" if function else ""
    place = f"{Path(filename).relative_to(ROOT.parent).as_posix()}:{number}{inside}"
    return Wait(place, linecache.getline(filename, number).strip(), what)
