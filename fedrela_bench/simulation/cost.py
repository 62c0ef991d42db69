"""What a run sends, and what its messages guarantee: known from configuration and data, stored with its result."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from fedrela_bench.algorithms import Server
from fedrela_bench.config import TrialConfig
from fedrela_bench.data.load import settled
from fedrela_bench.nested import Json
from fedrela_bench.simulation.flat import FlatModel
from fedrela_bench.simulation.participation import participants_of
from fedrela_bench.simulation.privacy import account
from fedrela_bench.simulation.relabeling import RelabelSchedule
from fedrela_bench.simulation.setup import build_network


def costs(config: TrialConfig, dataset: Any, rounds: int) -> Json:
    """``communication`` of so many rounds in floats and, with privacy on, ``privacy``; plain values.

    Args:
        config: the trial.
        dataset: of that configuration.
        rounds: completed ones.
    """
    config = settled(config, dataset)
    sizes = np.array([len(rows) for rows in dataset.clients])
    algorithm, net = build_network(config, dataset)
    size = FlatModel(net, algorithm.scope).size(net.backbone.feature_dim, dataset.num_classes)
    nothing = torch.empty(0)
    server = Server(nothing, nothing, {}, sizes, dataset.num_classes, config.seed)
    once = algorithm.shared_once(server, math.prod(dataset.input_shape)) if rounds else 0
    facts: Json = {"communication": traffic(config, sizes, *algorithm.communication(size), rounds, once)}
    if config.privacy.clip is not None:
        facts["privacy"] = account(config, sizes, rounds)
    return facts


def traffic(config: TrialConfig, sizes: np.ndarray, down: int, up: int, rounds: int, once: int = 0) -> Json:
    """Floats sent: ``down`` and ``up`` per participant and round, ``total_down`` and ``total_up`` of the run.

    Clients relabel with the model that they get for training anyway. Only where clients relabel that do not train in
    the round (`late_clients` = all_at_T) the model is sent for that alone: ``relabel_down``, part of the total.

    Args:
        config: the trial.
        sizes: (K,) samples of each client.
        down: as the algorithm declares it.
        up: likewise.
        rounds: completed ones.
        once: what all clients together share in the first round, and each that ever takes part gets whole.
    """
    schedule, done = RelabelSchedule(config), dict[int, int]()
    everyone = [client for client, size in enumerate(sizes) if size > 0]
    trained = extra = 0
    met: set[int] = set()
    for index in range(rounds):
        participants = participants_of(config, sizes, index)
        due = schedule.due(index, participants, everyone, done)
        done |= dict.fromkeys(due, schedule.refresh_index(index))
        extra += len(set(due) - set(participants))
        trained += len(participants)
        met.update(participants)
    repeated = config.relabel.author_resume and 0 < config.relabel_round < rounds
    trained += len(participants_of(config, sizes, config.relabel_round - 1)) if repeated else 0
    totals = {
        "total_down": down * (trained + extra) + once * len(met),
        "total_up": up * trained + once,
        "relabel_down": down * extra,
    }
    return {"down": down, "up": up, "participations": trained, **({"once": once} if once else {}), **totals}
