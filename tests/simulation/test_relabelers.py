"""Relabelers in the loop: FedReLa's keys and bits are what they were, controls match it, `none` is the baseline."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedrela_bench.config import TrialConfig
from fedrela_bench.errors import ConfigError
from fedrela_bench.nested import digest
from fedrela_bench.neutral import deciding
from fedrela_bench.simulation import Simulation
from fedrela_bench.study.keys import Fingerprint, cell_key, trunk_key
from tests.simulation import toy

PRINT = Fingerprint("data", (("amp", "none"), ("device", "cpu")), "1")
KNOWN = {
    "once": ({"tau": 0.05}, "82142517522d888feb61830994650eb4", "2ba1d737a90bdf5228d48332dc3d92c5"),
    "periodic": (
        {"tau": 0.1, "start": 0.5, "period": 3},
        "4d425569b7f439319801be5d49be81f8",
        "4e6fe875b081ddd1161f39829b6ce3e0",
    ),
    "author": (
        {"tau": 0.05, "preset": "author"},
        "810c735342fa3bbf2202f9e5b653b8c3",
        "9cd773e23bd1d68a2de7ec143f1cc6b2",
    ),
}
"""Cell key and digest of the relabel section as they were before there was a choice of relabelers."""


def _trial(rounds: int = 5, **relabel: Any) -> TrialConfig:
    return toy.config(federation={"clients": 4, "rounds": rounds}, relabel={"tau": 0.3, "start": 2, **relabel})


def _run(trial: TrialConfig) -> tuple[Simulation, list[Any]]:
    return toy.run(trial, toy.skewed(clients=4, largest=80))


@pytest.mark.parametrize(("relabel", "key", "section"), KNOWN.values(), ids=KNOWN)
def test_keys_of_fedrela_are_what_they_were(relabel: dict[str, Any], key: str, section: str) -> None:
    spelled_out = {**relabel, "method": "fedrela", "options": {}, "schedule": "fixed", "schedule_options": {}}
    for values in (relabel, spelled_out):
        config = TrialConfig(relabel=values)
        assert cell_key(config, PRINT) == key
        assert digest(deciding(config.relabel)) == section
    assert trunk_key(TrialConfig(), PRINT) == "98fa338d564a5ea589a14191374de93d"


def test_another_relabeler_option_or_schedule_is_another_cell_of_the_same_trunk() -> None:
    kinds: list[dict[str, Any]] = [
        {},
        {"method": "random"},
        {"method": "random", "options": {"match": "flow"}},
        {"method": "loss"},
        {"method": "none"},
        {"period": 2},
        {"period": 2, "schedule": "linear"},
        {"period": 2, "schedule": "linear", "schedule_options": {"first": 0.5}},
    ]
    configs = [TrialConfig(relabel={"tau": 0.05, "start": 0.5, **kind}) for kind in kinds]
    assert len({cell_key(config, PRINT) for config in configs}) == len(kinds)
    assert len({trunk_key(config, PRINT) for config in configs}) == 1


def test_none_is_the_baseline_bit_for_bit() -> None:
    none, results = _run(_trial(method="none", period=1))
    base, expected = _run(_trial(tau=0.0))
    assert toy.same_model(none, base)
    accuracies = [{k: v for k, v in metrics.items() if not k.startswith("relabel/")} for _, metrics in _of(results)]
    assert accuracies == [metrics for _, metrics in _of(expected)]
    assert [r.metrics.get("relabel/changed") for r in results] == [None, None, 0.0, 0.0, 0.0]


def _of(results: list[Any]) -> Any:
    return toy.figures(results)


@pytest.mark.parametrize("match", ["rate", "source", "flow"])
def test_the_control_moves_as_many_labels_of_every_client_as_fedrela(match: str) -> None:
    theirs, first = _run(_trial())
    ours, second = _run(_trial(method="random", options={"match": match}))
    assert not torch.equal(theirs.state.labels, ours.state.labels)
    for rows in theirs.data.rows:
        moved = [(s.state.labels[rows] != s.data.original[rows]).sum() for s in (theirs, ours)]
        assert moved[0] == moved[1]
    flows = [results[2].flow for results in (first, second)]
    kept = [flow.diagonal() for flow in flows]
    assert (kept[0] == kept[1]).all() or match == "rate"
    assert np.array_equal(*flows) == (match == "flow")
    assert toy.figures(first)[:2] == toy.figures(second)[:2]


def test_loss_spends_at_most_tau_of_every_client() -> None:
    simulation, _ = _run(_trial(method="loss", start=0, options={"confidence": 0.0}))
    moved = [int((simulation.state.labels[r] != simulation.data.original[r]).sum()) for r in simulation.data.rows]
    assert all(m <= int(0.3 * len(rows)) for m, rows in zip(moved, simulation.data.rows, strict=True)) and sum(moved)


@pytest.mark.parametrize("relabel", [{"method": "random"}, {"method": "loss"}, {"schedule": "linear", "period": 2}])
def test_a_fork_and_a_resumed_run_are_the_full_run(relabel: dict[str, Any]) -> None:
    trial, data = _trial(7, **relabel), toy.skewed(clients=4, largest=80)
    whole, expected = toy.run(trial, data)
    base = Simulation(trial.base(), data)
    for _ in range(2):
        base.run_round()
    fork = Simulation(trial, data)
    fork.restore(base.snapshot())
    for _ in range(3):
        fork.run_round()
    resumed = Simulation(trial, data)
    resumed.restore(fork.snapshot())
    assert toy.figures(list(resumed)) == toy.figures(expected)[5:]
    assert toy.same_model(resumed, whole)


def test_linear_moves_more_labels_from_refresh_to_refresh() -> None:
    _, ramp = _run(_trial(8, schedule="linear", period=2, schedule_options={"first": 0.1}))
    _, once = _run(_trial(8, tau=0.03))
    rates = [r.metrics["relabel/changed"] for r in ramp if "relabel/changed" in r.metrics]
    assert rates[0] == once[2].metrics["relabel/changed"] < rates[2] < rates[4]
    assert rates[0::2] == rates[1::2]


@pytest.mark.parametrize(
    ("relabel", "words"),
    [
        ({"method": "randm"}, "unknown relabeler relabel.method = 'randm'; did you mean random?"),
        ({"method": "random", "options": {"match": "rates"}}, "relabel.options.match = 'rates'"),
        ({"options": {"match": "rate"}}, "unknown field relabel.options.match of fedrela"),
        ({"schedule": "fixd"}, "did you mean fixed?"),
        ({"schedule": "linear", "schedule_options": {"first": 0}}, "relabel.schedule_options.first = 0"),
        ({"schedule_options": {"first": 0.1}}, "fixed has no options"),
    ],
)
def test_wrong_names_and_options_are_refused_before_a_round(relabel: dict[str, Any], words: str) -> None:
    from fedrela_bench.defaults import resolve

    with pytest.raises(ConfigError, match=words.replace("(", r"\(").replace("?", r"\?")):
        Simulation(_trial(**relabel), toy.skewed(clients=4))
    overrides = {f"relabel.{name}": value for name, value in relabel.items()}
    with pytest.raises(ConfigError, match=words.replace("?", r"\?")):
        resolve("digits_lt", overrides=overrides)
