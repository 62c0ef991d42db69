"""How an epoch is cut into batches; one rule for short ones on every path."""

from __future__ import annotations

from typing import Literal

ShortBatch = Literal["join", "keep"]


def batch_bounds(count: int, batch_size: int, short: ShortBatch, batch_norm: bool) -> list[tuple[int, int]]:
    """(start, stop) of each batch; a short last batch is kept.

    With batch norm and `short = "join"`, a single left-over sample joins the batch before it: its own statistics would
    be those of one image.

    Args:
        count: samples in the epoch.
        batch_size: samples per batch.
        short: what a single left-over sample does.
        batch_norm: whether the model has batch norm.
    """
    bounds = [(start, min(start + batch_size, count)) for start in range(0, count, batch_size)]
    lonely = len(bounds) > 1 and bounds[-1][1] - bounds[-1][0] == 1
    if lonely and batch_norm and short == "join":
        bounds[-2:] = [(bounds[-2][0], count)]
    return bounds
