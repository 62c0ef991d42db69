"""No relabelling, by the path that relabels."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedrela_bench.relabelers.base import Client, Relabeler, Relabelled
from fedrela_bench.relabelers.registry import register_relabeler


@register_relabeler
class Nothing(Relabeler):
    """Forks at T and keeps every label, so that its numbers are the baseline's bit for bit.

    It shows that forking, the pass for the posterior and the schedule change nothing by themselves.
    """

    name: ClassVar[str] = "none"
    citation: ClassVar[str] = "fedrela-bench"
    purpose: ClassVar[str] = "keeps every label: the baseline by the path of a relabelled run"
    control: ClassVar[bool] = True

    def relabel(self, client: Client[NDArray[Any]]) -> Relabelled[NDArray[Any]]:
        """The labels as they are."""
        return Relabelled(client.labels.copy(), np.zeros(len(client.labels)))

    def most(self, client: Client[Any]) -> int:
        """None."""
        return 0
