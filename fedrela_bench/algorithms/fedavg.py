"""FedAvg.

McMahan, Moore, Ramage, Hampson and Aguera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017, Algorithm 1: local SGD on the cross-entropy, then the mean weighted by sample counts.
"""

from __future__ import annotations

from typing import ClassVar

from fedrela_bench.algorithms.base import Algorithm
from fedrela_bench.algorithms.registry import register


@register
class FedAvg(Algorithm):
    """Local cross-entropy, n-weighted mean; every hook is the base class's."""

    name: ClassVar[str] = "fedavg"
    citation: ClassVar[str] = "McMahan et al., AISTATS 2017"
    purpose: ClassVar[str] = "local SGD on cross-entropy, server mean weighted by sample counts"
