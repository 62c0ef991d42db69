"""Fixed blocks of clients: the units that are summed, whoever computes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LIMIT = 32
"""Blocks at most: each in flight costs one sum of the size of the model."""

Block = tuple[int, ...]


def fixed_blocks(participants: Sequence[int], sizes: np.ndarray, limit: int = LIMIT) -> list[Block]:
    """The participants in at most `limit` blocks of about equal samples.

    Who shares a block depends on the participants and their sizes alone, never on the number of workers, so that sums
    over a block, and of blocks in this order, are the same bits however they are spread. Up to `limit` participants
    there is one block each, in client order.

    Args:
        participants: client ids.
        sizes: (K,) samples of every client.
        limit: blocks at most.

    Returns:
        Blocks in the order of their first client, each in ascending order of clients.
    """
    blocks: list[list[int]] = [[] for _ in range(min(limit, len(participants)))]
    loads = [0] * len(blocks)
    for client in longest_first([(client,) for client in participants], sizes):
        lightest = loads.index(min(loads))
        blocks[lightest].extend(client)
        loads[lightest] += max(1, int(sizes[client[0]]))
    return sorted(tuple(sorted(block)) for block in blocks)


def longest_first(blocks: Sequence[Block], sizes: np.ndarray) -> list[Block]:
    """The order in which blocks are dealt to workers: most samples first, ties by first client."""
    return sorted(blocks, key=lambda block: (-int(sizes[list(block)].sum()), block))
