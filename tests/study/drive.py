"""A study in a process of its own, and what it leaves behind."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import optuna

from fedrela_bench.study.connection import FLAGS, leave, patiently
from tests.study import fakes

ROOT = Path(__file__).resolve().parents[2]
PATIENT = 1800
"""Seconds; the machine may be busy with other things."""
SCRIPT = """
import sys, cloudpickle
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.study import fakes
from fedrela_bench.study import books, runner
from fedrela_bench.study.runner import tune
cloudpickle.register_pickle_by_value(fakes)
space = {{"algorithm": "fedavg"}}
runner.BOUND_SECONDS, books.GRACE_SECONDS = {bound}, {grace}
engine = fakes.FakeEngine(delay={delay})
result = tune(fakes.request(Path({out!r}), space, engine=engine, trials=6, progress="lines", rolling_seconds=0.5,
              max_concurrent=2))
print("DONE", result.status, len(result.trials), result.counts["cells_computed"], flush=True)
sys.exit(result.exit_code)
"""


GENERAL = """
import sys, json, cloudpickle
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.study import fakes
from fedrela_bench.study.runner import tune
cloudpickle.register_pickle_by_value(fakes)
asked = json.loads(sys.argv[1])
gates = {{5: Path(asked["gate"])}} if asked["gate"] else {{}}
engine = fakes.FakeEngine(delay=asked["delay"], log=Path(asked["log"]), gates=gates)
settings = {{"progress": "lines", "rolling_rounds": 1, **asked["settings"]}}
if "store" in settings:
    settings["store"] = Path(settings["store"])
result = tune(fakes.request(Path(asked["out"]), asked["space"], engine=engine, **settings))
print("DONE", result.status, len(result.trials), result.counts["cells_computed"], flush=True)
sys.exit(result.exit_code)
"""


def launch(
    out: Path, space: dict[str, Any], log: Path, delay: float = 0.05, gate: Path | None = None, **settings: Any
) -> subprocess.Popen[str]:
    """A study in a process of its own: computed rounds are lines of `log`, and after round 5 runs wait for `gate`."""
    asked = {"out": str(out), "space": space, "log": str(log), "delay": delay, "settings": settings}
    asked["gate"] = str(gate or "")
    return _run(GENERAL.format(root=str(ROOT)), json.dumps(asked))


def _run(*arguments: str) -> subprocess.Popen[str]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    command = [sys.executable, "-c", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, **streams)
    # A failed test leaves none behind.
    atexit.register(process.kill)
    return process


@contextlib.contextmanager
def local_ray() -> Iterator[None]:
    """A Ray of two cores in this process; `tune` uses a connection that is there."""
    import ray

    cloudpickle.register_pickle_by_value(fakes)
    os.environ.update(FLAGS)
    settings = {"include_dashboard": False, "log_to_driver": False, "object_store_memory": 100 * 2**20}
    patiently(lambda: ray.init("local", num_cpus=2, **settings))
    try:
        yield
    finally:
        leave()


def soon(seconds: float) -> float:
    """What takes so many seconds at most: on a machine with other work, a multiple of it."""
    return seconds if os.getloadavg()[0] < (os.cpu_count() or 1) else 20 * seconds


def start(out: Path, delay: float = 0.25, bound: float = 90.0, grace: float = 60.0) -> subprocess.Popen[str]:
    """A study in a process of its own session and process group, whose id is its pid."""
    code = SCRIPT.format(root=str(ROOT), out=str(out), delay=delay, bound=bound, grace=grace)
    return _run(code)


def wait_for(process: subprocess.Popen[str], text: str) -> list[str]:
    seen = []
    assert process.stdout is not None
    for line in process.stdout:
        seen.append(line.rstrip())
        if text in line:
            return seen
    raise AssertionError(f"{text!r} never came:\n" + "\n".join(seen))


def optuna_states(out: Path) -> list[str]:
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(out / "optuna.journal")))
    return [trial.state.name for trial in optuna.load_study(study_name="study", storage=storage).trials]


def mlflow_runs(out: Path) -> list[Any]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{out / 'mlflow.db'}")
    return list(client.search_runs([experiment.experiment_id for experiment in client.search_experiments()]))
