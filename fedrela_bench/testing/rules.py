"""A rule of the contract with its check: what must hold, how to put it right, and a message with both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedrela_bench.errors import BenchError
from fedrela_bench.plugins import place_of


@dataclass(frozen=True)
class Check:
    """One rule and the function that fails where it is broken. A check is called with what it shall look at."""

    name: str
    rule: str
    remedy: str
    look: Callable[[Any], None]
    first: bool = False
    """Whether the other rules need it: where it is broken, they would only tell of it again."""

    def __call__(self, subject: Any) -> None:
        """Check it.

        Raises:
            AssertionError: the rule is broken; the message says which one, what was seen, and how to put it right.
        """
        try:
            self.look(subject)
        except AssertionError as error:
            raise AssertionError(self._told(subject, f"{error}{place_of(error)}" or "it does not hold")) from error
        except BenchError as error:
            raise AssertionError(self._told(subject, str(error))) from error
        except Exception as error:
            raise AssertionError(self._told(subject, f"{type(error).__name__}: {error}{place_of(error)}")) from error

    def _told(self, subject: Any, seen: str) -> str:
        title = getattr(subject, "title", subject)
        return f"{title} breaks the rule {self.name!r}: {self.rule}\n  seen: {seen}\n  so:   {self.remedy}"


def require(holds: object, seen: str) -> None:
    """Fail with what was seen instead; an `assert` would vanish under ``python -O``."""
    if not holds:
        raise AssertionError(seen)
