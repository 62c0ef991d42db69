"""FedReLa itself: the reference that the other relabelers are compared with."""

from __future__ import annotations

from typing import Any, ClassVar

from numpy.typing import NDArray
from torch import Tensor

from fedrela_bench.relabel import Reallocation, reallocate
from fedrela_bench.relabelers.base import Client, Relabeler, Relabelled
from fedrela_bench.relabelers.registry import register_relabeler


@register_relabeler
class FedReLa(Relabeler):
    """Samples that lean unusually far towards a locally rarer class move to it.

    Its options are the other fields of the relabel section: tau, pick, score, quantile and so on.
    """

    name: ClassVar[str] = "fedrela"
    citation: ClassVar[str] = "FedReLa, equations (2)-(8) and Algorithm 1 (arXiv 2606.26037)"
    purpose: ClassVar[str] = "moves samples that lean towards a locally rarer class to that class"

    def relabel(self, client: Client[NDArray[Any]]) -> Relabelled[NDArray[Any]]:
        """By the numpy engine; strength is rho of the new label."""
        found = reallocated(client)
        return Relabelled(found.labels, found.strength)

    def relabel_tensor(self, client: Client[Tensor]) -> Relabelled[Tensor]:
        """By the engine of the tensors' device, in one pass."""
        found = reallocated(client)
        return Relabelled(found.labels, found.strength)

    def most(self, client: Client[Any]) -> int:
        """A class takes at most the share tau, the most common one none; without quantile thresholds all may move."""
        return most_of(client)


def most_of(client: Client[Any]) -> int:
    """The most samples that FedReLa can move with a client's budget."""
    n, classes = client.posterior.shape
    if client.readings.constant_threshold is not None or client.readings.score == "none":
        return int(n)
    each = int(client.tau * n) + 1 if client.tau > 0 else 0
    return int(min(n, (classes - 1) * each))


def reallocated(client: Client[Any]) -> Reallocation[Any]:
    """What FedReLa makes of a client."""
    given = (client.posterior, client.labels, client.tau, client.uniforms, client.readings)
    return reallocate(*given, diagnostics=False)
