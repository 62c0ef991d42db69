"""Times a search against the same runs without shared rounds: python benchmarks/sharing.py --out DIR [--trials 60].

A search on scikit-learn's digits (FedAvg, T in 0.6 to 0.95, budgets and refresh periods; random sampler, one seed)
runs as a user would run it, on two cores, start of Ray, search and MLflow included. Then the baseline and every
configuration it computed run again, each from round 1, by two bare processes that do nothing else. Both must give the
same accuracy to the last bit; the seconds of both are printed as JSON. The second figure is what an engine without
any overhead of its own would take.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SPACE = """algorithm: fedavg
parameters:
  relabel.tau: {uniform: [0.01, 0.2, 0.01]}
  relabel.start: {uniform: [0.6, 0.95, 0.05]}
  relabel.period: {int: [0, 5]}
seeds: 1
"""
WORKERS = 2
COMPARED = "test/overall"


def search(folder: Path, trials: int, rounds: int) -> tuple[float, dict[str, Any]]:
    """Seconds and counts of the search by the command line.

    Raises:
        CalledProcessError: the search failed.
    """
    folder.mkdir(parents=True)
    (folder / "space.yaml").write_text(SPACE, encoding="utf-8")
    words = [*("tune", "--dataset", "digits_lt", "--space", str(folder / "space.yaml"), "--out", str(folder / "study"))]
    words += ["--trials", str(trials), "--sampler", "random", "--stage", "trunks,search", "--log-models", "none"]
    words += ["--max-concurrent", str(WORKERS), "--federation.rounds", str(rounds), "--json"]
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "fedrela_bench", *words], check=True, stdout=subprocess.PIPE)
    return time.perf_counter() - start, json.loads(done.stdout)


def alone(values: Mapping[str, Any]) -> float:
    """Accuracy of one run from its first round, by the study's round rule."""
    import torch

    from fedrela_bench import Simulation, load_dataset
    from fedrela_bench.config import parse
    from fedrela_bench.rounds import mean_of_last

    torch.set_num_threads(1)
    config = parse(dict(values))
    results = list(Simulation(config, load_dataset(config), device="cpu"))
    return mean_of_last([result.metrics for result in results])[COMPARED]


def runs_of(study: Path) -> dict[str, dict[str, Any]]:
    """Configurations of all runs of a study, by key."""
    lines = (study / "runs.jsonl").read_text(encoding="utf-8").splitlines()
    return {run["key"]: run["config"] for run in map(json.loads, lines)}


def reported(study: Path) -> dict[str, float]:
    """Accuracy that the study's table of trials reports, by key."""
    with (study / "trials.csv").open(encoding="utf-8", newline="") as file:
        return {row["keys"]: float(row[COMPARED]) for row in csv.DictReader(file) if row["status"] == "completed"}


def unshared(configs: Sequence[Mapping[str, Any]]) -> tuple[float, list[float]]:
    """Seconds and accuracies of runs that share nothing."""
    start = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        accuracies = pool.map(alone, configs, chunksize=1)
    return time.perf_counter() - start, accuracies


def main() -> None:
    """Print both, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder that does not exist yet")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=200)
    chosen = parser.parse_args()
    with_sharing, counts = search(chosen.out, chosen.trials, chosen.rounds)
    configs, values = runs_of(chosen.out / "study"), reported(chosen.out / "study")
    without, accuracies = unshared([configs[key] for key in values])
    for (key, value), accuracy in zip(values.items(), accuracies, strict=True):
        if value != accuracy:
            raise SystemExit(f"run {key} gives {accuracy} alone and {value} in the study")
    told = {
        "runs": len(values),
        "seconds": {"search": round(with_sharing, 1), "runs alone": round(without, 1)},
        "search/alone": round(with_sharing / without, 3),
        "counts": counts.get("counts", counts.get("cost")),
    }
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
