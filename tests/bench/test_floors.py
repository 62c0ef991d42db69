"""What the floors count and time, and that the bare loop does a round's steps."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from fedrela_bench.bench.bare import PARTS, BareLoop
from fedrela_bench.bench.case import prepare
from fedrela_bench.bench.floors import Layer, LayerFloor, Piece, layers_of, product_rate, total_flops
from fedrela_bench.bench.workloads import WORKLOADS
from fedrela_bench.simulation import Simulation

CPU = torch.device("cpu")


def layers(name: str) -> Counter[Layer]:
    case = prepare(WORKLOADS[name], short=True, device="cpu")
    net = Simulation(case.config, case.dataset).model.net
    return layers_of(net, case.dataset.input_shape, CPU, torch.float32)


def test_operations_of_fm_are_those_worked_out_by_hand() -> None:
    found = layers("fm")
    # Two per multiplication: 5x5 on 24x24 from 1 to 32 channels, 5x5 on 8x8 from 32 to 64, 1024 x 512, 512 x 10.
    first, others = 2 * 25 * 576 * 32, [2 * 25 * 64 * 32 * 64, 2 * 1024 * 512, 2 * 512 * 10]
    assert total_flops(found, 0, 1) == first + sum(others)
    assert total_flops(found, 1, 0) == 2 * first + 3 * sum(others)
    assert total_flops(found, 12_000, 10_000) == pytest.approx(381e9, rel=0.005)


def test_operations_of_resnet18_count_every_layer() -> None:
    found = layers("resnet18")
    assert sum(found.values()) == 21
    assert sum(1 for layer in found if layer.first) == 1
    # 20 steps on batches of 8: 534 GFLOP.
    assert total_flops(found, 160, 0) == pytest.approx(534e9, rel=0.01)


def test_looking_at_layers_changes_nothing() -> None:
    case = prepare(WORKLOADS["resnet18"], short=True, device="cpu")
    model = Simulation(case.config, case.dataset).model
    before = model.params.clone(), model.buffers.clone(), model.net.training
    layers_of(model.net, case.dataset.input_shape, CPU, torch.float32)
    assert torch.equal(before[0], model.params) and torch.equal(before[1], model.buffers)
    assert model.net.training == before[2]
    assert not any(module._forward_pre_hooks for module in model.net.modules())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_floors_are_seconds_and_training_costs_more_than_evaluation(dtype: torch.dtype) -> None:
    found = layers("digits")
    train, test = (LayerFloor(found, 32, training, CPU, dtype).seconds_per_image() for training in (True, False))
    assert 0 < test < train < 1
    assert product_rate(CPU, torch.float32) > 1e8


def test_short_pieces_are_repeated_until_the_clock_can_tell() -> None:
    calls: list[int] = []
    piece = Piece(lambda: calls.append(sum(range(200))), CPU)
    assert 0 < piece.seconds() < 1e-3
    assert piece.times > 10
    assert len(calls) >= 4 * piece.times - 1


def test_the_bare_loop_takes_a_rounds_steps_and_leaves_no_global_model() -> None:
    case = prepare(WORKLOADS["fm"], short=True, device="cpu")
    bare = BareLoop(case.config, case.dataset, "cpu", evaluated=True)
    simulation = Simulation(case.config, case.dataset)
    steps = sum(len(sizes) for sizes in bare.sizes)
    assert sum(sum(sizes) for sizes in bare.sizes) == case.samples
    sizes = [len(rows) for rows in case.dataset.clients]
    assert steps == 2 * sum(-(-size // 10) for size in sizes)
    start, server = bare.model.params.clone(), bare.server.params.clone()
    bare.run_round()
    assert not torch.equal(start, bare.model.params)
    assert torch.equal(server, bare.server.params)
    assert torch.equal(server, simulation.state.server.params)
    assert list(bare.seconds) == list(PARTS) and min(bare.seconds.values()) > 0


def test_the_bare_loops_batches_are_the_simulators() -> None:
    """The first client's epoch without shuffling is the same steps in both."""
    workload = WORKLOADS["digits"]
    case = prepare(workload, short=False, device="cpu")
    config = case.config.replace({"training.shuffle": False, "federation.participation": 0.2})
    bare = BareLoop(config, case.dataset, "cpu", evaluated=False)
    simulation = Simulation(config, case.dataset)
    bare.run_round()
    simulation.run_round()
    assert torch.equal(bare.model.params, simulation.state.server.params)
    assert bare.seconds["evaluation"] == 0
