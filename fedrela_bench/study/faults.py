"""Faults of the user's input, collected so that one message can hold all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fedrela_bench.errors import BenchError, ConfigError, DataError

T = TypeVar("T")


class Faults:
    """Faults of the user's input found so far."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._kinds: set[type[BenchError]] = set()

    def add(self, texts: list[str]) -> None:
        """Faults of the request."""
        self.texts += texts
        self._kinds |= {ConfigError} if texts else set()

    def attempt(self, default: T, make: Callable[[], T]) -> T:
        """What `make` gives, or `default` with its faults noted."""
        try:
            return make()
        except ConfigError as error:
            self.add(error.faults)
        except DataError as error:
            self.texts.append(str(error))
            self._kinds.add(DataError)
        return default

    def require(self, check: Callable[[], object]) -> None:
        """A check that must hold before anything else is worth a look: with its faults, all so far are raised."""
        known = len(self.texts)
        self.attempt(None, check)
        if len(self.texts) > known:
            self.refuse()

    def refuse(self) -> None:
        """Raise all of them, if there are any."""
        texts = list(dict.fromkeys(self.texts))
        if self._kinds == {DataError} and len(texts) == 1:
            raise DataError(texts[0])
        if texts:
            raise ConfigError(texts)
