"""Times a report of a large study: python benchmarks/report_speed.py --out DIR [--runs 1000].

Writes a study of made-up runs into DIR (once; a second call uses what is there), renders its report in a process of its
own and prints as JSON its seconds, those that a core was busy (which other programs disturb less), and its peak memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

ALGORITHMS = ("fedavg", "fedprox", "scaffold", "fedetf")
SEEDS = (1, 2, 3, 4, 5)
METRICS = (
    *("train/loss", "relabel/changed", "time/round_seconds"),
    *(f"{part}/{group}" for part in ("test", "val") for group in ("overall", "head", "medium", "tail")),
    *("test/majority", "test/minority", "val/majority", "val/minority"),
)
EXPERIMENT = "fedrela-bench/cifar100_lt"
START = 1_700_000_000_000
"""Milliseconds of every first round."""
PARAMS = {
    **{"data.source": "cifar100", "data.profile": "lt", "data.imbalance_factor": "100.0", "data.alpha": "0.1"},
    **{"federation.clients": "10", "federation.participation": "1.0", "training.model": "resnet18"},
    **{"training.local_epochs": "2", "training.batch_size": "32", "training.lr": "0.05", "training.momentum": "0.9"},
    **{f"training.option{number}": "auto" for number in range(20)},
}
TAGS = {
    **{"study": "synthetic", "dataset": "cifar100_lt", "profile": "lt", "selection": "test_slice"},
    **{"round_rule": "last5", "device": "cpu", "simulation_version": "1", "status": "completed"},
    **{"version.fedrela_bench": "0.1.0", "version.torch": "2.9", "version.numpy": "2.0", "version.mlflow": "3.17"},
}


def write_study(folder: Path, runs: int, rounds: int) -> Path:
    """A study folder whose MLflow database holds made-up trunks and cells; four algorithms, five seeds.

    Args:
        folder: made where it is missing.
        runs: trunks and cells together.
        rounds: points of each of the fifteen metrics of a run.
    """
    from mlflow.tracking import MlflowClient

    folder.mkdir(parents=True, exist_ok=True)
    database = folder / "mlflow.db"
    client = MlflowClient(tracking_uri=f"sqlite:///{database}")
    experiment = client.create_experiment(EXPERIMENT, artifact_location=str(folder / "artifacts"))
    with closing(sqlite3.connect(database)) as connection:
        for number, (tags, params) in enumerate(_listed(runs, rounds)):
            _insert(connection, int(experiment), f"{number:032x}", tags, params, rounds)
        connection.commit()
    record = {"study": "synthetic", "dataset": "cifar100_lt", "experiment": EXPERIMENT}
    record["tracking_uri"] = f"sqlite:///{database}"
    identity = {"identity": {"objectives": ["val/overall", "val/tail"]}}
    (folder / "study.json").write_text(json.dumps({**record, **identity}))
    return folder


def _listed(runs: int, rounds: int) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Tags and parameters: every algorithm's trunks, then configurations with all their seeds until `runs`."""
    trunks = [(name, seed) for name in ALGORITHMS for seed in SEEDS]
    for name, seed in trunks[:runs]:
        yield _run("trunk", name, seed, f"baseline/{name}", rounds)
    for number in range(max(0, runs - len(trunks))):
        config, seed = divmod(number, len(SEEDS))
        name = ALGORITHMS[config % len(ALGORITHMS)]
        tags, params = _run("cell", name, SEEDS[seed], f"config{config:04d}", rounds)
        relabel = {"relabel.tau": str(round(0.001 * (1 + config), 3)), "relabel.start": "0.8", "relabel.period": "0"}
        fork = {"fork_round": str(int(0.8 * rounds)), "trial": str(config)}
        yield {**tags, **fork}, {**params, **relabel}


def _run(kind: str, name: str, seed: int, config: str, rounds: int) -> tuple[dict[str, str], dict[str, str]]:
    own = {"kind": kind, "algorithm": name, "seed": str(seed), "config_key": config, "key": f"{config}/{seed}"}
    tags = {**TAGS, **own, "trunk_key": f"baseline/{name}/{seed}", "data_digest": f"digest{seed}"}
    return tags, {**PARAMS, "seed": str(seed), "federation.algorithm": name, "federation.rounds": str(rounds)}


def _insert(
    connection: sqlite3.Connection,
    experiment: int,
    run: str,
    tags: dict[str, str],
    params: dict[str, str],
    rounds: int,
) -> None:
    columns = "run_uuid, name, user_id, status, start_time, end_time, lifecycle_stage, artifact_uri, experiment_id"
    times = (START, START + 1000 * rounds)
    values = (run, run[-6:], "unknown", "FINISHED", *times, "active", f"artifacts/{run}", experiment)
    connection.execute(f"insert into runs ({columns}) values (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    for table, given in (("tags", {**tags, "mlflow.runName": run[-6:]}), ("params", params)):
        rows = [(name, value, run) for name, value in given.items()]
        connection.executemany(f"insert into {table} (key, value, run_uuid) values (?, ?, ?)", rows)
    curves = dict(zip(METRICS, _curves(int(run, 16), tags, rounds), strict=True))
    points = [(name, at, value) for name, curve in curves.items() for at, value in enumerate(curve, 1)]
    finals = {f"final/{name}": float(np.mean(curve[-5:])) for name, curve in curves.items() if "/" in name[:5]}
    last = {**{name: curve[-1] for name, curve in curves.items()}, **finals}
    points += [(name, rounds, value) for name, value in finals.items()]
    _insert_points(connection, "metrics", run, points)
    _insert_points(connection, "latest_metrics", run, [(name, rounds, value) for name, value in last.items()])


def _insert_points(connection: sqlite3.Connection, table: str, run: str, points: Sequence[tuple[Any, ...]]) -> None:
    rows = [(name, float(value), START + 1000 * at, run, at) for name, at, value in points]
    statement = f"insert into {table} (key, value, timestamp, run_uuid, step, is_nan) values (?, ?, ?, ?, ?, 0)"
    connection.executemany(statement, rows)


def _curves(number: int, tags: dict[str, str], rounds: int) -> list[list[float]]:
    """One rising curve with noise per metric; a cell gains a little over its trunk."""
    noise = np.random.default_rng(number).normal(0, 0.01, (len(METRICS), rounds))
    level = 0.4 + 0.02 * int(tags["seed"]) + 0.01 * ALGORITHMS.index(tags["algorithm"])
    level += 0.02 if tags["kind"] == "cell" else 0.0
    rise = level * (1 - np.exp(-np.arange(1, rounds + 1) / 10))
    return [list(map(float, rise + line)) for line in noise]


def measure(study: Path, out: Path, formats: str) -> dict[str, Any]:
    """Seconds, those of them that a core was busy, and peak memory (MiB) of `fedrela-bench report`, run on its own."""
    code = "import sys; from fedrela_bench.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "report", str(study), "--out", str(out), "--format", formats]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    times = {"seconds": round(seconds, 1), "core_seconds": round(busy, 1), "peak_mib": round(after.ru_maxrss / 1024)}
    return {**times, "files": sorted(path.name for path in out.iterdir())}


def main(words: Sequence[str]) -> int:
    """Make the study where it is missing, time its report, print JSON."""
    parser = argparse.ArgumentParser(prog="report_speed.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the study is or shall be")
    parser.add_argument("--runs", type=int, default=1000, metavar="N", help="runs of the study [1000]")
    parser.add_argument("--rounds", type=int, default=60, metavar="N", help="rounds of a run [60]")
    parser.add_argument("--format", default="md,csv,tex,html", metavar="LIST", help="formats [md,csv,tex,html]")
    given = parser.parse_args(words)
    if not (given.out / "study.json").is_file():
        write_study(given.out, given.runs, given.rounds)
    size = {"runs": given.runs, "rounds": given.rounds, "metrics": len(METRICS)}
    print(json.dumps({**size, **measure(given.out, given.out / "report", given.format)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
