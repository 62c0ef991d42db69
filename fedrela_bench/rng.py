"""The only source of randomness in the package.

Every stream is keyed by (seed, purpose, *keys), so that the order of clients, the number of workers and a resume at any
round change no draw. Draws are made on the CPU with numpy: every device sees the same numbers.
"""

from __future__ import annotations

import hashlib

import numpy as np


def derived_seed(seed: int, purpose: str, *keys: int) -> int:
    """A 63-bit seed for the stream (seed, purpose, *keys), stable across platforms and Python versions."""
    text = "/".join([str(int(seed)), purpose, *(str(int(key)) for key in keys)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """A fresh generator for the stream (seed, purpose, *keys).

    Args:
        seed: the run's seed (or the subset's or the partition's).
        purpose: what the draws are for, such as ``"shuffle"`` or ``"relabel"``.
        keys: for example round and client.
    """
    return np.random.Generator(np.random.PCG64(derived_seed(seed, purpose, *keys)))
