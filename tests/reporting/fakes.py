"""A study without MLflow: FedAvg's trunks, two relabelled configurations, three seeds, ten rounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from fedrela_bench.reporting.source import StudyRuns, runs_frame

ROUNDS = 10
FORK = 8
BASE = {1: 0.60, 2: 0.62, 3: 0.64}
GAINS = {"a": {1: 0.02, 2: 0.04, 3: 0.03}, "b": {1: 0.01, 2: 0.00, 3: -0.01}}
TAILS = {"baseline/fedavg": 0.10, "a": 0.20, "b": 0.30}
TAUS = {"a": 0.05, "b": 0.1}


def row(kind: str, config: str, seed: int, **more: Any) -> dict[str, Any]:
    """One run as the MLflow reader flattens it."""
    values: dict[str, Any] = {
        "run_id": f"{kind}-{config}-{seed}",
        "run_status": "FINISHED",
        "kind": kind,
        "algorithm": "fedavg",
        "seed": str(seed),
        "config_key": config,
        "key": f"{config}/{seed}",
        "trunk_key": f"baseline/fedavg/{seed}",
        "fork_round": "" if kind == "trunk" else str(FORK),
        "status": "completed",
        "dataset": "digits_lt",
        "profile": "lt",
        "data_digest": f"d{seed}",
        "device": "cpu",
        "selection": "test_slice",
        "round_rule": "last5",
        "version.fedrela_bench": "0.1.0",
        "version.torch": "2.9",
        "simulation_version": "1",
        "param:federation.rounds": str(ROUNDS),
        "param:training.lr": "0.05",
    }
    if kind == "cell":
        values |= {"param:relabel.tau": str(TAUS[config]), "param:relabel.start": "0.8", "param:relabel.period": "0"}
    overall = BASE[seed] + (GAINS[config][seed] if kind == "cell" else 0.0)
    for part in ("test", "val"):
        values[f"metric:{part}/overall"] = overall + 0.004
        values[f"metric:final/{part}/overall"] = overall
        values[f"metric:final/{part}/tail"] = TAILS[config]
    return {**values, **more}


def rows(seeds: Iterable[int] = (1, 2, 3)) -> list[dict[str, Any]]:
    """All runs of the fake study."""
    listed = list(seeds)
    return [row("trunk", "baseline/fedavg", seed) for seed in listed] + [
        row("cell", config, seed) for config in GAINS for seed in listed
    ]


def two_algorithms() -> list[dict[str, Any]]:
    """FedAvg's study and FedETF's, whose every run is better by 20 points overall and in the tail."""
    better = []
    for item in rows():
        name, config = f"fedetf-{item['run_id']}", f"fedetf-{item['config_key']}"
        names = {"algorithm": "fedetf", "run_id": name, "config_key": config, "key": f"{config}/{item['seed']}"}
        values = {key: value + 0.2 for key, value in item.items() if str(key).startswith("metric:")}
        trunk = f"fedetf-baseline/fedavg/{item['seed']}"
        better.append({**item, **names, **values, "trunk_key": trunk})
    return rows() + better


def study(given: Iterable[Mapping[str, Any]] | None = None, dataset: str = "digits_lt") -> StudyRuns:
    """A study whose curves rise by half a point a round up to the final number."""
    frame = runs_frame([dict(item) for item in (rows() if given is None else given)])

    def history(run_id: str, metric: str) -> pd.Series[float]:
        column = f"metric:final/{metric}"
        if column not in frame:
            return pd.Series(dtype=float)
        final = float(frame.loc[frame["run_id"] == run_id, column].iloc[0])
        return pd.Series({at: final + 0.005 * (at - 8) for at in range(1, ROUNDS + 1)})

    return StudyRuns(dataset, frame, history)
