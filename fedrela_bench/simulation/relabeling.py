"""When each client relabels, and what its labels become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedrela_bench.config import TrialConfig
from fedrela_bench.relabel import RelabelOptions
from fedrela_bench.relabel.relabeler import uniforms_of
from fedrela_bench.relabelers import Client, Relabeler, build_relabeler
from fedrela_bench.rng import generator
from fedrela_bench.schedules import build_schedule


@dataclass(frozen=True)
class Decision:
    """What a re-allocation leaned on."""

    posterior: Tensor
    """(n_k, C)."""
    strength: Tensor
    """(n_k,) what speaks for the new label, for FedReLa its rho, eq. (8); 0 where the label stayed."""


class RelabelLog:
    """Collects, over clients, the samples whose label is not the dataset's."""

    def __init__(self) -> None:
        names = ("position", "client", "original", "label", "posterior", "rho")
        self._columns: dict[str, list[np.ndarray]] = {name: [] for name in names}

    def add(self, client: int, rows: Tensor, original: Tensor, new: Tensor, decision: Decision) -> None:
        """One client's outcome; `rows` are its positions in the training set."""
        changed = torch.nonzero(new != original).flatten()
        target = new[changed]
        values = {
            "position": rows[changed],
            "client": torch.full_like(changed, client),
            "original": original[changed],
            "label": target,
            "posterior": decision.posterior[changed, target],
            "rho": decision.strength[changed],
        }
        for name, value in values.items():
            self._columns[name].append(value.cpu().numpy())

    def columns(self) -> dict[str, np.ndarray]:
        """One row per sample: position, client, original, label, posterior and rho of the new label."""
        return {name: np.concatenate(parts) for name, parts in self._columns.items()}


class RelabelSchedule:
    """Which clients relabel in a round (FedReLa, Algorithm 1, and its periodic variant).

    Args:
        config: the trial; tau = 0 or T at or after the last round means never.

    Raises:
        ConfigError: unknown schedule, or wrong options of it.
    """

    def __init__(self, config: TrialConfig) -> None:
        self.options = config.relabel
        self.start = config.relabel_round
        self.on = config.relabel.tau > 0 and self.start < config.federation.rounds
        self.rule = build_schedule(config)

    def due(
        self, index: int, participants: Sequence[int], everyone: Sequence[int], done: Mapping[int, int]
    ) -> list[int]:
        """The clients that relabel before training in round `index` (from 0).

        Args:
            index: the round.
            participants: clients that train in it.
            everyone: all clients with data.
            done: last refresh of each client that has relabelled.
        """
        if not self.on or index < self.start:
            return []
        at_refresh = index in self.rule.refreshes
        if self.options.late_clients == "all_at_T":
            return list(everyone) if at_refresh else []
        if self.options.late_clients == "never":
            return list(participants) if at_refresh else []
        refresh = self.refresh_index(index)
        return [client for client in participants if done.get(client, -1) < refresh]

    def refresh_index(self, index: int) -> int:
        """Which refresh round `index` belongs to: 0 from T on, 1 from the second one on, ..."""
        return self.rule.refresh_of(index)


def relabeler_of(config: TrialConfig) -> Relabeler:
    """The relabeler of a trial.

    Raises:
        ConfigError: unknown name, or wrong options of it.
    """
    return build_relabeler(config.relabel.method, config.relabel.options)


def relabel_client(
    posterior: Tensor,
    config: TrialConfig,
    client: int,
    original: Tensor,
    labels: Tensor,
    refresh: int,
    relabeler: Relabeler,
    tau: float,
) -> tuple[Tensor, Decision]:
    """New labels (n_k,) of one client.

    Args:
        posterior: (n_k, C) at the global model.
        config: the trial.
        client: its id; keys the uniforms together with seed and refresh.
        original: (n_k,) labels of the dataset.
        labels: (n_k,) labels in force.
        refresh: 0 at T, then 1, 2, ...
        relabeler: from `relabeler_of`.
        tau: the budget of this refresh.
    """
    before = original if config.relabel.refresh_from == "original" else labels
    uniforms = uniforms_of(config.seed, client, refresh, tuple(posterior.shape))
    own = generator(config.seed, f"relabel {relabeler.name}", client, refresh).random((len(before), relabeler.draws))
    readings = RelabelOptions.of(config.relabel)
    result = relabeler.relabel_tensor(Client(posterior, before, tau, uniforms, own, readings))
    return result.labels, Decision(posterior, result.strength)
