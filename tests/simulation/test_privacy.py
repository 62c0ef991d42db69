"""Differential privacy: clip and noise are what they say, what they do not cover is refused, off changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedrela_bench.algorithms import ALGORITHMS, Batch, build_algorithm
from fedrela_bench.config import TrialConfig
from fedrela_bench.errors import ConfigError
from fedrela_bench.models import MODEL_NAMES, Backbone, Net, build_backbone, materialize, register_model
from fedrela_bench.models.conv import FEWEST_CHANNELS, Conv2d
from fedrela_bench.neutral import deciding
from fedrela_bench.rng import generator
from fedrela_bench.simulation import Simulation
from fedrela_bench.simulation.cost import costs
from fedrela_bench.simulation.flat import FlatModel
from fedrela_bench.simulation.local import LocalWork
from fedrela_bench.simulation.privacy import account, epsilons
from fedrela_bench.simulation.private_steps import PrivateSolver, SampleGradients, clip_factors
from fedrela_bench.simulation.snapshot import base_key
from fedrela_bench.simulation.state import SIMULATION_VERSION
from fedrela_bench.study.keys import Fingerprint, cell_key, trunk_key
from tests.simulation import toy

PLAIN = {"momentum": 0.0, "weight_decay": 0.0, "lr": 0.5, "local_epochs": 1, "model": "identity_net"}


def _trial(privacy: dict[str, Any] | None = None, **sections: Any) -> TrialConfig:
    training = {"model": "identity_net", **sections.pop("training", {})}
    return toy.config(training=training, privacy=privacy or {}, **sections)


# off -----------------------------------------------------------------------------------------------------------------


def test_runs_without_privacy_keep_the_keys_that_they_had_before_there_was_any() -> None:
    numerics = (("amp", "none"), ("device", "cpu"), ("dtype", "float32"), ("threads", 1), ("torch", "2.14.0"))
    fingerprint = Fingerprint("data", numerics, "2")
    assert trunk_key(TrialConfig(), fingerprint) == "0038f9e5f000536ce953ee81d7f75bd9"
    assert cell_key(TrialConfig(relabel={"tau": 0.05}), fingerprint) == "a41631e4818f0e90c67c15fe3605b625"
    assert base_key(TrialConfig(), "data") == "d42c7bd9dc51b7ee736c7a35689ee3e0"
    assert SIMULATION_VERSION == "2"
    assert "privacy" not in deciding(TrialConfig())


def test_every_setting_of_privacy_is_part_of_the_keys() -> None:
    fingerprint = Fingerprint("data", (), "2")
    kinds = [{}, {"clip": 1}, {"clip": 2}, {"clip": 1, "noise_multiplier": 1}, {"clip": 1, "level": "client"}]
    kinds += [{"clip": 1, "sampling": "shuffle"}, {"clip": 1, "delta": 1e-6}]
    trials = [TrialConfig(privacy=kind) for kind in kinds]
    assert len({trunk_key(trial, fingerprint) for trial in trials}) == len(kinds)
    assert len({base_key(trial, "data") for trial in trials}) == len(kinds)
    assert all(TrialConfig(**trial.model_dump(mode="json")) == trial for trial in trials)


def test_settings_without_clip_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"level, noise_multiplier without clip.*give privacy\.clip"):
        TrialConfig(privacy={"noise_multiplier": 1.0, "level": "client"})
    with pytest.raises(ConfigError, match=r"noise_multiplier = 1e-300 is no noise; give 0, or 1e-06 and more"):
        TrialConfig(privacy={"clip": 1.0, "noise_multiplier": 1e-300})


# level sample --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "model"), [("fedavg", "digits"), ("fedprox", "identity_net"), ("fedfocal", "identity_net")]
)
def test_without_bound_and_noise_it_is_the_plain_run(algorithm: str, model: str) -> None:
    federation = {"algorithm": algorithm, "rounds": 2}
    data = toy.skewed()
    trial = _trial(federation=federation, training={"model": model})
    plain, _ = toy.run(trial, data)
    private, _ = toy.run(trial.replace({"privacy.clip": 1e9, "privacy.sampling": "shuffle"}), data)
    assert torch.allclose(private.state.server.params, plain.state.server.params, rtol=1e-9, atol=1e-12)
    assert not torch.equal(plain.state.server.params, Simulation(trial, data).state.server.params)


def _solver(model: str = "digits", clip: float = 0.3) -> tuple[PrivateSolver, Any, Batch]:
    simulation = Simulation(_trial({"clip": clip}, training={"model": model}), toy.skewed())
    work = simulation._trainer
    work.load_global()
    context = work.context(0, 0, 1)
    rows = torch.arange(9)
    batch = Batch(context.pipeline.plain(context.images[rows]), context.labels[rows], rows)
    assert isinstance(work.solver, PrivateSolver)
    return work.solver, context, batch


def test_gradients_per_sample_are_those_of_one_sample_after_the_other() -> None:
    solver, context, batch = _solver()
    gradients, losses = solver.gradients(batch, context)
    net, algorithm = solver.model.net, solver.algorithm
    for index in range(len(batch)):
        part = slice(index, index + 1)
        loss = algorithm.loss(net, Batch(batch.inputs[part], batch.labels[part], batch.rows[part]), context)
        grads = torch.autograd.grad(loss, solver.model.parameters())
        expected = torch.zeros_like(solver.model.params)
        for view, grad in zip(solver.model.views(expected), grads, strict=True):
            view.copy_(grad)
        assert torch.allclose(gradients[index], expected, rtol=1e-9, atol=1e-12)
        assert float(losses[index]) == pytest.approx(float(loss.detach()))


@register_model("private_wide")
class Wide(Backbone):
    """A convolution whose weight gradient is this package's own, and group norm, as in the larger ResNets."""

    def __init__(self, input_shape: tuple[int, int, int], norm: str) -> None:
        super().__init__(feature_dim=3)
        self.layers = nn.Sequential(
            nn.Conv2d(input_shape[0], FEWEST_CHANNELS, 1),
            nn.GroupNorm(4, FEWEST_CHANNELS),
            Conv2d(FEWEST_CHANNELS, 3, 3, padding=1),
            nn.ReLU(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x).mean(dim=(2, 3))
        return out


LARGE = {"resnet18", "resnet34", "resnet50"}
SMALL = sorted({*MODEL_NAMES, "private_wide"} - LARGE)


@pytest.mark.parametrize("name", SMALL)
def test_every_network_without_batch_norm_has_gradients_per_sample(name: str) -> None:
    """Their mean is the gradient of the batch."""
    net = Net(backbone := build_backbone(name, (3, 32, 32), "group"), nn.Linear(backbone.feature_dim, 4))
    materialize(net, generator(1, "init"), "cpu", torch.float64)
    algorithm = build_algorithm("fedavg", {}, 4)
    model = FlatModel(net, algorithm.scope)
    assert not model.has_batch_norm
    rng, rows = np.random.default_rng(0), torch.arange(2)
    batch = Batch(torch.from_numpy(rng.random((2, 3, 32, 32))), torch.tensor([1, 3]), rows)
    gradients, _ = SampleGradients(model, algorithm)(batch, None)  # type: ignore[arg-type]
    whole = model.flat_gradient()
    algorithm.loss(net, batch, None).backward()  # type: ignore[arg-type, no-untyped-call]
    assert torch.allclose(gradients.mean(dim=0), whole, rtol=1e-7, atol=1e-10)
    assert float(whole.norm()) > 0


def test_no_sample_adds_more_than_the_clip() -> None:
    solver, context, batch = _solver(clip=0.3)
    gradients, _ = solver.gradients(batch, context)
    clipped = clip_factors(gradients, 0.3)[:, None] * gradients
    assert float(gradients.norm(dim=1).max()) > 0.3
    assert float(clipped.norm(dim=1).max()) <= 0.3 * (1 + 1e-12)
    total, _ = solver.gradients.clipped_sum(batch, context, 0.3)
    assert torch.allclose(total, clipped.sum(dim=0))
    small = 1e-3 * gradients
    assert torch.equal(clip_factors(small, 0.3), torch.ones(len(batch), dtype=small.dtype))


def test_noise_has_the_stated_scale_and_the_stated_stream() -> None:
    data = toy.dataset(np.repeat(np.arange(4), 5), [np.arange(20)], 4)
    trial = _trial({"clip": 0.5}, federation={"clients": 1, "rounds": 1}, training={**PLAIN, "batch_size": 20})
    quiet, _ = toy.run(trial, data)
    loud, _ = toy.run(trial.replace({"privacy.noise_multiplier": 3.0}), data)
    moved = loud.state.server.params - quiet.state.server.params
    scale = 0.5 * 3.0 * 0.5 / 20  # lr x noise multiplier x clip / samples
    drawn = generator(3, "privacy", 0, 0).standard_normal(len(moved))
    assert np.allclose(moved.numpy(), -scale * drawn, rtol=1e-9, atol=1e-12)
    assert float(moved.std()) == pytest.approx(scale, rel=0.15)
    assert len(moved) > 200


def test_poisson_steps_may_be_empty_and_are_drawn_at_the_stated_rate() -> None:
    data = toy.dataset([0, 1, 2, 3] * 2, [[0], [1, 2, 3, 4, 5, 6, 7]], 4)
    trial = _trial({"clip": 1.0, "noise_multiplier": 0.1}, federation={"clients": 2}, training={"batch_size": 2})
    simulation, results = toy.run(trial, data)
    assert simulation.status == "completed"
    assert torch.isfinite(simulation.state.server.params).all()
    assert all(np.isfinite(result.metrics["train/loss"]) for result in results)
    solver, work = simulation._trainer.solver, simulation._trainer
    sizes = [len(batch) for index in range(60) for batch in solver._batches(work.context(1, index, 8))]
    assert len(sizes) == 60 * 2 * 4
    assert min(sizes) == 0
    assert np.mean(sizes) == pytest.approx(2.0, abs=0.25)
    with_nobody = toy.run(
        _trial({"clip": 1.0}, federation={"clients": 1, "rounds": 1}, training={"batch_size": 1}, seed=0),
        toy.dataset([0, 1], [[0, 1]], 2),
    )[1]
    assert with_nobody[0].status == "ok"


# level client --------------------------------------------------------------------------------------------------------


def test_updates_are_clipped_weighted_equally_and_noised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    norms: list[float] = []
    collect = LocalWork._collect

    def spy(self: LocalWork, context: Any, steps: int, sums: Any) -> None:
        collect(self, context, steps, sums)
        norms.append(float((self.model.params - self.state.server.params).norm()))

    monkeypatch.setattr(LocalWork, "_collect", spy)
    data = toy.skewed()
    trial = _trial({"clip": 0.05, "level": "client"}, federation={"rounds": 1})
    quiet, _ = toy.run(trial, data)
    loud, _ = toy.run(trial.replace({"privacy.noise_multiplier": 2.0}), data)
    assert max(norms) <= 0.05 * (1 + 1e-9) and max(norms) > 0.04
    moved = loud.state.server.params - quiet.state.server.params
    expected = 2.0 * 0.05 / 3 * generator(3, "privacy", 0).standard_normal(len(moved))
    assert np.allclose(moved.numpy(), expected, rtol=1e-9, atol=1e-12)
    start = Simulation(trial, data).state.server.params
    assert float((quiet.state.server.params - start).norm()) <= 0.05 * (1 + 1e-9)


def test_a_loose_bound_leaves_the_unweighted_mean() -> None:
    data = toy.dataset([0, 1, 2, 3] * 4, [[0, 1], list(range(2, 16))], 4)
    mean = []
    for client in (0, 1):
        alone = _trial(federation={"rounds": 1, "clients": 2}, training=PLAIN)
        simulation = Simulation(alone, data)
        simulation._trainer.run(0, [client])
        mean.append(simulation.state.server.params)
    private = toy.run(
        _trial({"clip": 1e9, "level": "client"}, federation={"rounds": 1, "clients": 2}, training=PLAIN), data
    )[0]
    assert torch.allclose(private.state.server.params, (mean[0] + mean[1]) / 2, rtol=1e-9, atol=1e-12)


# both ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["sample", "client"])
def test_workers_resume_and_fork_change_no_bit(level: str) -> None:
    data = toy.skewed(clients=4)
    privacy = {"clip": 0.5, "noise_multiplier": 0.7, "level": level}
    federation = {"clients": 4, "participation": 0.75}
    trial = _trial(privacy, federation=federation, relabel={"tau": 0.3, "start": 2})
    whole, results = toy.run(trial, data)
    base = Simulation(trial.base(), data)
    base.run_round(), base.run_round()
    forked = Simulation(trial, data)
    forked.restore(base.snapshot())
    assert toy.figures(list(forked)) == toy.figures(results)[2:]
    assert toy.same_model(forked, whole)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with Simulation(trial, data, workers=2) as crew:
            assert toy.figures(list(crew)) == toy.figures(results)
            assert toy.same_model(crew, whole)
    finally:
        torch.set_num_threads(threads)
    plain, _ = toy.run(_trial(federation=federation, relabel={"tau": 0.3, "start": 2}), data)
    assert not toy.same_model(plain, whole)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"training.model": "toy_net"}, ["batch norm", "training.norm = group"]),
        ({"federation.algorithm": "scaffold"}, ["scaffold sends or combines more", "fedavg or fedprox"]),
        ({"federation.algorithm": "fedyoyo"}, ["fedyoyo sends", "fedyoyo changes local training"]),
        ({"federation.algorithm": "fedlc"}, ["fedlc changes local training", "privacy.level = client"]),
        ({"training.amp": "bf16", "training.dtype": "float32"}, ["training.amp = bf16", "none"]),
        ({"relabel.author_resume": True}, ["author_resume", "false"]),
    ],
)
def test_what_the_mechanism_does_not_cover_is_refused(changes: dict[str, Any], words: list[str]) -> None:
    trial = _trial({"clip": 1.0}).replace(changes)
    with pytest.raises(ConfigError) as caught:
        Simulation(trial, toy.skewed())
    assert [word for word in words if word not in str(caught.value)] == []


def test_algorithms_that_send_only_the_model_run_at_client_level() -> None:
    covered = []
    for name in ("fedavg", "fedprox", "fedfocal", "fedlc", "moon", "mixup"):
        trial = _trial(
            {"clip": 0.5, "noise_multiplier": 0.1, "level": "client"}, federation={"algorithm": name, "rounds": 1}
        )
        covered.append(toy.run(trial, toy.skewed())[1][0].status)
        assert name in ALGORITHMS
    assert covered == ["ok"] * 6


# account -------------------------------------------------------------------------------------------------------------


def _sizes() -> np.ndarray:
    return np.array([len(rows) for rows in toy.skewed().clients])


def test_epsilon_is_composed_over_the_rounds_of_each_client() -> None:
    sizes = np.array([100, 100, 10, 0])
    trial = _trial({"clip": 1, "noise_multiplier": 2}, federation={"clients": 4, "rounds": 8, "participation": 0.5})
    all_rounds = epsilons(trial, sizes, 8)
    assert all_rounds[3] == 0
    assert all_rounds[2] > 0 and (epsilons(trial, sizes, 4) <= all_rounds).all()
    every = epsilons(trial.replace({"federation.participation": 1.0}), sizes, 8)
    assert (every[:3] > all_rounds[:3]).all()
    assert every[0] == every[1] < every[2]
    shuffled = epsilons(trial.replace({"federation.participation": 1.0, "privacy.sampling": "shuffle"}), sizes, 8)
    assert shuffled[0] == shuffled[2] > every[0]
    client = epsilons(trial.replace({"federation.participation": 1.0, "privacy.level": "client"}), sizes, 8)
    assert client[0] < shuffled[0]


def test_relabelling_ends_the_guarantee_at_sample_level_only() -> None:
    sample = _trial({"clip": 1, "noise_multiplier": 2}, relabel={"tau": 0.1, "start": 2})
    made = account(sample, _sizes(), 4)
    assert made["epsilon"] is None
    assert 0 < made["epsilon_before_relabelling"] < made["epsilon_labels_given"]
    assert made["epsilon_labels_given"] == account(sample.base(), _sizes(), 4)["epsilon"]
    assert account(sample, _sizes(), 2)["epsilon"] == made["epsilon_before_relabelling"]
    client = sample.replace({"privacy.level": "client"})
    assert account(client, _sizes(), 4)["epsilon"] == account(client.base(), _sizes(), 4)["epsilon"] > 0
    assert account(sample.base().replace({"privacy.noise_multiplier": 0.0}), _sizes(), 4)["epsilon"] is None


def test_costs_count_what_was_sent() -> None:
    data = toy.skewed(clients=5)
    relabel = {"tau": 0.3, "start": 2, "late_clients": "all_at_T"}
    trial = _trial(federation={"clients": 5, "participation": 0.4}, relabel=relabel)
    simulation, results = toy.run(trial, data)
    made, base = (costs(some, data, 4)["communication"] for some in (trial, trial.base()))
    each, trained = simulation.communication, sum(len(result.participants) for result in results)
    assert made == {
        **each,
        "participations": trained,
        "total_down": each["down"] * (trained + 3),
        "total_up": each["up"] * trained,
        "relabel_down": 3 * each["down"],
    }
    assert base["total_down"] == each["down"] * trained
    on_time = costs(trial.replace({"relabel.late_clients": "first_participation"}), data, 4)["communication"]
    assert on_time["relabel_down"] == 0
    assert "privacy" not in costs(trial, data, 4)
    assert costs(trial.replace({"privacy.clip": 1}), data, 4)["privacy"]["epsilon"] is None
