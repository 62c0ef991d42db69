"""What happens to clients with few images; every rule ends after one pass, without drawing a new partition."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from fedrela_bench.errors import ConfigError, DataError
from fedrela_bench.rng import generator

LISTED = 40


def settle_small_clients(
    parts: Sequence[np.ndarray],
    minimum: int,
    rule: str,
    seed: int,
    described: str = "the partition",
    remedy: str = "Raise data.alpha, lower data.min_client_samples or federation.clients",
    unit: str = "image",
) -> tuple[list[np.ndarray], list[str]]:
    """Apply `min_client_samples` and `on_small_client`.

    Args:
        parts: per client sorted positions.
        minimum: fewest samples of a client; 0 accepts every client.
        rule: "error", "skip" (small clients become empty, their samples are not used) or "pad" (small clients receive
            samples of the currently largest client, drawn without replacement, until all have the minimum; the parts
            stay disjoint and complete).
        seed: chooses the samples that `pad` moves.
        described: for messages, such as ``"cifar100_lt dealt with alpha=0.3"``.
        remedy: for messages, what makes small clients larger.
        unit: for messages, what one sample is called.

    Returns:
        The parts and one note for each thing the user must know.

    Raises:
        DataError: rule "error" and a small client, or nobody left under "skip".
        ConfigError: rule "pad" and not enough samples for all.
    """
    small = [k for k, part in enumerate(parts) if len(part) < minimum]
    if not small:
        return list(parts), []
    total = sum(len(part) for part in parts)
    facts = _facts(parts, small, minimum, f"{described} has {total:,} {unit}s")
    if rule == "skip":
        return _skip(parts, small, minimum, facts, unit)
    if rule == "pad":
        if len(parts) * minimum > total:
            raise ConfigError(
                f"{facts}, and {len(parts)} clients x {minimum} is {len(parts) * minimum:,} {unit}s. "
                "Lower data.min_client_samples or federation.clients"
            )
        return _pad(parts, small, minimum, seed, unit)
    raise DataError(f"{facts}. {remedy}, or set data.on_small_client to pad or skip")


def empty_client_note(parts: Sequence[np.ndarray], unit: str = "image") -> list[str]:
    """A note that lists the clients without samples; none if there are none."""
    empty = [k for k, part in enumerate(parts) if not len(part)]
    if not empty:
        return []
    return [f"{len(empty)} of {len(parts)} clients hold no {unit}s and never train: {listed(empty)}"]


def listed(ids: Sequence[int]) -> str:
    """Ids separated by commas; of long lists the first ones and how many more."""
    shown = ", ".join(str(k) for k in ids[:LISTED])
    return f"{shown} and {len(ids) - LISTED} more" if len(ids) > LISTED else shown


def _facts(parts: Sequence[np.ndarray], small: list[int], minimum: int, described: str) -> str:
    fewest = min(len(parts[k]) for k in small)
    return (
        f"data.min_client_samples = {minimum} with {len(parts)} clients: {described} and "
        f"leaves {len(small)} clients below (the smallest with {fewest}): {listed(small)}"
    )


def _skip(
    parts: Sequence[np.ndarray], small: list[int], minimum: int, facts: str, unit: str
) -> tuple[list[np.ndarray], list[str]]:
    if len(small) == len(parts):
        raise DataError(f"{facts}; skipping them leaves nobody. Lower data.min_client_samples or federation.clients")
    unused = sum(len(parts[k]) for k in small)
    dropped = set(small)
    kept = [part[:0] if k in dropped else part for k, part in enumerate(parts)]
    note = f"{len(small)} clients below {minimum} {unit}s are skipped ({unused} {unit}s unused): {listed(small)}"
    return kept, [note]


def _pad(
    parts: Sequence[np.ndarray], small: list[int], minimum: int, seed: int, unit: str
) -> tuple[list[np.ndarray], list[str]]:
    groups = [list(part) for part in parts]
    largest = [(-len(group), k) for k, group in enumerate(groups) if len(group) > minimum]
    heapq.heapify(largest)
    shuffled: set[int] = set()
    moved = 0
    for k in small:
        while len(groups[k]) < minimum:
            donor = heapq.heappop(largest)[1]
            if donor not in shuffled:
                groups[donor] = list(generator(seed, "pad", donor).permutation(groups[donor]))
                shuffled.add(donor)
            groups[k].append(groups[donor].pop())
            moved += 1
            if len(groups[donor]) > minimum:
                heapq.heappush(largest, (-len(groups[donor]), donor))
    note = f"{len(small)} clients were filled up to {minimum} {unit}s ({moved} moved from the largest): {listed(small)}"
    return [np.sort(np.array(group, dtype=np.int64)) for group in groups], [note]
