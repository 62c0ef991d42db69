"""The relabeler for training code of one's own gives the simulator's labels, and says what is wrong with its input."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from fedrela_bench.errors import ConfigError
from fedrela_bench.relabel import Relabeler, RelabelOptions
from fedrela_bench.simulation import Simulation, loop
from tests.simulation import toy


def _recorded(monkeypatch: pytest.MonkeyPatch, relabel: dict[str, Any]) -> tuple[list[dict[str, Any]], list[list[int]]]:
    """Every relabelling of a simulator run, and the participants of its rounds."""
    calls: list[dict[str, Any]] = []
    original = loop.relabel_client

    def spy(posterior: Any, config: Any, client: int, first: Any, labels: Any, *more: Any) -> Any:
        made = original(posterior, config, client, first, labels, *more)
        round_ = simulation.completed_rounds
        calls.append({"client": client, "round": round_, "posterior": posterior, "labels": first, "new": made[0]})
        return made

    monkeypatch.setattr(loop, "relabel_client", spy)
    federation = {"clients": 5, "rounds": 7, "participation": 0.6}
    simulation = Simulation(toy.config(federation=federation, relabel=relabel, seed=11), toy.skewed(clients=5))
    return calls, [list(result.participants) for result in simulation]


@pytest.mark.parametrize("preset", ["paper", "author"])
def test_a_simulator_run_replayed_gives_its_labels(monkeypatch: pytest.MonkeyPatch, preset: str) -> None:
    relabel = {"tau": 0.3, "start": 2, "period": 2, "preset": preset, "late_clients": "first_participation"}
    calls, rounds = _recorded(monkeypatch, {**relabel, "posterior_views": 1})
    relabeler = Relabeler(tau=0.3, start=2, period=2, preset=preset, seed=11)
    last: dict[int, int] = {}
    replayed = []
    for index, participants in enumerate(rounds):
        due = [client for client in participants if relabeler.due(index, last.get(client))]
        assert due == [call["client"] for call in calls if call["round"] == index]
        for call in (call for call in calls if call["round"] == index):
            result = relabeler.relabel(call["client"], index, call["posterior"], call["labels"])
            again = relabeler.relabel(call["client"], index, call["posterior"].numpy(), call["labels"].numpy())
            assert torch.equal(result.labels, call["new"])
            assert np.array_equal(again.labels, call["new"].numpy())
            assert result.count == int((call["new"] != call["labels"]).sum())
            last[call["client"]] = result.refresh
            replayed.append(result.count)
    assert len(replayed) == len(calls) >= 8
    assert sum(replayed) > 0
    assert max(last.values()) >= 1


def _client(n: int = 60, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    labels = np.repeat(np.arange(classes), [n - 3 * (n // 6), n // 6, n // 6, n // 6])
    return rng.dirichlet(np.ones(classes), n), labels


def test_what_comes_out_is_of_the_kind_that_went_in() -> None:
    posterior, labels = _client()
    relabeler = Relabeler(tau=0.2, seed=3)
    arrays = relabeler.relabel(0, 0, posterior, labels.astype(np.int32))
    tensors = relabeler.relabel(0, 0, torch.from_numpy(posterior), torch.from_numpy(labels))
    lists = relabeler.relabel(0, 0, posterior.tolist(), labels.tolist())
    assert arrays.labels.dtype == np.int32
    assert isinstance(tensors.labels, torch.Tensor) and tensors.labels.dtype == torch.int64
    assert np.array_equal(arrays.labels, tensors.labels.numpy()) and np.array_equal(arrays.labels, lists.labels)
    assert arrays.count > 0
    assert np.array_equal(arrays.changed, arrays.labels != labels)
    assert np.array_equal(arrays.details.flow().sum(axis=1), np.bincount(labels))


def test_logits_are_softened_as_the_simulator_does() -> None:
    posterior, labels = _client()
    logits = np.log(posterior) + 7.5
    relabeler = Relabeler(tau=0.2, seed=3)
    expected = relabeler.relabel(1, 0, torch.from_numpy(logits).softmax(dim=1), labels).labels
    assert torch.equal(relabeler.relabel_logits(1, 0, torch.from_numpy(logits), labels).labels, expected)
    assert np.array_equal(relabeler.relabel_logits(1, 0, logits, labels).labels, expected.numpy())
    float32 = relabeler.relabel_logits(1, 0, torch.from_numpy(logits).float().requires_grad_(), labels)
    assert not float32.labels.requires_grad


def test_seed_client_and_refresh_key_the_draws_and_nothing_else_does() -> None:
    one = Relabeler(start=3, period=4, seed=1)
    draws = one.uniforms(2, 3, (50, 3))
    assert np.array_equal(draws, one.uniforms(2, 6, (50, 3)))
    assert np.array_equal(draws, Relabeler(tau=0.3, start=3, seed=1).uniforms(2, 90, (50, 3)))
    others = [
        one.uniforms(2, 7, (50, 3)),
        one.uniforms(1, 3, (50, 3)),
        Relabeler(start=3, seed=2).uniforms(2, 3, (50, 3)),
    ]
    assert all(not np.array_equal(draws, other) for other in others)
    assert 0 <= draws.min() < draws.max() < 1


def test_when_a_client_is_due() -> None:
    once, never = Relabeler(start=2), Relabeler(tau=0)
    assert [once.due(index) for index in range(4)] == [False, False, True, True]
    assert not once.due(3, last=0)
    assert not any(never.due(index) for index in range(4))
    again = Relabeler(start=2, period=3)
    assert [again.refresh(index) for index in range(9)] == [None, None, 0, 0, 0, 1, 1, 1, 2]
    assert again.due(5, last=0) and not again.due(4, last=0)


def test_options_take_the_place_of_a_preset() -> None:
    posterior, labels = _client()
    author = Relabeler(tau=0.2, preset="author").relabel(0, 0, posterior, labels).labels
    same = Relabeler(tau=0.2, options=RelabelOptions.preset("author")).relabel(0, 0, posterior, labels).labels
    assert np.array_equal(author, same)
    forbidden = Relabeler(tau=0.5, options=RelabelOptions(absent_targets="forbid"))
    wide = np.hstack([posterior / 2, np.full((len(posterior), 1), 0.5)])
    assert 4 not in forbidden.relabel(0, 0, wide, labels).labels


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"posterior": "logits"}, ["no probabilities", "relabel_logits"]),
        ({"posterior": "percent"}, ["row 0 sums to 100", "relabel_logits"]),
        ({"posterior": "nan"}, ["not finite"]),
        ({"posterior": "flat"}, ["shape (60,)", "one row per sample"]),
        ({"posterior": "whole"}, ["floating-point"]),
        ({"labels": np.arange(3)}, ["(3,)", "needs (60,)"]),
        ({"labels": np.full(60, 4)}, ["labels reach from 4 to 4", "classes 0 to 3"]),
        ({"labels": np.full(60, 1.0)}, ["integer class ids"]),
        ({"client_id": -1, "round": 1.5}, ["2 faults", "client_id = -1", "round = 1.5"]),
        ({"round": 1}, ["nothing is relabelled in round 1", "due(round)"]),
    ],
)
def test_wrong_input_is_told_with_its_remedy(change: dict[str, Any], words: list[str]) -> None:
    posterior, labels = _client()
    made = {
        "logits": np.log(posterior),
        "percent": 100 * posterior,
        "nan": np.full_like(posterior, np.nan),
        "flat": posterior[:, 0],
        "whole": np.ones((60, 4), dtype=np.int64),
    }
    call = {"client_id": 0, "round": 2, "posterior": posterior, "labels": labels, **change}
    if isinstance(call["posterior"], str):
        call["posterior"] = made[call["posterior"]]
    with pytest.raises(ConfigError) as caught:
        Relabeler(start=2).relabel(**call)
    assert [word for word in words if word not in str(caught.value)] == []


def test_every_wrong_setting_is_in_one_message() -> None:
    with pytest.raises(ConfigError) as caught:
        Relabeler(tau=5, start=0.8, period=-1, preset="papr", seed=2**32)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "did you mean 0.05?" in text and "multiplied out" in text
    assert all(word in text for word in ("period = -1", "papr", f"seed = {2**32}"))


def test_half_precision_probabilities_are_accepted() -> None:
    posterior, labels = _client()
    assert len(Relabeler().relabel(0, 0, torch.from_numpy(posterior).half(), labels).labels) == 60
    assert len(Relabeler().relabel(0, 0, np.empty((0, 4)), np.empty(0, dtype=np.int64)).labels) == 0


def test_the_import_is_light() -> None:
    code = "import fedrela_bench.relabel, sys; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not loaded & {"ray", "mlflow", "optuna", "pandas", "yaml", "fedrela_bench.simulation", "fedrela_bench.data"}
