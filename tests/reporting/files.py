"""Files of fake runs, and a study large enough for every figure."""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedrela_bench.reporting.source import StudyRuns, runs_frame
from fedrela_bench.yaml_io import dump_yaml
from tests.reporting.fakes import ROUNDS, row

Files = dict[str, dict[str, bytes]]


class FakeArtifacts:
    """Run id to the files it carries."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.reads: list[tuple[str, str]] = []

    def names(self, run_id: str) -> tuple[str, ...]:
        return tuple(sorted(self.files.get(run_id, {})))

    def read(self, run_id: str, name: str) -> bytes:
        self.reads.append((run_id, name))
        return self.files[run_id][name]


def npz(**arrays: Any) -> bytes:
    """An npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, **{name: np.asarray(value) for name, value in arrays.items()})
    return buffer.getvalue()


def with_files(runs: StudyRuns, files: Files) -> StudyRuns:
    """The same study with files."""
    return StudyRuns(runs.dataset, runs.frame, runs.load_history, runs.objectives, artifacts=FakeArtifacts(files))


def partition(names: Sequence[str], groups: Sequence[str], client_counts: Any) -> bytes:
    """What a trunk records of its classes."""
    return npz(names=np.array(names), groups=np.array(groups), client_counts=client_counts)


def per_class(rounds: Sequence[int], values: Any) -> bytes:
    """A run's ``curves.npz``; values (E, C) as fractions."""
    return npz(per_class_rounds=rounds, per_class_test=values)


def configuration(**data: Any) -> bytes:
    """A run's ``config.yaml``."""
    return dump_yaml({"data": data}).encode()


def accuracy(algorithm: str, seed: int, tau: float, start: float, period: int) -> dict[str, float]:
    """What a run of the large study reaches: overall falls and tail grows with tau, late starts are better."""
    base = {"fedavg": 0.50, "fedetf": 0.60}.get(algorithm, 0.40 + 0.01 * len(algorithm)) + 0.01 * seed
    return {
        "overall": base - 0.2 * tau + 0.02 * start - 0.001 * period,
        "head": base + 0.2 - 0.8 * tau,
        "medium": base,
        "tail": 0.1 + 0.01 * seed + 1.5 * tau * start,
    }


def grid_rows(
    algorithms: Sequence[str] = ("fedavg", "fedetf"),
    taus: Sequence[float] = (0.02, 0.05, 0.1),
    starts: Sequence[float] = (0.6, 0.8),
    periods: Sequence[int] = (0, 1),
    seeds: Sequence[int] = (1, 2),
    **more: Any,
) -> list[dict[str, Any]]:
    """Every combination of settings, and its trunks."""
    found = []
    for algorithm, seed in itertools.product(algorithms, seeds):
        names = {"algorithm": algorithm, "param:federation.clients": "20", "param:data.alpha": "0.3", **more}
        trunk = {"trunk_key": f"{algorithm}/{seed}", "key": f"{algorithm}/{seed}", "run_id": f"{algorithm}-{seed}"}
        numbers = _metrics(accuracy(algorithm, seed, 0.0, 0.0, 0))
        found.append(row("trunk", "baseline/fedavg", seed, config_key=f"base-{algorithm}", **names, **trunk, **numbers))
        for tau, start, period in itertools.product(taus, starts, periods):
            key = f"{algorithm}-{tau}-{start}-{period}"
            own = {"trunk_key": trunk["trunk_key"], "key": f"{key}/{seed}", "run_id": f"{key}-{seed}"}
            own |= {"param:relabel.tau": str(tau), "param:relabel.start": str(start), "config_key": key}
            own |= {"param:relabel.period": str(period), "fork_round": str(round(start * ROUNDS))}
            numbers = _metrics(accuracy(algorithm, seed, tau, start, period))
            numbers["metric:relabel/changed"] = 2000 * tau + 20 * seed
            found.append(row("cell", "a", seed, **{**names, **own, **numbers}))
    return found


def _metrics(values: Mapping[str, float]) -> dict[str, Any]:
    named = {f"metric:final/{part}/{name}": value for part in ("test", "val") for name, value in values.items()}
    return named | {f"metric:{part}/{name}": value for part in ("test", "val") for name, value in values.items()}


def grid(rows: Sequence[Mapping[str, Any]] | None = None, dataset: str = "digits_lt") -> StudyRuns:
    """The large study, each of whose runs has its final accuracies in every round."""
    frame = runs_frame([dict(item) for item in (grid_rows() if rows is None else rows)])

    def history(run_id: str, metric: str) -> pd.Series[float]:
        column = f"metric:final/{metric}"
        if column not in frame:
            return pd.Series(dtype=float)
        final = float(frame.loc[frame["run_id"] == run_id, column].iloc[0])
        return pd.Series({at: final * (0.5 + 0.05 * at) for at in range(1, ROUNDS + 1)})

    return StudyRuns(dataset, frame, history)
