"""What users rely on: same seed same bits, forks equal full runs, degenerate cases equal the base."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrela_bench.errors import ConfigError, RunError, StoreError
from fedrela_bench.simulation import Simulation, load_snapshot, save_snapshot
from tests.simulation import toy

PAPER = {"tau": 0.3, "start": 2}
AUTHOR = {"preset": "author", "tau": 0.3, "start": 2}
PERIODIC = {"tau": 0.3, "start": 1, "period": 2, "refresh_from": "current"}
ALGORITHMS = ["fedavg", "fedprox", "fedetf", "fedetf_dotreg"]


def _data() -> Any:
    return toy.skewed(clients=4)


def _trial(algorithm: str = "fedavg", relabel: dict[str, Any] | None = None, **more: Any) -> Any:
    federation = {"algorithm": algorithm, "clients": 4, "rounds": 5, "participation": 0.75}
    return toy.config(federation=federation | more.pop("federation", {}), relabel=relabel or {}, **more)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("relabel", [PAPER, AUTHOR, PERIODIC])
def test_a_fork_of_the_trunk_equals_the_full_run(algorithm: str, relabel: dict[str, Any]) -> None:
    full, results = toy.run(_trial(algorithm, relabel), _data())
    trunk = Simulation(_trial(algorithm), _data())
    for _ in range(relabel["start"]):
        trunk.run_round()
    fork = Simulation(_trial(algorithm, relabel), _data())
    fork.restore(trunk.snapshot())
    forked = list(fork)
    assert toy.same_model(fork, full)
    assert toy.figures(forked) == toy.figures(results)[relabel["start"] :]
    assert results[-1].metrics["relabel/changed"] > 0


@settings(max_examples=12, deadline=None)
@given(
    stop=st.integers(0, 5), algorithm=st.sampled_from(ALGORITHMS), relabel=st.sampled_from([PAPER, AUTHOR, PERIODIC])
)
def test_stopping_and_resuming_changes_no_bit(stop: int, algorithm: str, relabel: dict[str, Any]) -> None:
    trial = _trial(algorithm, relabel)
    full, results = toy.run(trial, _data())
    first = Simulation(trial, _data())
    for _ in range(stop):
        first.run_round()
    second = Simulation(trial, _data())
    second.restore(first.snapshot())
    assert toy.figures(list(second)) == toy.figures(results)[stop:]
    assert toy.same_model(second, full)
    assert second.status == full.status == "completed"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("relabel", [{"tau": 0.0}, {"tau": 0.3, "start": 1.0}, {"tau": 0.3, "start": 7}])
def test_without_budget_or_time_fedrela_is_the_base_bit_for_bit(algorithm: str, relabel: dict[str, Any]) -> None:
    base, _ = toy.run(_trial(algorithm), _data())
    same, results = toy.run(_trial(algorithm, relabel), _data())
    assert toy.same_model(base, same)
    assert all("relabel/changed" not in result.metrics for result in results)


def test_fedprox_without_pull_is_fedavg_bit_for_bit() -> None:
    fedavg, _ = toy.run(_trial(), _data())
    fedprox, _ = toy.run(_trial("fedprox", federation={"options": {"mu": 0}}), _data())
    assert toy.same_model(fedavg, fedprox)


def test_a_stronger_pull_keeps_clients_nearer() -> None:
    def distance(mu: float) -> float:
        trial = _trial("fedprox", federation={"options": {"mu": mu}, "rounds": 1})
        simulation = Simulation(trial, _data())
        start = simulation.state.server.params.clone()
        simulation.run_round()
        return float((simulation.state.server.params - start).norm())

    assert distance(5.0) < distance(1.0) < distance(0.01)


def test_one_client_is_plain_sgd_bit_for_bit() -> None:
    data = toy.dataset([0, 1, 2, 0, 1, 2, 0, 1], [range(8)], 3)
    trial = toy.config(
        federation={"clients": 1, "rounds": 1}, training={"local_epochs": 2, "batch_size": 3, "shuffle": False}
    )
    simulation = Simulation(trial, data)
    reference = Simulation(trial, data)
    net = reference.model.net.train()
    training = trial.training
    sgd = torch.optim.SGD(net.parameters(), training.lr, training.momentum, weight_decay=training.weight_decay)
    images = reference.data.pipeline.plain(reference.data.images)
    for _ in range(2):
        for rows in (slice(0, 3), slice(3, 6), slice(6, 8)):
            sgd.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(images[rows]).logits, reference.data.original[rows])
            loss.backward()
            sgd.step()
    simulation.run_round()
    torch.testing.assert_close(simulation.state.server.params, reference.model.params, rtol=0, atol=1e-15)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_empty_one_sample_and_one_class_clients_train(algorithm: str) -> None:
    labels = [0] * 9 + [1] * 5 + [2] * 3
    data = toy.dataset(labels, [[], [16], range(9), range(9, 16)], 4)
    simulation, results = toy.run(_trial(algorithm, PAPER, federation={"participation": 1.0}), data)
    assert simulation.status == "completed"
    assert results[0].participants == (1, 2, 3)
    assert all(np.isfinite(result.metrics["train/loss"]) for result in results)


def test_a_round_in_which_nobody_has_data_changes_nothing() -> None:
    data = toy.dataset([0, 1], [[], [], [], [0, 1]], 2)
    trial = _trial(federation={"participation": 0.25, "rounds": 6})
    simulation = Simulation(trial, data)
    idle = 0
    before = simulation.state.server.params.clone()
    for result in simulation:
        if not result.participants:
            idle += 1
            assert "train/loss" not in result.metrics
            assert torch.equal(simulation.state.server.params, before)
        before = simulation.state.server.params.clone()
    assert idle > 0


def test_neither_global_generator_is_read_or_seeded() -> None:
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    toy.run(_trial("fedetf_dotreg", AUTHOR), _data())
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)


def test_a_client_trains_the_same_whoever_else_takes_part() -> None:
    data = _data()

    def local(participants: list[int]) -> torch.Tensor:
        simulation = Simulation(_trial(), data)
        trainer = simulation._trainer
        for client in participants:
            trainer.load_client(client)
            trainer.solver.train(trainer.context(client, 0, total=10))
        return simulation.model.params.clone()

    assert torch.equal(local([2]), local([0, 1, 2])) and not torch.equal(local([2]), local([1]))


def test_other_seeds_give_other_runs() -> None:
    first, _ = toy.run(_trial(seed=1), _data())
    second, _ = toy.run(_trial(seed=2), _data())
    assert not toy.same_model(first, second)


def test_relabelling_moves_only_to_locally_rarer_classes_and_is_logged() -> None:
    data = _data()
    simulation = Simulation(_trial(relabel=PAPER, federation={"participation": 1.0}), data)
    results = list(simulation)
    log = results[2].relabelled
    assert log is not None and len(log["position"]) == results[2].metrics["relabel/changed"] > 0
    for row in range(len(log["position"])):
        counts = data.client_counts[log["client"][row]]
        assert counts[log["label"][row]] < counts[log["original"][row]]
        assert log["position"][row] in data.clients[log["client"][row]]
        assert 0 < log["rho"][row] < 1
    flow = results[2].flow
    assert flow is not None and flow.sum() == len(data.labels)
    assert flow.sum() - np.trace(flow) == len(log["position"])
    assert [result.flow is None for result in results] == [True, True, False, True, True]


@pytest.mark.parametrize(
    ("late", "relabelled"), [("never", "at_T"), ("first_participation", "more"), ("all_at_T", "all")]
)
def test_clients_absent_at_t(late: str, relabelled: str) -> None:
    trial = _trial(relabel={**PAPER, "late_clients": late}, federation={"participation": 0.5, "rounds": 5})
    simulation = Simulation(trial, _data())
    at_t = simulation._trainer.participants(2)
    later = set(at_t) | set(simulation._trainer.participants(3)) | set(simulation._trainer.participants(4))
    assert later != set(at_t)
    list(simulation)
    expected = {"at_T": set(at_t), "more": later, "all": {0, 1, 2, 3}}[relabelled]
    assert set(simulation.state.refreshes) == expected


def test_the_control_arm_drops_the_learning_rate_without_relabelling() -> None:
    _, results = toy.run(_trial(relabel={"tau": 0, "start": 2, "post_relabel_lr_scale": 0.1}), _data())
    rates = [result.metrics["train/lr"] for result in results]
    assert rates == pytest.approx([0.05, 0.05, 0.005, 0.005, 0.005])


def test_label_statistics_follow_the_new_labels_or_stay() -> None:
    data = _data()
    for stats in ("current", "original"):
        trial = _trial("fedetf", {**PAPER, "label_stats": stats}, federation={"participation": 1.0})
        simulation = Simulation(trial, data)
        list(simulation)
        labels = simulation.state.labels if stats == "current" else simulation.data.original
        for client, rows in enumerate(data.clients):
            counts = simulation._trainer.context(client, 4, total=1).label_counts
            assert torch.equal(counts, torch.bincount(labels[rows], minlength=4))


def test_the_authors_resume_repeats_the_round_before_t() -> None:
    plain, _ = toy.run(_trial(relabel=PAPER), _data())
    resumed, results = toy.run(_trial(relabel={**PAPER, "author_resume": True}), _data())
    assert not toy.same_model(plain, resumed) and len(results) == 5
    fork = Simulation(_trial(relabel={**PAPER, "author_resume": True}), _data())
    trunk = Simulation(_trial(), _data())
    for _ in range(2):
        trunk.run_round()
    fork.restore(trunk.snapshot())
    list(fork)
    assert toy.same_model(fork, resumed)


def test_a_diverged_run_stops_at_that_round_and_says_so() -> None:
    trial = _trial(training={"lr": 1e200})
    simulation, results = toy.run(trial, _data())
    assert simulation.status == "diverged"
    assert results[-1].status == "diverged" and len(results) < 5
    assert "test/overall" not in results[-1].metrics and not results[-1].confusion
    assert all(np.isfinite(value) for value in results[-1].metrics.values())
    again = Simulation(trial, _data())
    again.restore(simulation.snapshot())
    assert list(again) == [] and again.status == "diverged"


def test_rounds_that_are_not_evaluated_have_no_accuracy() -> None:
    _, results = toy.run(_trial(evaluation={"eval_every": 2}), _data())
    assert ["test/overall" in result.metrics for result in results] == [False, True, False, True, True]


def test_selection_and_report_are_disjoint_halves() -> None:
    _, whole = toy.run(_trial(), _data())
    _, halves = toy.run(_trial(evaluation={"selection": "test_slice"}), _data())
    val, test = halves[-1].confusion["val"], halves[-1].confusion["test"]
    assert np.array_equal(val + test, whole[-1].confusion["test"])
    assert val.sum(axis=1).tolist() == test.sum(axis=1).tolist()
    assert "val/overall" not in whole[-1].metrics


def test_early_stopping_waits_for_patience() -> None:
    trial = _trial(evaluation={"selection": "test_slice", "early_stop_patience": 1}, federation={"rounds": 30})
    simulation, results = toy.run(trial, _data())
    assert simulation.status == "stopped" and 2 <= len(results) < 30
    values = [result.metrics["val/overall"] for result in results]
    assert values[-1] <= max(values[:-1])


def test_a_step_profile_reports_majority_and_minority() -> None:
    labels = [0] * 4 + [1] * 12 + [2] * 4 + [3] * 12
    data = toy.dataset(labels, [range(0, 16), range(16, 32)], 4, minority=(0, 2))
    _, results = toy.run(toy.config(federation={"clients": 2, "rounds": 1}), data)
    assert {"test/majority", "test/minority", "test/overall"} <= set(results[0].metrics)
    assert "test/head" not in results[0].metrics


def test_snapshots_survive_the_disk_and_damage_is_noticed(tmp_path: Path) -> None:
    simulation, _ = toy.run(_trial("fedetf_dotreg", PAPER), _data())
    path = tmp_path / "state" / "r0005.pt"
    save_snapshot(path, simulation.snapshot())
    other = Simulation(_trial("fedetf_dotreg", PAPER), _data())
    other.restore(load_snapshot(path))
    assert toy.same_model(simulation, other)
    assert set(other.state.private[0]) == {"head.local.weight", "head.local.bias"}
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreError, match="damaged"):
        load_snapshot(path)
    path.write_bytes(bytes(data[:100]))
    with pytest.raises(StoreError, match="damaged"):
        load_snapshot(path)
    with pytest.raises(StoreError, match="cannot read"):
        load_snapshot(tmp_path / "none.pt")


def test_a_failed_write_keeps_the_snapshot_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(_trial(), _data())
    simulation.run_round()
    path = tmp_path / "last.pt"
    save_snapshot(path, simulation.snapshot())
    simulation.run_round()
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(StoreError, match="No space left"):
            save_snapshot(path, simulation.snapshot())
    assert load_snapshot(path).round == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["last.pt"]


def test_snapshots_of_other_runs_are_refused() -> None:
    simulation = Simulation(_trial(relabel=PAPER), _data())
    for _ in range(3):
        simulation.run_round()
    relabelled = simulation.snapshot()
    with pytest.raises(RunError, match="already relabelled"):
        Simulation(_trial(relabel={**PAPER, "tau": 0.2}), _data()).restore(relabelled)
    Simulation(_trial(relabel={**PAPER, "start": 0.4}), _data()).restore(relabelled)
    with pytest.raises(RunError, match="another run"):
        Simulation(_trial(seed=9), _data()).restore(relabelled)
    trunk = Simulation(_trial(), _data())
    for _ in range(3):
        trunk.run_round()
    with pytest.raises(RunError, match="past this run's relabelling at 2"):
        Simulation(_trial(relabel=PAPER), _data()).restore(trunk.snapshot())


def test_an_interrupted_round_cannot_be_saved_or_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(_trial(), _data())
    before = simulation.snapshot()
    with monkeypatch.context() as patch:
        patch.setattr(simulation._trainer, "run", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            simulation.run_round()
    with pytest.raises(RunError, match="interrupted"):
        simulation.snapshot()
    with pytest.raises(RunError, match="interrupted"):
        simulation.run_round()
    simulation.restore(before)
    full, _ = toy.run(_trial(), _data())
    list(simulation)
    assert toy.same_model(simulation, full)


def test_wrong_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean fedprox"):
        Simulation(_trial("fedprx"), _data())
    with pytest.raises(ConfigError, match="did you mean mu"):
        Simulation(_trial("fedprox", federation={"options": {"muu": 1}}), _data())
    with pytest.raises(ConfigError, match="posterior_head"):
        Simulation(_trial(relabel={"posterior_head": "cosine"}), _data())
    with pytest.raises(ConfigError, match="3 clients"):
        Simulation(_trial(), toy.skewed(clients=3))


def test_both_fedetf_posteriors_relabel() -> None:
    for head in ("scored", "cosine"):
        _, results = toy.run(_trial("fedetf", {**PAPER, "posterior_head": head}), _data())
        assert results[-1].metrics["relabel/changed"] > 0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_only_relabelled_runs_differ_and_only_from_t_on(algorithm: str) -> None:
    _, base = toy.run(_trial(algorithm), _data())
    _, with_relabelling = toy.run(_trial(algorithm, PAPER), _data())
    plain = [{k: v for k, v in m.items() if not k.startswith("relabel/")} for _, m in toy.figures(with_relabelling)]
    assert plain[:2] == [m for _, m in toy.figures(base)][:2]
    assert plain[2:] != [m for _, m in toy.figures(base)][2:]


def test_communication_counts_shared_floats_only() -> None:
    simulation = Simulation(_trial("fedetf_dotreg"), _data())
    size = simulation.model.size(48, 4)
    conv, bn, etf_bn, linear = 6 * 9 + 6, 2 * 6 + 2 * 6, 4 * 48, 48 * 4 + 4
    assert size.private == linear
    assert simulation.communication == {"down": conv + bn + etf_bn + linear, "up": conv + bn + etf_bn + linear}
