"""What does not fit this machine's memory is refused by its header, before it is read."""

from __future__ import annotations

import os

from fedrela_bench.errors import DataError

SHARE = 0.8
"""Of the machine's memory that one source may take."""


def memory_bytes() -> int | None:
    """Physical memory; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def refuse_huge(what: str, needed: int, remedy: str = "give fewer rows or smaller images") -> None:
    """Raise unless so many bytes fit.

    Args:
        what: takes them, for the message.
        needed: bytes.
        remedy: how they become fewer.

    Raises:
        DataError: with both sizes.
    """
    there = memory_bytes()
    if there is not None and needed > SHARE * there:
        raise DataError(
            f"{what} takes {needed / 2**30:,.1f} GiB to read, and this machine has {there / 2**30:,.1f} GiB of memory; "
            f"{remedy}, or a machine with more memory"
        )
