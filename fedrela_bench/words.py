"""Numbers with their nouns."""

from __future__ import annotations


def counted(number: float, noun: str) -> str:
    """``1 seed``, ``3 seeds``, ``0.5 full runs``."""
    return f"{number:g} {noun}" if number == 1 else f"{number:g} {noun}s"
