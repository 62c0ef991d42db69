"""The naive loop does the same work as the simulator: equal in float64, as accurate in float32."""

from __future__ import annotations

import pytest
import torch

from fedrela_bench.bench.case import Case, prepare
from fedrela_bench.bench.naive import NaiveLoop
from fedrela_bench.bench.workloads import WORKLOADS, Cut, Images, Workload
from fedrela_bench.config import parse
from fedrela_bench.data import load_dataset
from fedrela_bench.errors import ConfigError
from fedrela_bench.nested import Json
from fedrela_bench.simulation import Simulation


def case_of(values: Json, images: Images, cut: Cut) -> Case:
    """A small case of synthetic images."""
    workload = Workload("small", "round", "for tests", values, images, {"seed": 3}, cut)
    return prepare(workload, short=True, device="cpu")


def gap(naive: NaiveLoop, simulation: Simulation) -> float:
    """Largest difference of any parameter."""
    server = simulation.state.server
    ours = simulation.model.named(server.params, server.buffers)
    named = [ours[name] for name, _ in simulation.model.net.named_parameters()]
    pairs = zip(naive.model.parameters(), named, strict=True)
    return max(float((theirs.detach() - value).abs().max()) for theirs, value in pairs)


def test_float64_rounds_equal_the_simulators_on_digits() -> None:
    config = WORKLOADS["digits"].config(short=False).replace({"training.dtype": "float64", "training.local_epochs": 2})
    dataset = load_dataset(config)
    simulation, naive = Simulation(config, dataset), NaiveLoop(config, dataset)
    assert gap(naive, simulation) == 0
    for _ in range(3):
        result, accuracy = simulation.run_round(), naive.run_round()
        assert gap(naive, simulation) < 1e-9
        assert accuracy == pytest.approx(result.metrics["test/overall"], abs=1e-12)


@pytest.mark.parametrize("model", ["fmcnn", "cnn"])
def test_float64_rounds_equal_with_pooling_networks_and_normalised_colours(model: str) -> None:
    values: Json = {
        "data": {"source": "cifar10", "profile": "lt", "imbalance_factor": 4, "augment": "none"},
        "federation": {"clients": 3},
        "training": {"model": model, "dtype": "float64", "batch_size": 10, "weight_decay": 1e-3, "lr": 0.05},
    }
    case = case_of(values, Images((28, 28, 3), 10, 12, 20), Cut(70, 20))
    simulation, naive = Simulation(case.config, case.dataset), NaiveLoop(case.config, case.dataset)
    for _ in range(2):
        simulation.run_round()
        naive.run_round(evaluated=False)
    assert gap(naive, simulation) < 1e-9


def test_float64_rounds_equal_with_batch_norm_and_its_statistics() -> None:
    values: Json = {
        "data": {"source": "cifar10", "profile": "balanced", "partition": "iid", "augment": "none"},
        "federation": {"clients": 2},
        "training": {"model": "resnet8", "dtype": "float64", "batch_size": 8, "lr": 0.05},
    }
    case = case_of(values, Images((8, 8, 3), 10, 4, 20), Cut(34, 20))
    simulation, naive = Simulation(case.config, case.dataset), NaiveLoop(case.config, case.dataset)
    for _ in range(2):
        result, accuracy = simulation.run_round(), naive.run_round()
    assert gap(naive, simulation) < 1e-9
    statistics = dict(naive.model.named_buffers())["net.backbone.bn1.running_var"]
    server = simulation.state.server
    ours = simulation.model.named(server.params, server.buffers)["backbone.bn1.running_var"]
    assert torch.allclose(statistics, ours, atol=1e-9)
    assert accuracy == pytest.approx(result.metrics["test/overall"], abs=1e-12)


def test_it_learns_as_much_in_float32() -> None:
    config = WORKLOADS["digits"].config(short=False).replace({"data.imbalance_factor": 2, "training.local_epochs": 2})
    dataset = load_dataset(config)
    simulation, naive = Simulation(config, dataset), NaiveLoop(config, dataset)
    for _ in range(5):
        ours, theirs = simulation.run_round().metrics["test/overall"], naive.run_round()
    assert theirs is not None
    assert theirs > 0.6
    assert abs(ours - theirs) < 0.05


def test_augmentation_moves_pictures_and_reads_no_global_generator() -> None:
    values: Json = {
        "data": {"source": "cifar10", "profile": "balanced", "partition": "iid"},
        "federation": {"clients": 2},
        "training": {"model": "lenet", "batch_size": 10},
    }
    case = case_of(values, Images((32, 32, 3), 10, 4, 20), Cut(40, 20))
    pictures = NaiveLoop(case.config, case.dataset).clients[0]
    with torch.random.fork_rng():
        torch.manual_seed(1)
        seen = torch.stack([pictures[0][0] for _ in range(4)])
    assert not torch.equal(seen[0], seen[1]) or not torch.equal(seen[0], seen[2])

    torch.manual_seed(5)
    before, runs = torch.random.get_rng_state(), []
    for _ in range(2):
        naive = NaiveLoop(case.config, case.dataset)
        naive.run_round(evaluated=False)
        runs.append(torch.cat([value.flatten() for value in naive.model.parameters()]))
        torch.rand(3)
    assert torch.equal(runs[0], runs[1])
    torch.manual_seed(5)
    assert torch.equal(before, torch.random.get_rng_state())


def test_it_steps_torchs_own_layers_in_torchs_own_layout() -> None:
    case = prepare(WORKLOADS["resnet18"], short=True, device="cpu")
    naive = NaiveLoop(case.config, case.dataset)
    convolutions = [module for module in naive.model.modules() if isinstance(module, torch.nn.Conv2d)]
    assert {type(module) for module in convolutions} == {torch.nn.Conv2d}
    assert all(module.weight.is_contiguous() for module in convolutions)
    sizes = [parameter.numel() for parameter in naive.model.parameters()]
    assert sum(sizes) == sum(
        parameter.numel() for parameter in Simulation(case.config, case.dataset).model.parameters()
    )


def test_only_fedavg_is_run() -> None:
    config = parse({"federation": {"algorithm": "fedprox", "clients": 2, "rounds": 1}})
    with pytest.raises(ConfigError, match="runs fedavg, not fedprox"):
        NaiveLoop(config, load_dataset(config))


def test_plain_models_are_sequences_of_torch_layers() -> None:
    case = prepare(WORKLOADS["fm"], short=True, device="cpu")
    model = NaiveLoop(case.config, case.dataset).model
    assert isinstance(model, torch.nn.Sequential)
    names = [type(layer).__name__ for layer in model]
    assert names == ["Conv2d", "ReLU", "MaxPool2d"] * 2 + ["Flatten", "Linear", "ReLU", "Linear"]
