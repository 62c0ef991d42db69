"""What relabelling at T leaves alone, and who hears of the new labels."""

from __future__ import annotations

import pytest
import torch

from fedrela_bench.simulation import Simulation
from tests import kit_tools as tools
from tests.algorithms.server_rules import close, trial
from tests.kits import ROWS, Row
from tests.simulation import toy


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_relabelling_keeps_the_state_of_server_and_clients(row: Row) -> None:
    simulation = Simulation(tools.trial(row, {"tau": 0.3, "start": 2}), tools.skewed())
    simulation.run_round(), simulation.run_round()
    before = tools.parts(simulation.snapshot())
    assert bool(before["client_states"] or before["private"]) == row.keeps_state
    simulation._relabel(2, simulation._trainer.participants(2))
    after = tools.parts(simulation.snapshot())
    assert not torch.equal(before.pop("labels"), after.pop("labels"))
    assert tools.same(before, after)


def test_climbs_reports_are_losses_of_the_labels_in_force() -> None:
    relabel = {"tau": 0.9, "start": 1, "late_clients": "all_at_T"}
    simulation = Simulation(trial("climb", {"primal_rounds": 1}, relabel=relabel), toy.skewed(clients=4))
    for relabelled in (False, True):
        simulation.run_round()
        changed = 0
        for client, rows in enumerate(simulation.data.rows):
            told = simulation._trainer.probe(client, simulation.completed_rounds, 1)["loss"]
            logits = simulation.model.net(simulation.data.pipeline.plain(simulation.data.images[rows])).logits.detach()
            found, old = simulation.state.labels[rows], simulation.data.original[rows]
            close(told, torch.nn.functional.cross_entropy(logits, found), 1e-12)
            changed += int((found != old).sum())
        assert (changed > 0) == relabelled
