"""FedNova, SCAFFOLD, FedDyn and CLIMB over rounds: what server and clients keep, also of those that are absent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedrela_bench.algorithms import Server, build_algorithm
from fedrela_bench.algorithms.climb import Climb
from fedrela_bench.algorithms.feddyn import FedDyn
from fedrela_bench.algorithms.fednova import FedNova
from fedrela_bench.algorithms.scaffold import Scaffold
from fedrela_bench.models import Outputs
from fedrela_bench.simulation import Simulation
from tests.algorithms.server_rules import (
    PLAIN,
    Golden,
    Quadratic,
    close,
    example_of,
    local_models,
    losses_of,
    trial,
)
from tests.simulation import toy

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    (FedNova.name, {}),
    (FedNova.name, {"server_momentum": 0.5, "mu": 0.1}),
    (Scaffold.name, {}),
    (Scaffold.name, {"weighting": "samples", "server_lr": 0.7}),
    (FedDyn.name, {"alpha": 0.1}),
    (FedDyn.name, {"alpha": 0.1, "alpha_scaling": "samples", "clip_norm": 1.0, "score": "mean_sampled"}),
    (FedDyn.name, {"score": "mean_all"}),
    (Climb.name, {"primal_rounds": 2, "epsilon": 0.0}),
    (Climb.name, {"primal_rounds": 1, "dual_signal": "batch_sum", "clip_weights": True, "server_lr": 0.7}),
    (Climb.name, {"primal_rounds": 2, "learner": "fedpd"}),
]


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_running_statistics_take_the_mean_weighted_by_samples(name: str, options: dict[str, Any]) -> None:
    simulation = Simulation(trial(name, options, federation={"participation": 0.75}), toy.skewed(clients=4))
    found = local_models(simulation)
    simulation.run_round()
    sizes = simulation.state.server.client_sizes
    total = sum(sizes[client] for client in found)
    expected = sum(buffers * (sizes[client] / total) for client, (_, buffers) in found.items())
    close(simulation.state.server.buffers, expected, 1e-12)


def _with_empty_client() -> Any:
    data = toy.skewed(clients=4)
    return toy.dataset(data.labels, [*data.clients, []], 4)


def test_the_servers_variate_is_the_mean_of_the_clients() -> None:
    federation = {"clients": 5, "participation": 0.6, "rounds": 6}
    simulation = Simulation(trial("scaffold", federation=federation, training=PLAIN), _with_empty_client())
    for _ in simulation:
        variates = [state["variate"] for state in simulation.state.client_states.values()]
        close(simulation.state.server.state["variate"], sum(variates) / 4, 1e-12)
    assert len(simulation.state.client_states) == 4


def test_weighing_by_samples_weighs_the_servers_variate_too(golden: Golden) -> None:
    inputs = {**example_of(golden, "scaffold")["inputs"], "n": [1, 3]}
    federation = Quadratic(build_algorithm("scaffold", {"weighting": "samples"}, 2), inputs)
    federation.round([5, 5])
    first, second = (federation.states[client]["variate"] for client in (0, 1))
    close(federation.server.state["variate"], 0.25 * first + 0.75 * second, 1e-12)


def test_scaffolds_variate_is_the_mean_gradient_also_with_momentum() -> None:
    data = toy.dataset([0, 1, 2, 0, 1, 2, 0, 1], [range(8)], 3)
    tiny = {"lr": 1e-7, "momentum": 0.9, "weight_decay": 0.0, "batch_size": 8, "model": "identity_net"}
    simulation = Simulation(trial("scaffold", federation={"clients": 1}, training=tiny), data)
    net, images = simulation.model.net, simulation.data.pipeline.plain(simulation.data.images)
    loss = torch.nn.functional.cross_entropy(net(images).logits, simulation.data.original)
    gradient = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(net.parameters()))])
    simulation.run_round()
    close(simulation.state.client_states[0]["variate"], gradient, 1e-5)


def test_feddyns_server_sums_the_drift_of_all_clients() -> None:
    federation = {"clients": 5, "participation": 0.6, "rounds": 6}
    simulation = Simulation(trial("feddyn", {"alpha": 0.1}, federation=federation), _with_empty_client())
    for _ in range(6):
        found = local_models(simulation)
        simulation.run_round()
        drift = sum(state["drift"] for state in simulation.state.client_states.values())
        mean = torch.stack([params for params, _ in found.values()]).mean(dim=0)
        close(simulation.state.server.state["drift"], drift, 1e-12)
        close(simulation.state.server.params, mean + drift / 4, 1e-12)


def test_feddyns_scored_model_leaves_the_course_of_training_alone() -> None:
    data, federation = toy.skewed(clients=4), {"participation": 0.5, "rounds": 6}
    scores = ("server", "mean_sampled", "mean_all")
    runs = [Simulation(trial("feddyn", {"score": score}, federation=federation), data) for score in scores]
    latest: dict[int, Tensor] = {}
    for _ in range(6):
        found = [local_models(simulation) for simulation in runs]
        for simulation in runs:
            simulation.run_round()
        server, sampled, everyone = (simulation.state.server for simulation in runs)
        assert torch.equal(sampled.state["start"], server.params)
        assert torch.equal(everyone.state["start"], server.params)
        latest |= {client: params for client, (params, _) in found[0].items()}
        close(sampled.params, torch.stack([params for params, _ in found[0].values()]).mean(dim=0), 1e-12)
        close(everyone.params, torch.stack(list(latest.values())).mean(dim=0), 1e-12)
    assert len(latest) == 4


def test_feddyns_alpha_grows_for_small_clients() -> None:
    sizes = np.array([10, 30, 0, 80])
    server = Server(torch.zeros(2), torch.zeros(0), {}, sizes, 2, seed=0)
    algorithm = build_algorithm("feddyn", {"alpha": 0.1, "alpha_scaling": "samples"}, 2)
    for samples, expected in ((10, 0.4), (80, 0.05)):
        context: Any = SimpleNamespace(server=server, samples=samples, state={"drift": torch.zeros(2)}, scratch={})
        algorithm.prepare(torch.nn.Identity(), context)  # type: ignore[arg-type]
        gradient = torch.zeros(2)
        algorithm.adjust_gradient(gradient, torch.ones(2), context)
        close(gradient, [expected, expected], 1e-6)


def test_fednovas_proximal_variant_steps_by_step_counts_along_decayed_weights(golden: Golden) -> None:
    inputs, mu, steps = example_of(golden, "fednova")["inputs"], 0.5, (2, 5)
    federation = Quadratic(build_algorithm("fednova", {"mu": mu}, 2), inputs)
    start, lr, sizes = federation.server.params.clone(), inputs["lr"], federation.server.client_sizes
    result, direction = federation.round(steps), torch.zeros_like(start)
    shares = sizes / sizes.sum()
    for client, count in enumerate(steps):
        local = start.clone()
        for _ in range(count):
            local -= lr * (federation.a[client] * (local - federation.b[client]) + mu * (local - start))
        close(federation.locals[client], local, 1e-12)
        direction += shares[client] * (local - start) / sum((1 - lr * mu) ** step for step in range(count))
    close(result, start + float(shares @ steps) * direction, 1e-12)


def test_climb_probes_everyone_once_per_dual_round() -> None:
    federation = {"clients": 5, "participation": 0.4, "rounds": 6}
    options = {"primal_rounds": 3, "epsilon": 0.0, "dual_lr": 5.0}
    simulation = Simulation(trial("climb", options, federation=federation), _with_empty_client())
    seen = []
    for _ in simulation:
        server = simulation.state.server.state
        seen.append((server["weights"].tolist(), server["dual"].tolist()))
        assert float(server["weights"][:4].sum()) == pytest.approx(4)
        assert server["dual"][4] == 0
    assert seen[0] == seen[1] == seen[2] != seen[3] == seen[5]
    assert seen[0][0] == [1.0] * 5
    assert sum(value > 0 for value in seen[0][1]) in (1, 2, 3)


def test_climb_keeps_its_duals_at_zero_for_equal_losses_and_may_clip_weights() -> None:
    for clip, lowest in ((False, -0.5), (True, 0.0)):
        algorithm = build_algorithm("climb", {"clip_weights": clip}, 2)
        server = Server(torch.zeros(2), torch.zeros(0), {}, np.ones(2, dtype=int), 2, seed=0)
        server.state = algorithm.initial_server_state(server)
        algorithm.receive(server, losses_of([0.7, 0.7]))
        assert not server.state["dual"].any()
        server.state["dual"] = torch.tensor([0.0, 3.0])
        algorithm.receive(server, losses_of([0.7, 0.7]))
        assert server.state["weights"].tolist() == [lowest, 2.5]


def test_climbs_duals_stop_at_a_hundred() -> None:
    algorithm = build_algorithm("climb", {"dual_lr": 1e6, "epsilon": 0.0}, 2)
    server = Server(torch.zeros(2), torch.zeros(0), {}, np.ones(2, dtype=int), 2, seed=0)
    server.state = algorithm.initial_server_state(server)
    algorithm.receive(server, losses_of([0.0, 1.0]))
    assert server.state["dual"].tolist() == [0.0, 100.0]


def test_fedpd_carries_its_duals_and_the_server_steps_along_their_mean(golden: Golden) -> None:
    inputs, eta, server_lr = example_of(golden, "scaffold")["inputs"], 2.0, 0.5
    options = {"learner": "fedpd", "pd_eta": eta, "pd_clip": 0.0, "server_lr": server_lr}
    federation = Quadratic(build_algorithm("climb", options, 2), inputs)
    duals = torch.zeros_like(federation.a)
    for _ in range(2):
        start = federation.server.params.clone()
        result = federation.round([5, 5])
        for client in (0, 1):
            local = start.clone()
            for _ in range(5):
                slope = federation.a[client] * (local - federation.b[client])
                local -= inputs["lr"] * (slope + duals[client] + (local - start) / eta)
            close(federation.locals[client], local, 1e-12)
            duals[client] += (local - start) / eta
        close(result, start + server_lr * eta * duals.mean(dim=0), 1e-12)


@pytest.mark.parametrize(("learner", "factor"), [("fedavg", 1.0), ("fedpd", 2.5)])
def test_only_fedpd_weighs_the_clients_loss(learner: str, factor: float) -> None:
    algorithm = build_algorithm("climb", {"learner": learner}, 3)
    server = SimpleNamespace(state={"weights": torch.tensor([1.0, 2.5])})
    logits, labels = torch.tensor([[1.0, 0.0, -1.0], [0.5, 0.0, 2.0]]), torch.tensor([1, 2])
    context: Any = SimpleNamespace(client=1, server=server)
    loss = algorithm.criterion(Outputs(logits, logits), labels, context)
    close(loss, factor * torch.nn.functional.cross_entropy(logits, labels), 1e-6)


@pytest.mark.parametrize(
    ("name", "options"), [("feddyn", {"clip_norm": 1.0}), ("climb", {"learner": "fedpd", "pd_clip": 1.0})]
)
def test_local_gradients_are_clipped_where_asked(name: str, options: dict[str, Any]) -> None:
    algorithm = build_algorithm(name, options, 2)
    server = Server(torch.zeros(2), torch.zeros(0), {}, np.ones(2, dtype=int), 2, seed=0)
    state = {"drift": torch.zeros(2), "dual": torch.zeros(2)}
    context: Any = SimpleNamespace(server=server, samples=1, state=state, scratch={})
    algorithm.prepare(torch.nn.Identity(), context)  # type: ignore[arg-type]
    gradient = torch.tensor([3.0, 4.0])
    algorithm.adjust_gradient(gradient, server.params, context)
    close(gradient, [0.6, 0.8], 1e-6)


@pytest.mark.parametrize("server_lr", [0.25, 1.0])
def test_climb_weighs_changes_also_where_the_weights_of_a_round_do_not_add_up(server_lr: float, golden: Golden) -> None:
    inputs = example_of(golden, "scaffold")["inputs"]
    federation = Quadratic(build_algorithm("climb", {"server_lr": server_lr}, 2), {**inputs, "w0": [0.7, -0.4]})
    start = federation.server.params.clone()
    federation.server.state["weights"] = weights = torch.tensor([0.5, -3.0], dtype=torch.float64)
    result = federation.round([5, 5])
    changes = torch.stack(federation.locals) - start
    close(result, start + server_lr * (weights[:, None] * changes).mean(dim=0), 1e-12)


def test_only_climbs_released_signal_augments() -> None:
    signals: dict[tuple[str, str], Tensor] = {}
    for signal in ("mean", "batch_sum"):
        simulation = Simulation(trial("climb", {"dual_signal": signal}), toy.skewed(clients=4))
        simulation._trainer.load_client(0)
        net, context = simulation.model.net.eval(), simulation._trainer.context(0, 0, 1)
        for augment in ("none", "crop_flip"):
            simulation.data.pipeline.augment = augment
            signals[signal, augment] = simulation.algorithm.probe(net, context)["loss"]
    assert torch.equal(signals["mean", "none"], signals["mean", "crop_flip"])
    assert not torch.isclose(signals["batch_sum", "none"], signals["batch_sum", "crop_flip"])


def test_climbs_released_signal_sums_the_means_of_batches() -> None:
    data = toy.dataset(np.tile([0, 1, 2], 8), [range(12), range(12, 24)], 3)
    signals = []
    for signal in ("mean", "batch_sum"):
        options = {"dual_signal": signal, "primal_rounds": 1}
        config = trial("climb", options, federation={"clients": 2}, training={"batch_size": 4})
        simulation = Simulation(config, data)
        messages: dict[int, Any] = {}
        receive = simulation.algorithm.receive

        def record(server: Server, found: Any, known: Any = messages, then: Any = receive) -> None:
            known.update(found)
            then(server, found)

        simulation.algorithm.receive = record  # type: ignore[method-assign]
        simulation.run_round()
        signals.append(torch.stack([messages[client]["loss"] for client in (0, 1)]))
    close(signals[1], 3 * signals[0], 1e-12)


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_resumed_and_forked_runs_equal_the_full_one(name: str, options: dict[str, Any]) -> None:
    relabel, data = {"tau": 0.3, "start": 2}, toy.skewed(clients=4)
    federation = {"participation": 0.75}
    full, _ = toy.run(trial(name, options, federation=federation, relabel=relabel), data)
    trunk = Simulation(trial(name, options, federation=federation), data)
    trunk.run_round()
    trunk.run_round()
    fork = Simulation(trial(name, options, federation=federation, relabel=relabel), data)
    fork.restore(trunk.snapshot())
    list(fork)
    assert toy.same_model(fork, full)
    for ours, theirs in zip(_states(fork), _states(full), strict=True):
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def _states(simulation: Simulation) -> list[dict[str, Tensor]]:
    states = simulation.state.client_states
    return [simulation.state.server.state, *(states[client] for client in sorted(states))]


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_empty_one_sample_and_one_class_clients_train(name: str, options: dict[str, Any]) -> None:
    data = toy.dataset([0] * 9 + [1] * 5 + [2] * 3, [[], [16], range(9), range(9, 16)], 4)
    simulation, results = toy.run(trial(name, options, relabel={"tau": 0.3, "start": 2}), data)
    assert simulation.status == "completed"
    assert all(np.isfinite(result.metrics["train/loss"]) for result in results)
