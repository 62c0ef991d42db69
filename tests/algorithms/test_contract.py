"""Algorithms of other families fit the contract without touching the loop.

Frozen copies of the global and the client's previous model (MOON), two views and an exchange before training
(FedYoYo), second-order terms in the inputs (FedMix), a server that trains its own scored classifier (CReFF), gradients
reweighted at the logits with a controller per client (FedGraB), epochs of over-sampled rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedrela_bench.algorithms import Algorithm, Batch, ClientUpdate, LocalContext, Server, register
from fedrela_bench.simulation import Simulation
from tests.simulation import toy

State = dict[str, Tensor]


class Probe(Algorithm):
    citation: ClassVar[str] = "test"
    purpose: ClassVar[str] = "contract"


@register
class Contrastive(Probe):
    name: ClassVar[str] = "contract_contrastive"
    first_losses: ClassVar[list[float]] = []

    def initial_client_state(self, context: LocalContext) -> State:
        return {"params": context.server.params.clone(), "buffers": context.server.buffers.clone()}

    def prepare(self, net: Any, context: LocalContext) -> None:
        context.scratch["global"] = context.frozen(context.server.params, context.server.buffers)
        context.scratch["previous"] = context.frozen(context.state["params"], context.state["buffers"])

    def loss(self, net: Any, batch: Batch, context: LocalContext) -> Tensor:
        outputs = net(batch.inputs)
        pairs = [context.scratch[name](batch.inputs).features for name in ("global", "previous")]
        cosines = torch.stack([F.cosine_similarity(outputs.features, other) for other in pairs], dim=1)
        contrast = F.cross_entropy(cosines / 0.5, torch.zeros(len(batch), dtype=torch.long))
        if context.round == 0:
            self.first_losses.append(float(contrast.detach()))
        return F.cross_entropy(outputs.logits, batch.labels) + contrast

    def finish(self, update: ClientUpdate) -> None:
        update.context.state.update(params=update.params.clone(), buffers=update.buffers.clone())


@register
class TwoViews(Probe):
    name: ClassVar[str] = "contract_two_views"

    def initial_server_state(self, server: Server) -> State:
        return {"prior": torch.full((server.num_classes,), 1 / server.num_classes, dtype=server.params.dtype)}

    def probe_clients(self, server: Server, participants: Sequence[int]) -> Sequence[int]:
        return participants

    def probe(self, net: Any, context: LocalContext) -> State:
        assert not net.training
        return {"counts": context.label_counts.double()}

    def receive(self, server: Server, messages: Mapping[int, State]) -> None:
        total = torch.stack([message["counts"] for message in messages.values()]).sum(dim=0)
        server.state["prior"] = total / total.sum()

    def inputs(self, context: LocalContext, images: Tensor, draws: Tensor) -> Any:
        plain = context.pipeline.plain(images)
        return plain, plain.flip(3)

    def loss(self, net: Any, batch: Batch, context: LocalContext) -> Tensor:
        shift = (context.server.state["prior"] + 1e-9).log()
        views = [F.cross_entropy(net(view).logits + shift, batch.labels) for view in batch.inputs]
        return torch.stack(views).mean()


@register
class InputGradient(Probe):
    name: ClassVar[str] = "contract_input_gradient"

    def loss(self, net: Any, batch: Batch, context: LocalContext) -> Tensor:
        inputs = batch.inputs.detach().requires_grad_()
        loss = F.cross_entropy(net(inputs).logits, batch.labels)
        (slope,) = torch.autograd.grad(loss, inputs, create_graph=True)
        return loss + 0.05 * (slope * inputs.detach().mean(dim=0)).sum()


@register
class ServerClassifier(Probe):
    name: ClassVar[str] = "contract_server_classifier"

    def initial_server_state(self, server: Server) -> State:
        return {"classifier": torch.zeros(server.num_classes, 48, dtype=server.params.dtype)}

    def server_step(self, sums: State, server: Server, participants: Sequence[int]) -> Tensor:
        server.state["classifier"] = server.state["classifier"] + 1
        return super().server_step(sums, server, participants)

    def score(self, net: Any, outputs: Any, server: Server) -> Tensor:
        weights = server.state["classifier"].clone()
        weights[1:] = 0
        return outputs.features @ weights.T + torch.tensor([1.0, 0, 0, 0])


@register
class LogitReweighting(Probe):
    name: ClassVar[str] = "contract_logit_reweighting"

    def initial_client_state(self, context: LocalContext) -> State:
        return {"gap": torch.zeros(self.num_classes)}

    def loss(self, net: Any, batch: Batch, context: LocalContext) -> Tensor:
        logits = net(batch.inputs).logits
        logits.register_hook(lambda gradient: self._reweight(gradient, context))
        return F.cross_entropy(logits, batch.labels)

    def _reweight(self, gradient: Tensor, context: LocalContext) -> Tensor:
        context.state["gap"] = context.state["gap"] + gradient.sum(dim=0).float()
        return gradient * torch.sigmoid(context.state["gap"]).to(gradient.dtype) * 2


@register
class OverSampling(Probe):
    name: ClassVar[str] = "contract_over_sampling"
    rows: ClassVar[list[int]] = []

    def epoch_rows(self, context: LocalContext, rng: np.random.Generator) -> np.ndarray:
        classes = np.unique(context.labels.numpy())
        picked = [rng.choice(np.flatnonzero(context.labels.numpy() == c), 10) for c in classes]
        self.rows.append(len(classes) * 10)
        return rng.permutation(np.concatenate(picked))


NAMES = [
    "contract_contrastive",
    "contract_two_views",
    "contract_input_gradient",
    "contract_server_classifier",
    "contract_logit_reweighting",
    "contract_over_sampling",
]


def _trial(name: str, relabel: dict[str, Any]) -> Any:
    return toy.config(federation={"algorithm": name, "clients": 4, "rounds": 4, "participation": 0.75}, relabel=relabel)


@pytest.mark.parametrize("name", NAMES)
def test_other_families_run_fork_and_resume_bit_for_bit(name: str) -> None:
    data, relabel = toy.skewed(clients=4), {"tau": 0.3, "start": 2}
    full, _ = toy.run(_trial(name, relabel), data)
    trunk = Simulation(_trial(name, {}), data)
    for _ in range(2):
        trunk.run_round()
    fork = Simulation(_trial(name, relabel), data)
    fork.restore(trunk.snapshot())
    list(fork)
    assert toy.same_model(fork, full)
    base, _ = toy.run(_trial("fedavg", relabel), data)
    if name != "contract_server_classifier":
        assert not torch.equal(full.state.server.params, base.state.server.params)


def test_equal_frozen_models_give_log_two() -> None:
    Contrastive.first_losses.clear()
    simulation = Simulation(_trial("contract_contrastive", {}), toy.skewed(clients=4))
    simulation.run_round()
    assert Contrastive.first_losses == pytest.approx([math.log(2)] * len(Contrastive.first_losses))
    assert len(Contrastive.first_losses) > 4


def test_frozen_calls_leave_the_live_network_alone() -> None:
    simulation = Simulation(_trial("fedavg", {}), toy.skewed(clients=4))
    model = simulation.model
    model.net.train()
    before = (model.params.clone(), model.buffers.clone())
    call = model.frozen(torch.zeros_like(model.params), torch.ones_like(model.buffers))
    outputs = call(torch.ones(3, 1, 8, 8, dtype=torch.float64))
    assert torch.equal(outputs.logits, torch.zeros(3, 4, dtype=torch.float64))
    assert model.net.training
    assert torch.equal(model.params, before[0])
    assert torch.equal(model.buffers, before[1])


def test_the_scored_classifier_may_be_the_servers() -> None:
    _, results = toy.run(_trial("contract_server_classifier", {}), toy.skewed(clients=4))
    confusion = results[-1].confusion["test"]
    assert confusion[:, 0].sum() == confusion.sum()


def test_an_epoch_may_be_longer_than_the_data() -> None:
    OverSampling.rows.clear()
    simulation = Simulation(_trial("contract_over_sampling", {}), toy.skewed(clients=4))
    result = simulation.run_round()
    assert max(OverSampling.rows) == 40
    assert len(OverSampling.rows) == 2 * len(result.participants)


def test_bf16_is_an_option_that_changes_the_numbers_little() -> None:
    data = toy.skewed(clients=4)
    exact, _ = toy.run(toy.config(federation={"clients": 4}, training={"dtype": "float32"}), data)
    rounded, _ = toy.run(toy.config(federation={"clients": 4}, training={"dtype": "float32", "amp": "bf16"}), data)
    gap = (exact.state.server.params - rounded.state.server.params).norm() / exact.state.server.params.norm()
    assert 0 < gap < 0.1


def test_parameters_are_views_of_the_flat_vector() -> None:
    model = Simulation(_trial("fedavg", {}), toy.skewed(clients=4)).model
    conv = model.net.get_submodule("backbone.conv")
    assert isinstance(conv, nn.Conv2d)
    assert conv.weight.is_contiguous(memory_format=torch.channels_last)
    model.params.zero_()
    assert all(not parameter.any() for parameter in model.net.parameters())
