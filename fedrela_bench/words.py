"""Numbers with their nouns."""

from __future__ import annotations


def counted(number: float, noun: str) -> str:
    """``1 seed``, ``3 seeds``, ``0.5 full runs``, ``1250000 points``."""
    return f"{plain(number)} {noun}{'s' * (number != 1)}"


def plain(number: float) -> str:
    """A count as people write it: whole numbers in full, others to six digits, no exponent however large."""
    return f"{number:.0f}" if float(number).is_integer() or abs(number) >= 1e6 else f"{number:.6g}"
