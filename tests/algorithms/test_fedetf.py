"""Both FedETF heads inside an algorithm: which logits are scored and relabel, and who feels which loss."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedrela_bench.algorithms.fedetf import balanced_softmax_loss
from fedrela_bench.models.heads import dot_regression_loss
from fedrela_bench.simulation import Simulation
from tests.simulation import toy


def _simulation(name: str, **options: Any) -> Simulation:
    return Simulation(toy.config(federation={"algorithm": name, "options": options}), toy.skewed())


def _batch(simulation: Simulation) -> Any:
    images = simulation.data.pipeline.plain(simulation.data.images[:8])
    return SimpleNamespace(inputs=images, labels=simulation.data.original[:8])


# projection, temperature, balanced softmax ---------------------------------------------------------------------------


def test_a_temperature_of_any_sign_leaves_the_prediction_alone() -> None:
    simulation = _simulation("fedetf")
    algorithm, net, server = simulation.algorithm, simulation.model.net.eval(), simulation.state.server
    found = []
    for beta in (1.0, -3.0):
        with torch.no_grad():
            cast(Tensor, net.head.beta).fill_(beta)
            outputs = net(_batch(simulation).inputs)
        cosines = algorithm.score(net, outputs, server)
        found.append(cosines)
        np.testing.assert_allclose(outputs.logits.detach(), beta * cosines.detach(), atol=1e-12)
        assert torch.equal(algorithm.posterior(net, outputs, server, "scored"), outputs.logits)
        assert torch.equal(algorithm.posterior(net, outputs, server, "cosine"), cosines)
    assert torch.equal(*found)


def test_the_local_loss_is_balanced_by_the_clients_own_counts() -> None:
    simulation = _simulation("fedetf", gamma=0.7)
    batch, counts = _batch(simulation), torch.tensor([9, 0, 2, 30])
    outputs = simulation.model.net(batch.inputs)
    context: Any = SimpleNamespace(label_counts=counts)
    loss = simulation.algorithm.criterion(outputs, batch.labels, context)
    assert torch.equal(loss, balanced_softmax_loss(outputs.logits, batch.labels, counts, 0.7))
    weighted = torch.tensor([9.0, 1, 2, 30]).double() ** 0.7 * outputs.logits.exp()
    expected = -(weighted[range(8), batch.labels] / weighted.sum(dim=1)).log().mean()
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), abs=1e-12)


# dot regression ------------------------------------------------------------------------------------------------------


def test_the_linear_heads_learn_beside_the_backbone_without_its_feeling_them() -> None:
    simulation = _simulation("fedetf_dotreg")
    net, batch = cast(Any, simulation.model.net.train()), _batch(simulation)

    def gradients(loss: Tensor) -> dict[str, Tensor]:
        net.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        return {name: part.grad.clone() for name, part in net.named_parameters() if part.grad is not None}

    together = gradients(simulation.algorithm.loss(net, batch, cast(Any, None)))
    features = net.features(batch.inputs)
    etf = net.head.etf_head
    alone = [gradients(dot_regression_loss(etf.unit(features), etf.etf, batch.labels))]
    fixed = features.detach()
    alone += [gradients(cross_entropy(head(fixed), batch.labels)) for head in (net.head.auxiliary, net.head.local)]
    separate = {name: gradient for part in alone for name, gradient in part.items()}
    assert sum(len(part) for part in alone) == len(separate) == len(together)
    for name, gradient in together.items():
        torch.testing.assert_close(gradient, separate[name], atol=1e-12, rtol=1e-12, msg=name)


@pytest.mark.parametrize(("option", "norm"), [("aggregate", "shared"), ("author", "reset"), ("none", None)])
def test_what_becomes_of_the_heads_batch_norm(option: str, norm: str | None) -> None:
    simulation = _simulation("fedetf_dotreg", etf_head_bn=option)
    algorithm, net = simulation.algorithm, cast(Any, simulation.model.net)
    pieces = (*simulation.model.param_pieces, *simulation.model.buffer_pieces)
    scopes = {piece.name: piece.scope for piece in pieces if piece.name.startswith("head.")}
    own = {scope for name, scope in scopes.items() if name.startswith("head.etf_head.bn.")}
    assert own == ({norm} if norm else set())
    assert {scopes["head.local.weight"], scopes["head.local.bias"]} == {"client"}
    assert {scopes["head.auxiliary.weight"], scopes["head.auxiliary.bias"]} == {"shared"}
    assert algorithm.eval_batch() == (100 if option == "author" else None)
    algorithm.prepare_eval(net, "posterior")
    assert not any(module.training for module in net.modules())
    algorithm.prepare_eval(net, "test")
    assert net.head.etf_head.training == (option == "author")
    assert not net.backbone.training
