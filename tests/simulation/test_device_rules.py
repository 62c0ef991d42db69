"""No algorithm makes the host wait for a device inside local training: shown without one, on the whole loop.

The meta device stands in for a GPU: what the loop does there is what it does on a GPU, a read of a value is impossible,
and every upload is seen. On the CPU, where the loop itself may read for speed, the algorithms are listened to once
more, to the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedrela_bench.bench.gpu.federation import Case
from fedrela_bench.bench.gpu.syncs import host_waits, ready_block
from fedrela_bench.bench.gpu.waits import Wait, listen
from tests.kits import ROWS, Row

CPU_ONLY = "/simulation/"
"""Where the loop branches on the device."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_local_training_never_waits_for_the_device(row: Row) -> None:
    case = Case(row.name, options=row.options)
    waits = [*host_waits(case), *_of_algorithms(listen(ready_block(case, "cpu")))]
    if row.host_inputs:
        assert waits
        waits = [wait for wait in waits if "host_labels" not in wait.place]
    assert not waits, "make the draw in `draw`, or copy with non_blocking=True:\n" + "\n".join(map(str, waits))


def _of_algorithms(waits: list[Wait]) -> list[Wait]:
    return [wait for wait in waits if CPU_ONLY not in wait.place]


X = torch.arange(6.0)
LABELS = torch.tensor([0, 1, 1, 2, 0, 2])
READS: dict[str, Callable[[], Any]] = {
    "item": lambda: X.sum().item(),
    "float": lambda: float(X.sum()),
    "bool": lambda: bool((X > 2).any()),
    "branch": lambda: 1 if X.sum() > 3 else 0,
    "position": lambda: X[LABELS[2]],
    "numpy": lambda: X.numpy(),
    "tolist": lambda: LABELS.tolist(),
    "cpu": lambda: X.cpu(),
    "nonzero": lambda: torch.nonzero(X),
    "where": lambda: torch.where(X > 2),
    "unique": lambda: torch.unique(LABELS),
    "unique_consecutive": lambda: torch.unique_consecutive(LABELS),
    "bincount": lambda: torch.bincount(LABELS),
    "masked_select": lambda: X.masked_select(X > 2),
    "mask": lambda: X[X > 2],
    "assigned mask": lambda: X.clone().index_put_((X > 2,), X.new_zeros(3)),
    "list index": lambda: X[[0, 2]],
    "repeats": lambda: torch.repeat_interleave(LABELS),
    "classes counted": lambda: F.one_hot(LABELS),
    "equal": lambda: torch.equal(X, X),
    "backward": lambda: _through(lambda gradient: gradient * gradient.sum().item()),
}
CALM: dict[str, Callable[[], Any]] = {
    "where": lambda: torch.where(X > 2, X, 0.0),
    "rows": lambda: X[LABELS],
    "slice": lambda: X[1:4],
    "classes given": lambda: F.one_hot(LABELS, 3),
    "scatter": lambda: torch.zeros(3).scatter_add_(0, LABELS, X),
    "loss": lambda: F.cross_entropy(torch.zeros(6, 3), LABELS),
    "backward": lambda: _through(lambda gradient: gradient * 2),
}


def _through(change: Callable[[Tensor], Tensor]) -> None:
    leaf = X.clone().requires_grad_()
    leaf.register_hook(change)  # type: ignore[no-untyped-call]
    leaf.square().sum().backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("name", READS)
def test_what_a_gpu_would_wait_for_is_heard(name: str) -> None:
    assert listen(READS[name])


@pytest.mark.parametrize("name", CALM)
def test_what_a_gpu_does_by_itself_is_not(name: str) -> None:
    assert not listen(CALM[name])


def test_uploads_are_heard_where_they_block() -> None:
    here, there = torch.ones(3), torch.ones(3, device="meta")
    assert listen(lambda: here.to("meta"))
    assert listen(lambda: there.copy_(here))
    assert listen(lambda: torch.tensor([1.0, 2.0]).to(there))
    assert not listen(lambda: here.to("meta", non_blocking=True))
    assert not listen(lambda: here.pin_memory().to("meta", non_blocking=True))
    assert not listen(lambda: there.copy_(here, non_blocking=True))
    assert not listen(lambda: there.double())


def test_a_read_on_the_meta_device_ends_the_call_and_other_errors_are_raised() -> None:
    there = torch.ones(3, device="meta")
    (wait,) = listen(lambda: float(there.sum()))
    assert wait.what in ("item", "__float__", "_local_scalar_dense")
    with pytest.raises(RuntimeError, match="shape"):
        listen(lambda: torch.ones(2) @ torch.ones(3, 1))
