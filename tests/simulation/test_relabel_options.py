"""Each relabelling option reaches what it names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedrela_bench.relabelers.fedrela as relabeling
from fedrela_bench import TrialConfig, load_dataset
from fedrela_bench.algorithms import build_algorithm
from fedrela_bench.config import AUTHOR_PRESET
from fedrela_bench.errors import ConfigError
from fedrela_bench.simulation import Simulation
from fedrela_bench.simulation.posterior import client_posterior
from tests.simulation import toy


def _trial(relabel: dict[str, Any], **more: Any) -> TrialConfig:
    federation = {"clients": 4, "rounds": 5, "algorithm": more.pop("algorithm", "fedavg")}
    return toy.config(federation=federation, relabel=relabel, **more)


def _calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    original = relabeling.reallocate

    def spy(posterior: Any, labels: Any, tau: float, uniforms: Any, *rest: Any, **more: Any) -> Any:
        calls.append({"posterior": posterior.clone(), "labels": labels.clone(), "uniforms": np.array(uniforms)})
        return original(posterior, labels, tau, uniforms, *rest, **more)

    monkeypatch.setattr(relabeling, "reallocate", spy)
    return calls


@pytest.mark.parametrize("source", ["original", "current"])
def test_a_refresh_starts_from_the_original_or_the_current_labels(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _calls(monkeypatch)
    data = toy.skewed(clients=4)
    simulation = Simulation(_trial({"tau": 0.4, "start": 1, "period": 2, "refresh_from": source}), data)
    for _ in range(3):
        simulation.run_round()
    held = simulation.state.labels.clone()
    assert not torch.equal(held, simulation.data.original)
    calls.clear()
    simulation.run_round()
    expected = held if source == "current" else simulation.data.original
    for call, rows in zip(calls, data.clients, strict=True):
        assert torch.equal(call["labels"], expected[torch.from_numpy(rows)])


def test_every_client_and_refresh_has_its_own_uniforms(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _calls(monkeypatch)
    labels = [0, 0, 0, 1, 1, 2] * 4
    data = toy.dataset(labels, [range(6 * k, 6 * k + 6) for k in range(4)], 3)
    list(Simulation(_trial({"tau": 0.4, "start": 1, "period": 2}), data))
    drawn = [call["uniforms"] for call in calls]
    assert len(drawn) == 8
    assert len({array.tobytes() for array in drawn}) == 8


def _posterior(relabel: dict[str, Any], **changes: Any) -> tuple[torch.Tensor, Simulation]:
    data = replace(toy.skewed(clients=4), **changes)
    simulation = Simulation(_trial({"tau": 0.1, **relabel}), data)
    trainer = simulation._trainer
    trainer.load_client(0)
    context = trainer.context(0, 4, total=1)
    return client_posterior(simulation.model, simulation.algorithm, context, simulation.config, 0), simulation


def test_the_scale_multiplies_the_logits() -> None:
    plain, simulation = _posterior({})
    scaled, _ = _posterior({"posterior_scale": 3.0})
    with torch.no_grad():
        images = simulation.data.pipeline.plain(simulation.data.images[simulation.data.rows[0]])
        logits = simulation.model.net.eval()(images).logits
    torch.testing.assert_close(plain, logits.softmax(dim=1))
    torch.testing.assert_close(scaled, (3 * logits).softmax(dim=1))


def test_views_are_augmented_when_asked() -> None:
    plain, _ = _posterior({}, augment="crop_flip")
    one, _ = _posterior({"posterior_augment": True}, augment="crop_flip")
    five, _ = _posterior({"posterior_augment": True, "posterior_views": 5}, augment="crop_flip")
    assert not torch.equal(plain, one)
    assert not torch.equal(one, five)
    for posterior in (plain, one, five):
        torch.testing.assert_close(posterior.sum(dim=1), torch.ones(len(posterior), dtype=torch.float64))


def test_batch_statistics_leave_the_running_ones_alone() -> None:
    data = toy.skewed(clients=4)
    simulation = Simulation(_trial({"tau": 0.1, "posterior_bn": "batch", "posterior_batch": 8}), data)
    simulation.run_round()
    trainer = simulation._trainer
    trainer.load_client(0)
    before = simulation.model.buffers.clone()
    context = trainer.context(0, 4, total=1)
    batch = client_posterior(simulation.model, simulation.algorithm, context, simulation.config, 0)
    assert torch.equal(simulation.model.buffers, before)
    running = client_posterior(simulation.model, simulation.algorithm, context, _trial({"tau": 0.1}), 0)
    assert not torch.allclose(batch, running)


def test_the_authors_resume_starts_from_empty_client_and_server_state(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(
        _trial({"tau": 0.1, "start": 2, "author_resume": True}, algorithm="fedetf_dotreg"), toy.skewed(clients=4)
    )
    seen: list[tuple[int, int]] = []
    run = simulation._trainer.run
    monkeypatch.setattr(
        simulation._trainer, "run", lambda i, p: (seen.append((i, len(simulation.state.private))), run(i, p))[1]
    )
    list(simulation)
    assert seen == [(0, 0), (1, 4), (1, 0), (2, 4), (3, 4), (4, 4)]


def test_selection_and_report_rows_are_the_datasets() -> None:
    data = toy.skewed(clients=4)
    simulation = Simulation(_trial({}, evaluation={"selection": "test_slice"}), data)
    selection, report = data.test_slices()
    assert np.array_equal(simulation.data.slices["val"], selection)
    assert np.array_equal(simulation.data.slices["test"], report)


def test_the_author_preset_is_the_released_code() -> None:
    assert AUTHOR_PRESET == {
        "pick": "drawn",
        "std_ddof": 0,
        "sigma_floor": 1e-6,
        "quantile": "order",
        "posterior_bn": "batch",
        "posterior_views": 5,
        "posterior_augment": True,
        "posterior_batch": 8,
        "late_clients": "never",
        "post_relabel_lr_scale": 0.1,
    }
    relabel = TrialConfig(relabel={"preset": "author", "tau": 0.05, "pick": "all"}).relabel
    assert (relabel.pick, relabel.std_ddof, relabel.quantile) == ("all", 0, "order")


def test_changing_the_preset_keeps_what_presets_do_not_name() -> None:
    base = TrialConfig(relabel={"tau": 0.1, "refresh_from": "current", "label_stats": "original"})
    changed = base.replace({"relabel.preset": "author"}).relabel
    assert (changed.tau, changed.refresh_from, changed.label_stats) == (0.1, "current", "original")
    assert (changed.pick, changed.late_clients) == ("drawn", "never")


def test_the_authors_test_of_fedetf_uses_batches_of_100(golden: Callable[[str], Path]) -> None:
    figures = np.load(golden("etf.npz"))
    names = {key.split("__")[0] for key in figures.files if key.startswith("etftest_")}
    assert names
    for name in sorted(names):
        features, vertices = (torch.from_numpy(figures[f"{name}__{field}"]) for field in ("X", "P"))
        classes = vertices.shape[1]
        data = toy.dataset(
            range(classes), [range(classes)], classes, np.zeros((classes, 1, features.shape[1], 1), "u1")
        )
        trial = toy.config(
            federation={"clients": 1, "algorithm": "fedetf_dotreg", "options": {"etf_head_bn": "author"}},
            training={"model": "identity_net"},
        )
        simulation = Simulation(trial, data)
        toy.with_floats(simulation, features[:classes, None, None, :], features[:, None, None, :])
        centre = torch.eye(classes, dtype=torch.float64) - 1 / classes
        etf = simulation.model.net.get_submodule("head.etf_head").etf
        etf.copy_((classes / (classes - 1)) ** 0.5 * vertices @ centre)
        predicted = simulation._trainer.predict(0, len(features))[""]
        assert np.array_equal(predicted, figures[f"{name}__logits_bn_batch"].argmax(axis=1)), name
    assert build_algorithm("fedetf_dotreg", {"etf_head_bn": "author"}, 3).eval_batch() == 100


def test_the_default_configuration_runs() -> None:
    config = TrialConfig(federation={"rounds": 1})
    assert config.training.model == "auto"
    (result,) = Simulation(config, load_dataset(config))
    assert result.metrics["test/overall"] > 0


def test_a_dataset_of_another_configuration_is_refused() -> None:
    config = TrialConfig(federation={"rounds": 1})
    dataset = load_dataset(config)
    for changes in ({"seed": 2}, {"data.alpha": 1.0}, {"data.imbalance_factor": 10}):
        with pytest.raises(ConfigError, match="another configuration"):
            Simulation(config.replace(changes), dataset)
    with pytest.raises(ConfigError, match="device nowhere"):
        Simulation(config, dataset, "nowhere")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"foo": 1}, "unknown field foo"),
        ({"training": {"lr": "0.1"}}, "not text"),
        ({"training": {"lr": float("nan")}}, "training.lr"),
        ({"seed": 2**32}, "less than"),
        ({"federation": {"clients": 1e300}}, "federation.clients"),
        ({"relabel": {"score": "none", "constant_threshold": 1}}, "constant_threshold has no effect"),
    ],
)
def test_the_python_api_reports_faults_as_the_command_line_does(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TrialConfig(**values)
