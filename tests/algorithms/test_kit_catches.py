"""The kit notices the faults that it is there for: each of these algorithms breaks one rule and fails its check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedrela_bench.algorithms import Algorithm, Batch, ClientUpdate, LocalContext, ModelSize, Server, register
from fedrela_bench.models import Net, Outputs
from tests.algorithms import test_kit as checks
from tests.algorithms import test_kit_contract as contract
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


def _extreme(row: Row) -> None:
    checks.test_extreme_logits_give_finite_losses_and_gradients(row, 1e4)


FAULTS: list[tuple[Row, Callable[[Row], None]]] = [
    (Row("faulty_self"), contract.test_local_training_changes_neither_server_nor_algorithm_nor_data),
    (Row("faulty_self"), contract.test_clients_may_train_in_processes_of_their_own),
    (Row("faulty_server"), contract.test_local_training_changes_neither_server_nor_algorithm_nor_data),
    (Row("faulty_server"), contract.test_clients_may_train_in_processes_of_their_own),
    (Row("faulty_model"), contract.test_local_training_changes_neither_server_nor_algorithm_nor_data),
    (Row("faulty_read"), contract.test_hooks_of_a_step_never_wait_for_the_device),
    (Row("faulty_device"), contract.test_hooks_of_a_step_never_wait_for_the_device),
    (Row("faulty_state"), contract.test_what_clients_keep_is_what_is_declared),
    (Row("faulty_sums"), contract.test_communication_is_what_messages_hold),
    (Row("faulty_keys"), contract.test_uploads_add_up_in_fixed_shapes),
    (Row("faulty_mean"), checks.test_a_single_participant_is_not_scaled_down),
    (Row("faulty_log"), _extreme),
    (Row("faulty_counts", label_stats=True), checks.test_losses_read_the_counts_of_the_labels_in_force),
    (Row("faulty_order"), checks.test_the_order_of_clients_matters_only_to_rounding),
]
NOTICED = (AssertionError, KeyError, RuntimeError, NotImplementedError)
"""The last two are what the meta device raises."""


@pytest.mark.parametrize(("row", "check"), FAULTS, ids=[f"{row.name}-{check.__name__}" for row, check in FAULTS])
def test_a_broken_rule_fails_its_check(row: Row, check: Callable[[Row], None]) -> None:
    with pytest.raises(NOTICED):
        check(row)


@pytest.mark.parametrize("name", ["faulty_self", "faulty_generator"])
def test_hidden_state_fails_the_resume(name: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        checks.test_stopping_after_every_round_changes_no_bit(Row(name), tmp_path)


def test_an_algorithm_without_a_row_is_told_how_to_get_one() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"add Row\('faulty_self', ...\) to ROWS"):
        rows_of("faulty_self")
    assert "faulty_self" not in names()
