"""A study in a process of its own, and what it leaves behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys, cloudpickle
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.study import fakes
from fedrela_bench.study import runner, stages
from fedrela_bench.study.runner import tune
cloudpickle.register_pickle_by_value(fakes)
space = {{"algorithm": "fedavg"}}
runner.BOUND_SECONDS, stages.GRACE_SECONDS = {bound}, {grace}
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
engine = fakes.FakeEngine(delay=asked["delay"], log=Path(asked["log"]))
settings = {{"progress": "lines", "rolling_rounds": 1, **asked["settings"]}}
if "store" in settings:
    settings["store"] = Path(settings["store"])
result = tune(fakes.request(Path(asked["out"]), asked["space"], engine=engine, **settings))
print("DONE", result.status, len(result.trials), result.counts["cells_computed"], flush=True)
sys.exit(result.exit_code)
"""


def launch(out: Path, space: dict[str, Any], log: Path, delay: float = 0.05, **settings: Any) -> subprocess.Popen[str]:
    """A study in a process of its own, whose computed rounds are lines of `log`."""
    asked = {"out": str(out), "space": space, "log": str(log), "delay": delay, "settings": settings}
    command = [sys.executable, "-c", GENERAL.format(root=str(ROOT)), json.dumps(asked)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, **streams)


def start(out: Path, delay: float = 0.25, bound: float = 90.0, grace: float = 60.0) -> subprocess.Popen[str]:
    """A study in a process of its own session and process group, whose id is its pid."""
    code = SCRIPT.format(root=str(ROOT), out=str(out), delay=delay, bound=bound, grace=grace)
    command = [sys.executable, "-c", code]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, **streams)


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
