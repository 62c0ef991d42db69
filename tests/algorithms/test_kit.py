"""The kit: what holds for every base algorithm of the package, whatever its paper changes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedrela_bench.algorithms
from fedrela_bench.algorithms import ALGORITHMS, build_algorithm
from fedrela_bench.simulation import Simulation
from tests import kit_references as references
from tests import kit_tools as tools
from tests.kits import ROWS, Equal, Row, names, rows_of
from tests.simulation import toy

RELABEL = {"tau": 0.3, "start": 2}
PERIODIC = {"tau": 0.3, "start": 1, "period": 2, "refresh_from": "current"}


@pytest.fixture(params=ROWS, ids=lambda row: row.title)
def row(request: pytest.FixtureRequest) -> Row:
    """Every algorithm in turn."""
    found: Row = request.param
    return found


@pytest.mark.parametrize("name", names())
def test_every_algorithm_has_a_row(name: str) -> None:
    variants = [row.variant for row in rows_of(name)]
    assert variants[0] == "" and len(set(variants)) == len(variants)


@pytest.mark.parametrize("name", names())
def test_every_algorithm_comes_with_the_package(name: str) -> None:
    """Not only because this kit imports every file of the folder."""
    assert ALGORITHMS[name].__module__.rpartition(".")[2] in fedrela_bench.algorithms.__all__


def test_every_row_is_of_an_algorithm() -> None:
    assert {row.name for row in ROWS} <= set(names())


# resuming ------------------------------------------------------------------------------------------------------------


def test_stopping_after_every_round_changes_no_bit(row: Row, tmp_path: Path) -> None:
    trial, data = tools.trial(row, PERIODIC), tools.skewed()
    full = tools.whole_run(trial)
    numpy_state, torch_state = np.random.get_state(legacy=True), torch.get_rng_state()
    part, results = Simulation(trial, data), []
    while part.completed_rounds < trial.federation.rounds:
        results.append(part.run_round())
        part = tools.through_file(part, trial, data, tmp_path / f"{part.completed_rounds}.pt")
        assert tools.same(tools.parts(part.snapshot()), full.states[part.completed_rounds])
    assert toy.figures(results) == toy.figures(full.results)
    assert results[-1].metrics["relabel/changed"] > 0
    assert tools.same(np.random.get_state(legacy=True), numpy_state)
    assert torch.equal(torch.get_rng_state(), torch_state)


@pytest.mark.parametrize("relabel", [RELABEL, PERIODIC], ids=["once", "periodic"])
def test_a_fork_of_the_base_run_equals_the_full_run(row: Row, relabel: dict[str, Any], tmp_path: Path) -> None:
    start, data, relabelled = relabel["start"], tools.skewed(), tools.trial(row, relabel)
    full, trunk = tools.whole_run(relabelled), Simulation(tools.trial(row), data)
    for _ in range(start):
        trunk.run_round()
    fork = tools.through_file(trunk, relabelled, data, tmp_path / "trunk.pt")
    assert toy.figures(list(fork)) == toy.figures(full.results)[start:]
    assert tools.same(tools.parts(fork.snapshot()), full.states[-1])


# relabelling ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relabel", [{"tau": 0.0, "start": 2}, {"tau": 0.3, "start": 1.0}], ids=["no tau", "T = R"])
def test_without_budget_or_time_fedrela_is_the_base(row: Row, relabel: dict[str, Any]) -> None:
    base = tools.whole_run(tools.trial(row))
    simulation, results = toy.run(tools.trial(row, relabel), tools.skewed())
    assert tools.same(tools.parts(simulation.snapshot()), base.states[-1])
    assert toy.figures(results) == toy.figures(base.results)


def test_relabelling_changes_nothing_before_t_and_moves_only_to_locally_rarer_classes(row: Row) -> None:
    data = tools.skewed()
    base, relabelled = (tools.whole_run(tools.trial(row, relabel)).states for relabel in (None, RELABEL))
    assert tools.same(relabelled[:3], base[:3])
    assert not tools.same(relabelled[3]["params"], base[3]["params"])
    new = relabelled[-1]["labels"].numpy()
    for client, rows in enumerate(data.clients):
        counts = data.client_counts[client]
        moved = rows[new[rows] != data.labels[rows]]
        assert (counts[new[moved]] < counts[data.labels[moved]]).all()
    assert (new != data.labels).any()


def test_every_posterior_head_relabels(row: Row) -> None:
    data = tools.skewed()
    for head in ALGORITHMS[row.name].posterior_heads:
        for preset in ("paper", "author"):
            relabel = {**RELABEL, "preset": preset, "posterior_head": head}
            simulation, results = toy.run(tools.trial(row, relabel, federation={"rounds": 3}), data)
            assert simulation.status == "completed"
            assert results[-1].metrics["relabel/changed"] > 0
            log = results[-1].relabelled
            assert log is not None and ((log["posterior"] > 0) & (log["posterior"] < 1)).all()


def test_losses_read_the_counts_of_the_labels_in_force(row: Row) -> None:
    simulation = Simulation(tools.trial(row, RELABEL, federation={"participation": 1.0}), tools.skewed())
    for _ in range(3):
        simulation.run_round()
    index, participants, total = tools.begin(simulation)
    before = tools.train(simulation, participants[0], index, total).loss
    context = simulation._trainer.context

    def counted_anew(*arguments: Any) -> Any:
        made = context(*arguments)
        made.label_counts = made.label_counts.flip(0) + 1
        return made

    simulation._trainer.context = counted_anew  # type: ignore[method-assign,assignment]
    after = tools.train(simulation, participants[0], index, total).loss
    assert (before != after) == row.label_stats


# odd clients ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("short_batch", ["join", "keep"])
def test_empty_one_sample_and_one_class_clients_and_absent_classes(row: Row, short_batch: str) -> None:
    trial = tools.trial(row, RELABEL, federation={"participation": 1.0}, training={"short_batch": short_batch})
    simulation, results = toy.run(trial, tools.odd_clients())
    assert simulation.status == "completed"
    assert results[0].participants == (1, 2, 3)
    assert all(np.isfinite(result.metrics["train/loss"]) for result in results)
    assert 0 not in simulation.state.client_states


def test_partial_participation_leaves_the_absent_alone(row: Row) -> None:
    data = tools.skewed()
    simulation = Simulation(tools.trial(row, federation={"participation": 0.5}), data)
    while simulation.completed_rounds < 4:
        before = tools.parts(simulation.snapshot())
        result = simulation.run_round()
        after = tools.parts(simulation.snapshot())
        assert len(result.participants) == 2
        for kept in ("client_states", "private"):
            for client in set(before[kept]) - set(result.participants):
                assert tools.same(before[kept][client], after[kept][client])
        assert torch.isfinite(after["params"]).all()


def test_a_single_participant_is_not_scaled_down(row: Row) -> None:
    data = tools.skewed()
    simulation = Simulation(tools.trial(row, federation={"participation": 0.25}), data)
    if row.server == "own":
        list(simulation)
        assert simulation.status == "completed"
        return
    for _ in range(3):
        twin = tools.twin_of(simulation)
        index, (client,), total = tools.begin(twin)
        expected = tools.train(twin, client, index, total).params
        simulation.run_round()
        for piece in simulation.model.param_pieces:
            if piece.scope == "shared":
                got = simulation.state.server.params[piece.span]
                assert tools.same(got, expected[piece.span], 0.0 if row.server == "mean" else 1e-12)


def test_one_client_and_one_epoch_are_centralised_sgd(row: Row) -> None:
    federation = {"clients": 1, "rounds": 1, "participation": 1.0}
    training = {"local_epochs": 1, "batch_size": 4}
    trial = tools.trial(row, federation=federation, training=training)
    start, expected = references.centralised(Simulation(trial, tools.single_client()))
    simulation = Simulation(trial, tools.single_client())
    simulation.run_round()
    expected = expected + row.overshoot * (expected - start)
    for piece in simulation.model.param_pieces:
        if piece.scope == "shared":
            exact = row.server == "mean" and not row.overshoot
            got = simulation.state.server.params[piece.span]
            assert tools.same(got, expected[piece.span], 0.0 if exact else 1e-12), piece.name


def test_the_order_of_clients_matters_only_to_rounding(row: Row) -> None:
    trial = tools.trial(row, RELABEL, federation={"rounds": 3})
    forwards, backwards = (Simulation(trial, tools.skewed()) for _ in range(2))
    draw = backwards._trainer.participants
    backwards._trainer.participants = lambda index: draw(index)[::-1]  # type: ignore[method-assign]
    for simulation in (forwards, backwards):
        list(simulation)
    assert tools.same(tools.parts(forwards.snapshot()), tools.parts(backwards.snapshot()), tolerance=1e-9)


# equalities ----------------------------------------------------------------------------------------------------------

CASES = [(row, case) for row in ROWS for case in row.equals]


@pytest.mark.parametrize(("row", "case"), CASES, ids=[f"{row.title}-{case.other}" for row, case in CASES])
def test_degenerate_options_give_the_other_algorithm(row: Row, case: Equal) -> None:
    data = tools.equal_clients() if case.equal_clients else tools.skewed()
    ends = []
    for name, options in ((row.name, {**row.options, **case.options}), (case.other, case.other_options)):
        federation = {"algorithm": name, "options": options, "rounds": case.rounds}
        simulation, _ = toy.run(tools.trial(row, federation=federation, training=case.training), data)
        ends.append(tools.named(simulation))
    ours, theirs = ends
    pairs = {name: name for name in ours}
    if case.names:
        starts = [(name, mine) for name in ours for mine in case.names if name.startswith(mine)]
        pairs = {name: case.names[mine] + name.removeprefix(mine) for name, mine in starts}
    assert set(pairs.values()) == set(theirs)
    for mine, other in pairs.items():
        assert tools.same(ours[mine], theirs[other], case.tolerance), mine


# numbers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_extreme_logits_give_finite_losses_and_gradients(row: Row, scale: float) -> None:
    data = tools.skewed()
    flashing = (np.random.default_rng(0).random(data.train_images.shape) > 0.5).astype(np.uint8) * 255
    data = dataclasses.replace(data, train_images=flashing)
    simulation = Simulation(tools.trial(row, training={"dtype": "float32"}), data)
    simulation.run_round()
    for name, value in tools.named(simulation).items():
        if name.startswith("head.") and value.is_floating_point():
            value.mul_(scale)
    slopes = list(references.first_slopes(simulation))
    assert len(slopes) > 3
    assert all(torch.isfinite(loss) and torch.isfinite(gradient).all() for loss, gradient in slopes)


def test_single_precision_and_bfloat16_train(row: Row) -> None:
    data = tools.skewed()
    for amp in ("none", "bf16"):
        trial = tools.trial(row, federation={"rounds": 2}, training={"dtype": "float32", "amp": amp})
        simulation, results = toy.run(trial, data)
        assert simulation.status == "completed"
        assert results[-1].metrics["train/loss"] < 1e3
        assert simulation.state.server.params.dtype == torch.float32


def test_defaults_are_valid_and_unknown_options_refused(row: Row) -> None:
    kind = ALGORITHMS[row.name]
    build_algorithm(row.name, {}, 10)
    build_algorithm(row.name, {name: field.default for name, field in kind.OptionsModel.model_fields.items()}, 10)
    assert kind.citation and kind.purpose and "scored" in kind.posterior_heads
    assert kind.name == row.name and kind.__doc__
