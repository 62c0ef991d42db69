"""The kit's checks on the command line: a line for each rule as it is checked, and how many are broken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedrela_bench.cli.common import tell


def check_all(checks: Sequence[Any], subject: Any, to_stderr: bool) -> list[dict[str, Any]]:
    """Check every rule and tell each at once; its name, whether it holds, and what is wrong where it does not.

    Args:
        checks: of `fedrela_bench.testing`.
        subject: what they check, a `Case` or a `Network`.
        to_stderr: whether stdout is for JSON.
    """
    from fedrela_bench.testing import broken

    rows = []
    for rule, text in broken(checks, subject):
        rows.append({"rule": rule.name, "holds": not text, "why": text or None})
        tell(text or f"  holds   {rule.name}", to_stderr=to_stderr)
    return rows


def tell_verdict(rows: Sequence[Mapping[str, Any]], count: int, to_stderr: bool) -> int:
    """Tell how many of `count` rules are broken; the exit code."""
    wrong = sum(not row["holds"] for row in rows)
    left = f", {count - len(rows)} not looked at" if len(rows) < count else ""
    tell(f"{wrong} of {count} rules broken{left}" if wrong else f"all {count} rules hold", to_stderr=to_stderr)
    return 1 if wrong else 0
