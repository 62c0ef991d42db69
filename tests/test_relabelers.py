"""Relabelers one client at a time: the shipped ones pass the public kit, the control matches FedReLa exactly."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrela_bench.config import TrialConfig
from fedrela_bench.errors import ConfigError
from fedrela_bench.relabel import RelabelOptions
from fedrela_bench.relabelers import RELABELERS, Client, Relabeler, Relabelled, build_relabeler, register_relabeler, run
from fedrela_bench.schedules import SCHEDULES, Schedule, build_schedule, register_schedule
from fedrela_bench.testing.relabelers import check_relabeler, check_schedule

SHIPPED: list[tuple[str, dict[str, Any]]] = [
    ("fedrela", {}),
    ("none", {}),
    ("random", {"match": "rate"}),
    ("random", {"match": "source"}),
    ("random", {"match": "flow"}),
    ("loss", {}),
    ("loss", {"confidence": 0.0}),
]


@pytest.mark.parametrize(("name", "options"), SHIPPED, ids=lambda value: str(value))
def test_shipped_relabelers_pass_the_kit(name: str, options: dict[str, Any]) -> None:
    check_relabeler(name, options)


@pytest.mark.parametrize(("name", "options"), [("fixed", {}), ("linear", {}), ("linear", {"first": 1.0})], ids=str)
def test_shipped_schedules_pass_the_kit(name: str, options: dict[str, Any]) -> None:
    check_schedule(name, options)


def _flow(before: np.ndarray, after: np.ndarray, classes: int) -> np.ndarray:
    return np.bincount(before * classes + after, minlength=classes * classes).reshape(classes, classes)


@st.composite
def some_client(draw: st.DrawFn) -> Client[Any]:
    classes, n = draw(st.integers(1, 6)), draw(st.integers(0, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    posterior = rng.dirichlet(np.full(classes, draw(st.sampled_from([0.05, 1.0]))), n)
    labels = np.minimum(rng.geometric(0.5, n) - 1, classes - 1)
    readings = RelabelOptions.preset(draw(st.sampled_from(["paper", "author"])))
    tau = draw(st.sampled_from([0.0, 0.05, 0.3, 1.0]))
    return Client(posterior, labels, tau, rng.random((n, classes)), rng.random((n, 2)), readings)


@settings(max_examples=150, deadline=None)
@given(some_client())
def test_the_control_has_fedrelas_counts_and_with_flow_its_whole_table(client: Client[Any]) -> None:
    classes, before = client.posterior.shape[1], client.labels
    theirs = _flow(before, run(build_relabeler("fedrela", {}), client).labels, classes)
    ours = {
        match: _flow(before, run(build_relabeler("random", {"match": match}), client).labels, classes)
        for match in ("rate", "source", "flow")
    }
    assert np.array_equal(ours["flow"], theirs)
    assert np.array_equal(ours["source"].diagonal(), theirs.diagonal())
    assert ours["rate"].trace() == theirs.trace()


def test_the_control_chooses_every_sample_equally_often() -> None:
    rng = np.random.default_rng(0)
    posterior, labels = rng.dirichlet(np.ones(4), 40), np.repeat(np.arange(4), (20, 10, 6, 4))
    uniforms, control = rng.random((40, 4)), build_relabeler("random", {})
    times, targets = np.zeros(40), np.zeros(4)
    for _ in range(1000):
        new = run(control, Client(posterior, labels, 0.2, uniforms, rng.random((40, 2)))).labels
        times += new != labels
        targets += np.bincount(new[(new != labels) & (labels == 0)], minlength=4)
    share = times.mean()
    assert share > 0 and np.abs(times - share).max() < 5 * np.sqrt(share * (1 - share / 1000))
    assert targets[0] == 0 and np.allclose(targets[1:] / targets.sum(), 1 / 3, atol=0.03)


def test_loss_takes_the_worst_samples_that_the_model_is_sure_of() -> None:
    posterior = np.array([[0.1, 0.9], [0.45, 0.55], [0.3, 0.7], [0.8, 0.2]])
    client = Client(posterior, np.array([0, 0, 0, 0]), 0.5, np.zeros((4, 2)), np.zeros((4, 1)))
    found = run(build_relabeler("loss", {}), client)
    assert found.labels.tolist() == [1, 0, 1, 0]
    assert found.strength == pytest.approx([0.8, 0.0, 0.4, 0.0])
    assert run(build_relabeler("loss", {"confidence": 0.75}), client).labels.tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("schedule", "timing", "refreshes", "shares"),
    [
        ({}, (8, 0), [8], [1.0]),
        ({}, (2, 3), [2, 5, 8], [1.0, 1.0, 1.0]),
        ({"schedule": "linear"}, (2, 3), [2, 5, 8], [0.2, 0.6, 1.0]),
        ({"schedule": "linear", "schedule_options": {"first": 0.5}}, (4, 4), [4, 8], [0.5, 1.0]),
        ({"schedule": "linear"}, (8, 0), [8], [1.0]),
        ({"schedule": "linear"}, (8, 5), [8], [1.0]),
    ],
)
def test_schedules(
    schedule: dict[str, Any], timing: tuple[int, int], refreshes: list[int], shares: list[float]
) -> None:
    relabel = {"tau": 0.1, "start": timing[0], "period": timing[1], **schedule}
    found = build_schedule(TrialConfig(federation={"rounds": 10}, relabel=relabel))
    assert list(found.refreshes) == refreshes
    assert [found.budget(place) for place in range(len(refreshes))] == pytest.approx([0.1 * share for share in shares])
    assert [found.refresh_of(index) for index in range(10)] == [
        sum(r <= index for r in refreshes) - 1 for index in range(10)
    ]


# what the kit catches ------------------------------------------------------------------------------------------------


def _breaking(fault: str) -> type[Relabeler]:
    class Broken(Relabeler):
        name: ClassVar[str] = f"broken_{fault}"
        citation: ClassVar[str] = "test"
        purpose: ClassVar[str] = "breaks a rule of the kit"

        def relabel(self, client: Client[Any]) -> Relabelled[Any]:
            labels, strength = client.labels.copy(), np.zeros(len(client.labels))
            if fault == "range":
                labels[:1] = client.posterior.shape[1]
            elif fault == "budget":
                labels = (labels + 1) % client.posterior.shape[1]
            elif fault == "input":
                client.labels[:] = 0
            elif fault == "global":
                labels[: self.most(client)] = np.random.randint(client.posterior.shape[1])
            elif fault == "order":
                labels[: self.most(client)] = 0
            elif fault == "shape":
                labels = labels[:-1]
            elif fault == "strength":
                strength += 1
            elif fault == "type":
                labels = labels + 0.5
            elif fault == "error":
                labels[10] = 0
            return Relabelled(labels, strength)

    Broken.__qualname__ = f"Broken{fault}"
    return Broken


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("range", "classes are 0 to 4"),
        ("budget", "most() allows"),
        ("input", "changes its input"),
        ("global", "draw from client.uniforms or client.draws alone"),
        ("order", "set order_free = False"),
        ("shape", "one for each sample"),
        ("strength", "whose label stays"),
        ("type", "give integer class ids"),
        ("error", "fails with IndexError"),
    ],
)
def test_the_kit_sees_a_broken_relabeler(fault: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RELABELERS, f"broken_{fault}", _breaking(fault))
    with pytest.raises(AssertionError) as caught:
        check_relabeler(f"broken_{fault}")
    assert words in str(caught.value) and str(caught.value).startswith(f"broken_{fault}, ")


@pytest.mark.parametrize(
    ("later", "share", "words"),
    [
        (lambda timing: [timing.start], 1.0, "give ascending whole rounds after T"),
        (lambda timing: [timing.start + 0.5], 1.0, "give ascending whole rounds after T"),
        (lambda timing: (), 1.5, "give a fraction from 0 to 1"),
    ],
)
def test_the_kit_sees_a_broken_schedule(later: Any, share: float, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Schedule):
        name: ClassVar[str] = "broken"
        citation: ClassVar[str] = "test"
        purpose: ClassVar[str] = "breaks a rule"

        def later(self) -> Any:
            return later(self.timing)

        def share(self, refresh: int) -> float:
            return share

    monkeypatch.setitem(SCHEDULES, "broken", Broken)
    with pytest.raises(AssertionError, match=words):
        check_schedule("broken")


def test_registering_needs_a_name_of_its_own_and_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = _breaking("none")
    monkeypatch.setattr(kind, "name", "random")
    with pytest.raises(ConfigError, match="taken by Random"):
        register_relabeler(kind)
    monkeypatch.setattr(kind, "citation", " ")
    with pytest.raises(ConfigError, match="has no citation"):
        register_relabeler(kind)

    class Fixed2(Schedule):
        name: ClassVar[str] = "fixed"
        citation: ClassVar[str] = "test"
        purpose: ClassVar[str] = "test"

        def later(self) -> Any:
            return ()

    with pytest.raises(ConfigError, match="taken by Fixed"):
        register_schedule(Fixed2)
