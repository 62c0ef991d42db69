"""The kit notices the faults that it is there for: each of these algorithms breaks one rule and fails its check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedrela_bench.algorithms import Algorithm, Batch, ClientUpdate, LocalContext, ModelSize, Server, register
from fedrela_bench.models import Net, Outputs
from fedrela_bench.testing import CHECKS
from tests.kits import Row, names, rows_of

State = dict[str, Tensor]


class Faulty(Algorithm):
    citation: ClassVar[str] = "test"
    purpose: ClassVar[str] = "a fault that the kit must find"


@register
class RemembersInSelf(Faulty):
    name: ClassVar[str] = "faulty_self"
    seen = 0

    def criterion(self, outputs: Outputs, labels: Tensor, context: LocalContext) -> Tensor:
        self.seen += 1
        return super().criterion(outputs, labels, context) * (1 + 0.01 * self.seen)


@register
class DrawsFromTheGlobalGenerator(Faulty):
    name: ClassVar[str] = "faulty_generator"

    def criterion(self, outputs: Outputs, labels: Tensor, context: LocalContext) -> Tensor:
        return super().criterion(outputs, labels, context) * (1 + torch.rand(()))


@register
class WritesToTheServer(Faulty):
    name: ClassVar[str] = "faulty_server"

    def initial_server_state(self, server: Server) -> State:
        return {"count": torch.zeros((), dtype=server.params.dtype)}

    def finish(self, update: ClientUpdate) -> None:
        update.context.server.state["count"] += 1

    def server_step(self, sums: State, server: Server, participants: Sequence[int]) -> Tensor:
        return sums["params"] * (1 + 0.01 * server.state["count"])


@register
class ReadsTheDevice(Faulty):
    name: ClassVar[str] = "faulty_read"

    def criterion(self, outputs: Outputs, labels: Tensor, context: LocalContext) -> Tensor:
        loss = super().criterion(outputs, labels, context)
        return loss if float(loss.detach()) >= 0 else -loss


@register
class MakesTensorsElsewhere(Faulty):
    name: ClassVar[str] = "faulty_device"

    def criterion(self, outputs: Outputs, labels: Tensor, context: LocalContext) -> Tensor:
        return F.cross_entropy(outputs.logits + torch.ones(self.num_classes), labels)


@register
class KeepsUndeclaredState(Faulty):
    name: ClassVar[str] = "faulty_state"

    def finish(self, update: ClientUpdate) -> None:
        update.context.state["last"] = update.params.clone()


@register
class SendsUndeclaredSums(Faulty):
    name: ClassVar[str] = "faulty_sums"

    def new_sums(self, server: Server) -> State:
        return {**super().new_sums(server), "extra": torch.zeros_like(server.params)}

    def accumulate(self, sums: State, update: ClientUpdate) -> None:
        super().accumulate(sums, update)
        sums["extra"].add_(update.params)


@register
class AddsNewSums(Faulty):
    name: ClassVar[str] = "faulty_keys"

    def accumulate(self, sums: State, update: ClientUpdate) -> None:
        super().accumulate(sums, update)
        sums[f"client {update.context.client}"] = update.params.clone()


@register
class AveragesWithTheAbsent(Faulty):
    name: ClassVar[str] = "faulty_mean"

    def server_step(self, sums: State, server: Server, participants: Sequence[int]) -> Tensor:
        return sums["params"] * len(participants) / server.clients


@register
class Overflows(Faulty):
    name: ClassVar[str] = "faulty_log"

    def criterion(self, outputs: Outputs, labels: Tensor, context: LocalContext) -> Tensor:
        return F.nll_loss(outputs.logits.softmax(dim=1).log(), labels)


@register
class CountsOnce(Faulty):
    name: ClassVar[str] = "faulty_counts"

    def client_state_floats(self, size: ModelSize) -> int:
        return size.classes

    def prepare(self, net: Net, context: LocalContext) -> None:
        context.state.setdefault("counts", context.label_counts.clone())

    def criterion(self, outputs: Outputs, labels: Tensor, context: LocalContext) -> Tensor:
        return F.cross_entropy(outputs.logits + (1 + context.state["counts"]).log(), labels)


@register
class ChangesTheModel(Faulty):
    name: ClassVar[str] = "faulty_model"

    def loss(self, net: Net, batch: Batch, context: LocalContext) -> Tensor:
        context.server.params.mul_(1.0001)
        return super().loss(net, batch, context)


@register
class LeansOnTheFirst(Faulty):
    name: ClassVar[str] = "faulty_order"

    def server_step(self, sums: State, server: Server, participants: Sequence[int]) -> Tensor:
        return sums["params"] + 0.01 * participants[0]


FAULTS: list[tuple[Row, str]] = [
    (Row("faulty_self"), "local-training"),
    (Row("faulty_self"), "processes"),
    (Row("faulty_self"), "resume"),
    (Row("faulty_generator"), "resume"),
    (Row("faulty_server"), "local-training"),
    (Row("faulty_server"), "processes"),
    (Row("faulty_model"), "local-training"),
    (Row("faulty_read"), "device"),
    (Row("faulty_device"), "device"),
    (Row("faulty_state"), "client-state"),
    (Row("faulty_sums"), "messages"),
    (Row("faulty_keys"), "sums"),
    (Row("faulty_mean"), "single-participant"),
    (Row("faulty_log"), "extreme-logits-positive"),
    (Row("faulty_counts", label_stats=True), "label-counts"),
    (Row("faulty_counts"), "label-counts"),
    (Row("faulty_order"), "order"),
]
BY_NAME = {check.name: check for check in CHECKS}


@pytest.mark.parametrize(("row", "name"), FAULTS, ids=[f"{row.name}-{name}" for row, name in FAULTS])
def test_a_broken_rule_fails_its_check_and_says_how_to_put_it_right(row: Row, name: str) -> None:
    with pytest.raises(AssertionError) as caught:
        BY_NAME[name](row)
    text = str(caught.value)
    assert f"{row.name} breaks the rule {name!r}: {BY_NAME[name].rule}" in text
    assert BY_NAME[name].remedy in text and "seen: " in text


def test_an_algorithm_without_a_row_is_told_how_to_get_one() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"add _row\('faulty_self', ...\) to SHIPPED"):
        rows_of("faulty_self")
    assert "faulty_self" not in names()
