"""Every base algorithm learns real digits in a few rounds, from several seeds well above the majority class."""

from __future__ import annotations

from functools import cache

import pytest

from fedrela_bench import Simulation, TrialConfig, load_dataset
from fedrela_bench.data.federated import FederatedDataset
from tests import kit_tools as tools
from tests.kits import ROWS, Row

MAJORITY = 0.1
"""Accuracy of always naming one class: the test set is balanced."""
ROUNDS = 5


def digits_trial(row: Row, seed: int = 1) -> TrialConfig:
    """Five clients, imbalance factor 10, Dirichlet 1, five rounds of two local epochs on a perceptron."""
    training = {"model": tools.Perceptron.name, "local_epochs": 2, "batch_size": 16, "lr": row.lr, **row.training}
    return TrialConfig(
        data={
            "source": "digits",
            "profile": "lt",
            "imbalance_factor": 10,
            "n_max": 100,
            "alpha": 1,
            "partition_seed": 1,
        },
        federation={"algorithm": row.name, "options": {**row.options, **row.learning}, "clients": 5, "rounds": ROUNDS},
        training=training,
        evaluation={"eval_every": ROUNDS},
        seed=seed,
    )


@cache
def _digits() -> FederatedDataset:
    return load_dataset(digits_trial(ROWS[0]))


def digits_accuracy(row: Row, seed: int = 1) -> float:
    """Test accuracy after the short run."""
    *_, last = Simulation(digits_trial(row, seed), _digits())
    return last.metrics["test/overall"]


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.title, marks=pytest.mark.slow if row.slow else ()) for row in ROWS]
)
def test_it_learns_digits(row: Row) -> None:
    assert row.reaches >= 2 * MAJORITY
    assert digits_accuracy(row) > row.reaches
