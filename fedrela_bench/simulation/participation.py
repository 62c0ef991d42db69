"""Who takes part in a round: known from the configuration alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedrela_bench.config import TrialConfig
from fedrela_bench.rng import generator


def participants_of(config: TrialConfig, client_sizes: np.ndarray, index: int) -> list[int]:
    """Clients drawn for round `index` (from 0), uniformly without replacement; those without data are left out.

    Args:
        config: the trial.
        client_sizes: (K,) samples of each client.
        index: the round.
    """
    federation = config.federation
    count = max(1, int(federation.participation * federation.clients))
    if count >= federation.clients:
        chosen: Sequence[int] = range(federation.clients)
    else:
        rng = generator(config.seed, "participants", index)
        chosen = sorted(int(client) for client in rng.choice(federation.clients, count, replace=False))
    return [client for client in chosen if client_sizes[client] > 0]
