"""FedNova, SCAFFOLD, FedDyn and CLIMB: worked examples, degenerate cases, declared figures."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedrela_bench.algorithms import (
    Algorithm,
    ClientUpdate,
    LocalContext,
    Server,
    build_algorithm,
    check_algorithm,
    register,
)
from fedrela_bench.algorithms.climb import Climb
from fedrela_bench.algorithms.fedavg import FedAvg
from fedrela_bench.algorithms.feddyn import FedDyn
from fedrela_bench.algorithms.fednova import FedNova, accumulated_weight
from fedrela_bench.algorithms.flat_ops import clip_norm
from fedrela_bench.algorithms.scaffold import Scaffold
from fedrela_bench.simulation import Simulation
from tests.algorithms.server_rules import PLAIN, Golden, Quadratic, close, example_of, local_models, losses_of, trial
from tests.simulation import toy
from tests.simulation.test_linear_softmax import UniformMean

# worked examples -----------------------------------------------------------------------------------------------------


def test_accumulated_weights_of_momentum_and_proximal_steps(golden: Golden) -> None:
    expected = example_of(golden, "fednova")["expected"]
    for steps, value in expected["a_i_momentum_0p9"].items():
        assert accumulated_weight(int(steps), 0.9) == pytest.approx(value, abs=1e-9)
    for steps, value in expected["a_i_prox_lr0p1_mu0p5"].items():
        assert accumulated_weight(int(steps), 0.0, pull=0.1 * 0.5) == pytest.approx(value, abs=1e-9)


@given(steps=st.integers(1, 60), momentum=st.floats(0, 0.99))
def test_accumulated_weight_is_the_closed_form(steps: int, momentum: float) -> None:
    closed = (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
    assert accumulated_weight(steps, momentum) == pytest.approx(closed, rel=1e-9)


@pytest.mark.parametrize(("momentum", "key"), [(0.9, "mom0p9"), (0.0, "mom0")])
def test_fednova_on_quadratics(momentum: float, key: str, golden: Golden) -> None:
    example = example_of(golden, "fednova")
    federation = Quadratic(build_algorithm("fednova", {}, 2), example["inputs"], momentum)
    result = federation.round(example["inputs"]["tau"])
    close(federation.locals, example["expected"][key]["client_params"])
    close(result, example["expected"][key]["new_global"])


def test_fednova_with_equal_steps_is_fedavg(golden: Golden) -> None:
    example = example_of(golden, "fednova")
    federation = Quadratic(build_algorithm("fednova", {}, 2), example["inputs"], 0.9)
    close(federation.round([4, 4]), example["expected"]["equal_steps_4_mom0p9"]["fedavg"], 1e-12)


def test_fednova_server_momentum_carries_the_last_step(golden: Golden) -> None:
    inputs = example_of(golden, "fednova")["inputs"]
    plain = Quadratic(build_algorithm("fednova", {}, 2), inputs)
    heavy = Quadratic(build_algorithm("fednova", {"server_momentum": 0.5}, 2), inputs)
    first = plain.round([2, 5])
    close(heavy.round([2, 5]), first, 0)
    close(heavy.round([2, 5]), plain.round([2, 5]) + 0.5 * first, 1e-12)


def test_scaffold_on_quadratics(golden: Golden) -> None:
    example = example_of(golden, "scaffold")
    federation = Quadratic(build_algorithm("scaffold", {}, 2), example["inputs"])
    for expected in example["expected"]["rounds"]:
        result = federation.round([5, 5])
        close(federation.locals, expected["client_params"])
        close([federation.states[client]["variate"] for client in (0, 1)], expected["new_c_i"])
        close(federation.server.state["variate"], expected["new_c"])
        close(result, expected["new_global"])


def test_feddyn_on_quadratics(golden: Golden) -> None:
    example = example_of(golden, "feddyn")
    alpha = example["inputs"]["alpha"]
    federation = Quadratic(build_algorithm("feddyn", {"alpha": alpha}, 2), example["inputs"])
    for expected in example["expected"]["rounds"]:
        result = federation.round([5, 5])
        close(federation.locals, expected["client_params"])
        close([-alpha * federation.states[client]["drift"] for client in (0, 1)], expected["g_k"])
        close(-alpha * federation.server.state["drift"] / 2, expected["h"])
        close(result, expected["new_global"])


def test_feddyn_without_alpha_trains_as_fedavg_but_oversteps(golden: Golden) -> None:
    example = example_of(golden, "feddyn")
    federation = Quadratic(build_algorithm("feddyn", {"alpha": 0.0}, 2), example["inputs"])
    close(federation.round([5, 5]), example["expected"]["alpha_to_0_first_round_global"])
    close(federation.round([5, 5]), federation.server.state["drift"] / 2 + torch.stack(federation.locals).mean(dim=0))


@pytest.mark.parametrize(("name", "options"), [("scaffold", {}), ("feddyn", {"alpha": 0.2})])
def test_corrected_clients_reach_the_global_optimum(name: str, options: dict[str, Any], golden: Golden) -> None:
    federation = Quadratic(build_algorithm(name, options, 2), example_of(golden, "scaffold")["inputs"])
    for _ in range(300):
        result = federation.round([5, 5])
    close(result, (federation.a * federation.b).sum(dim=0) / federation.a.sum(dim=0), 1e-6)


def test_the_same_clients_miss_it_with_fedavg(golden: Golden) -> None:
    federation = Quadratic(build_algorithm("fedavg", {}, 2), example_of(golden, "scaffold")["inputs"])
    for _ in range(300):
        result = federation.round([5, 5])
    optimum = (federation.a * federation.b).sum(dim=0) / federation.a.sum(dim=0)
    assert (result - optimum).abs().max() > 0.01


def test_climb_weights_and_duals(golden: Golden) -> None:
    example = example_of(golden, "climb")
    inputs, expected = example["inputs"], example["expected"]
    algorithm = build_algorithm("climb", {"epsilon": inputs["eps"], "dual_lr": inputs["dual_lr"]}, 2)
    params = torch.tensor(inputs["global_params"], dtype=torch.float64)
    server = Server(params, torch.zeros(0), {}, np.ones(3, dtype=int), 2, seed=0)
    server.state = algorithm.initial_server_state(server)
    close(_climb_step(algorithm, server, inputs["deltas"]), expected["new_global_lambda0"])
    for losses, step in zip(inputs["losses_per_dual_round"], expected["rounds"], strict=True):
        algorithm.receive(server, losses_of(losses))
        close(server.state["weights"], step["weights_used"])
        close(server.state["dual"], step["lambda_after"])
    algorithm.receive(server, losses_of([1.0, 1.0, 1.0]))
    close(server.state["weights"], expected["weights_next"])
    close(_climb_step(algorithm, server, inputs["deltas"]), expected["new_global"])


def _climb_step(algorithm: Algorithm, server: Server, deltas: Sequence[Sequence[float]]) -> Tensor:
    sums = algorithm.new_sums(server)
    for client, delta in enumerate(deltas):
        context: Any = SimpleNamespace(client=client, server=server, state={})
        params = server.params + torch.tensor(delta, dtype=torch.float64)
        algorithm.accumulate(sums, ClientUpdate(context, params, torch.zeros(0), 1))
    return algorithm.server_step(sums, server, range(len(deltas)))


@register
class UnequalEpochs(FedNova):
    name: ClassVar[str] = "test_fednova_2_5"

    def prepare(self, net: Any, context: LocalContext) -> None:
        context.local_epochs = {2: 5, 4: 2}[context.samples]


@register
class UnequalAverage(FedAvg):
    name: ClassVar[str] = "test_fedavg_2_5"

    prepare = UnequalEpochs.prepare


LINEAR: list[tuple[str, str, bool, dict[str, Any]]] = [
    ("fedavg_steps_2_5", "test_fedavg_2_5", False, {}),
    ("fednova_steps_2_5", "test_fednova_2_5", False, {}),
    ("fednova_steps_3_3", "fednova", False, {}),
    ("scaffold", "scaffold", True, {}),
    ("feddyn_alpha0p1", "feddyn", True, {"alpha": 0.1}),
    ("climb_3_rounds", "climb", True, {"epsilon": 0.005, "dual_lr": 2.0, "primal_rounds": 1}),
]


@pytest.mark.parametrize(("row", "algorithm", "plain", "options"), LINEAR)
def test_rounds_on_a_linear_softmax(
    row: str, algorithm: str, plain: bool, options: dict[str, Any], golden: Golden
) -> None:
    example = example_of(golden, "linear_softmax_two_rounds")
    inputs, expected = example["inputs"], example["expected"][row]["after_each_round"]
    data = toy.dataset(
        [y for part in inputs["Y"] for y in part], [range(4), [4, 5]], 3, images=np.zeros((6, 1, 2, 1), dtype=np.uint8)
    )
    training = {"model": "identity_net", "local_epochs": 3, "batch_size": 8, "lr": inputs["lr"], "momentum": 0.9}
    training |= {"weight_decay": 1e-5} | (PLAIN if plain else {})
    config = trial(algorithm, options, federation={"clients": 2, "rounds": len(expected)}, training=training)
    simulation = Simulation(config, data)
    images = torch.tensor([x for part in inputs["X"] for x in part], dtype=torch.float64).reshape(6, 1, 1, 2)
    toy.with_floats(simulation, images, torch.zeros(12, 1, 1, 2, dtype=torch.float64))
    simulation.state.server.params.zero_()
    for params in expected:
        simulation.run_round()
        close(simulation.state.server.params, params, example["tolerance"])
    if row == "climb_3_rounds":
        close(simulation.state.server.state["dual"], example["expected"][row]["lambda"], example["tolerance"])


# degenerate cases ----------------------------------------------------------------------------------------------------


def test_scaffold_begins_as_the_uniform_mean_bit_for_bit() -> None:
    trials = [trial(name, training=PLAIN) for name in (UniformMean.name, "scaffold")]
    uniform, scaffold = (Simulation(config, toy.skewed(clients=4)) for config in trials)
    weighted = Simulation(trial("scaffold", {"weighting": "samples"}, training=PLAIN), toy.skewed(clients=4))
    fedavg = Simulation(trial("fedavg", training=PLAIN), toy.skewed(clients=4))
    for simulation in (uniform, scaffold, weighted, fedavg):
        simulation.run_round()
    assert toy.same_model(scaffold, uniform)
    assert toy.same_model(weighted, fedavg)
    scaffold.run_round()
    uniform.run_round()
    assert not toy.same_model(scaffold, uniform)


def test_scaffold_with_one_client_is_plain_sgd() -> None:
    data = toy.dataset([0, 1, 2, 0, 1, 2, 0, 1], [range(8)], 3)
    runs = [toy.run(trial(name, federation={"clients": 1}, training=PLAIN), data)[0] for name in ("scaffold", "fedavg")]
    close(runs[0].state.server.params, runs[1].state.server.params, 1e-12)


def test_climb_without_dual_steps_is_the_uniform_mean_bit_for_bit() -> None:
    data, federation = toy.skewed(clients=4), {"participation": 0.75}
    climb, _ = toy.run(trial("climb", {"dual_lr": 0.0, "primal_rounds": 1}, federation=federation), data)
    uniform, _ = toy.run(trial(UniformMean.name, federation=federation), data)
    assert toy.same_model(climb, uniform)


def test_feddyn_without_alpha_trains_locally_as_fedavg_bit_for_bit() -> None:
    data = toy.skewed(clients=4)
    feddyn, fedavg = (Simulation(trial(*kind), data) for kind in (("feddyn", {"alpha": 0.0}), ("fedavg",)))
    start, found = feddyn.state.server.params.clone(), [local_models(s) for s in (feddyn, fedavg)]
    for simulation in (feddyn, fedavg):
        simulation.run_round()
    for client in range(4):
        assert all(torch.equal(*pair) for pair in zip(found[0][client], found[1][client], strict=True))
    mean = torch.stack([params for params, _ in found[0].values()]).mean(dim=0)
    close(feddyn.state.server.params, 2 * mean - start, 1e-12)


def test_fednova_with_equal_numbers_of_steps_is_fedavg() -> None:
    labels = np.tile([0, 0, 1, 2], 12)
    data = toy.dataset(labels, [range(12 * k, 12 * k + 12) for k in range(4)], 3)
    fednova, fedavg = (toy.run(trial(name), data)[0] for name in ("fednova", "fedavg"))
    close(fednova.state.server.params, fedavg.state.server.params, 1e-12)


def test_fedpd_begins_as_fedprox_with_the_inverse_strength() -> None:
    data = toy.dataset(np.tile([0, 0, 1, 2], 12), [range(12 * k, 12 * k + 12) for k in range(4)], 3)
    fedpd = Simulation(trial("climb", {"learner": "fedpd", "pd_eta": 2.0, "pd_clip": 0.0}), data)
    fedprox = Simulation(trial("fedprox", {"mu": 0.5}), data)
    for simulation in (fedpd, fedprox):
        simulation.run_round()
    close(fedpd.state.server.params, fedprox.state.server.params, 1e-12)
    dual = sum(state["dual"] for state in fedpd.state.client_states.values())
    fedpd.run_round()
    assert not torch.equal(sum(state["dual"] for state in fedpd.state.client_states.values()), dual)


@given(scale=st.floats(1e-6, 1e6), limit=st.floats(1e-3, 1e3))
def test_clipping_bounds_the_norm_and_keeps_short_gradients(scale: float, limit: float) -> None:
    gradient = scale * torch.tensor([3.0, 0.0, -4.0], dtype=torch.float64)
    clipped = gradient.clone()
    clip_norm(clipped, limit)
    assert clipped.norm() <= limit * (1 + 1e-12) or torch.equal(clipped, gradient)
    assert torch.equal(clipped, gradient) == bool(gradient.norm() <= limit)
    zero = torch.zeros(3)
    clip_norm(zero, limit)
    assert not zero.any()


# declarations --------------------------------------------------------------------------------------------------------


EXTRA: list[tuple[str, dict[str, Any], int, tuple[int, int], tuple[int, int]]] = [
    ("fednova", {}, 0, (1, 0), (1, 1)),
    ("scaffold", {}, 1, (2, 0), (2, 0)),
    ("feddyn", {}, 1, (1, 0), (1, 0)),
    ("feddyn", {"score": "mean_all"}, 2, (1, 0), (2, 0)),
    ("climb", {}, 0, (1, 0), (1, 1)),
    ("climb", {"learner": "fedpd"}, 1, (1, 1), (1, 1)),
]


@pytest.mark.parametrize(("name", "options", "kept", "down", "up"), EXTRA)
def test_state_and_communication_are_as_declared(
    name: str, options: dict[str, Any], kept: int, down: tuple[int, int], up: tuple[int, int]
) -> None:
    """In models and scalars: what a client keeps, and what goes down and up."""
    config = trial(name, options, training={"model": "identity_net"})
    simulation, _ = toy.run(config, toy.skewed(clients=4))
    size = simulation.model.size(64, 4)
    model = len(simulation.state.server.params)
    assert simulation.algorithm.client_state_floats(size) == kept * model
    for client in range(4):
        held = simulation.state.client_states.get(client, {})
        assert sum(tensor.numel() for tensor in held.values()) == kept * model
    assert simulation.communication == {"down": down[0] * model + down[1], "up": up[0] * model + up[1]}


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("fednova", {"server_momentum": 1.0}),
    ("fednova", {"mu": -0.1}),
    ("scaffold", {"server_lr": 0.0}),
    ("scaffold", {"weighting": "sizes"}),
    ("feddyn", {"alpha": -1e-3}),
    ("feddyn", {"score": "best"}),
    ("climb", {"primal_rounds": 0}),
    ("climb", {"dual_signal": "sum"}),
    ("climb", {"learner": "fedprox"}),
    ("climb", {"pd_eta": 0.0}),
]


@pytest.mark.parametrize(("name", "options"), WRONG)
def test_options_out_of_range_are_refused_by_name(name: str, options: dict[str, Any]) -> None:
    (fault,) = check_algorithm(name, options)
    assert f"federation.options.{next(iter(options))}" in fault


@pytest.mark.parametrize("kind", [FedNova, Scaffold, FedDyn, Climb])
def test_every_option_says_what_it_does(kind: type[Algorithm]) -> None:
    assert all(field.description for field in kind.OptionsModel.model_fields.values())
    assert kind.differences
