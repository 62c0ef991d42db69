"""The kit that every algorithm, model, relabeler and schedule of the package passes, for those of one's own.

    from fedrela_bench.testing import check_algorithm, check_model, check_relabeler

    check_algorithm("mine", {"mu": 0.1})
    check_model("my_net", (3, 32, 32))
    check_relabeler("mine")

A broken rule is an `AssertionError` that says which rule it is, what was seen, and how to put it right; all of them are
in one message. The same from a shell: ``fedrela-bench algorithms check mine --plugin mine.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fedrela_bench.testing.cases import SHIPPED, Case, Equal, cases_of
from fedrela_bench.testing.clients import CLIENTS
from fedrela_bench.testing.contract import CONTRACT
from fedrela_bench.testing.networks import NETWORK, Network, network
from fedrela_bench.testing.relabelers import check_relabeler, check_schedule
from fedrela_bench.testing.rules import Check
from fedrela_bench.testing.runs import RUNS

__all__ = [
    "CHECKS",
    "NETWORK",
    "SHIPPED",
    "Case",
    "Check",
    "Equal",
    "Network",
    "broken",
    "cases_of",
    "check_algorithm",
    "check_model",
    "check_relabeler",
    "check_schedule",
    "network",
]

CHECKS: tuple[Check, ...] = (*CONTRACT, *CLIENTS, *RUNS)
"""What holds for every algorithm."""


def check_algorithm(name: str, options: Mapping[str, Any] | None = None, **facts: Any) -> None:
    """Check everything that holds for every algorithm.

    Args:
        name: of a registered algorithm.
        options: its options; by default its own defaults.
        facts: what is special about it, fields of `Case` such as ``server="own"``; by default the class's `kit`.

    Raises:
        AssertionError: rules that it breaks, all in one message.
        ConfigError: unknown algorithm, wrong options or facts.
    """
    _raise(text for case in cases_of(name, options, **facts) for _, text in broken(CHECKS, case) if text)


def check_model(name: str, input_shape: tuple[int, int, int], norm: str = "batch") -> None:
    """Check everything that holds for every model.

    Args:
        name: of a registered model.
        input_shape: (channels, height, width) of the images.
        norm: ``batch`` or ``group``.

    Raises:
        AssertionError: rules that it breaks, all in one message.
        ConfigError: unknown model, or one that cannot be built for such images.
    """
    _raise(text for _, text in broken(NETWORK, network(name, input_shape, norm)) if text)


def broken(
    checks: Sequence[Check], subject: Any, began: Callable[[Check], None] = lambda check: None
) -> Iterator[tuple[Check, str]]:
    """Every check in turn with what is wrong; empty text where the rule holds. A rule that others need ends it, broken.

    Args:
        checks: `CHECKS` or `NETWORK`.
        subject: a `Case` or `Network`.
        began: called before each.
    """
    for check in checks:
        began(check)
        try:
            check(subject)
            yield check, ""
        except AssertionError as error:
            yield check, str(error)
            if check.first:
                return


def _raise(found: Iterator[str]) -> None:
    texts = list(found)
    if texts:
        raise AssertionError("\n".join(texts))
