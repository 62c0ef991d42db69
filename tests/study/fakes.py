"""A simulator that takes microseconds a round and is as exact about state as the real one."""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedrela_bench.config import TrialConfig
from fedrela_bench.errors import ConfigError, RunError, StoreError
from fedrela_bench.nested import digest
from fedrela_bench.schedules import build_schedule
from fedrela_bench.study.engine import Runtime
from fedrela_bench.study.request import TuneRequest
from fedrela_bench.study.space import Space, parse_space
from fedrela_bench.study.store import Store

SPACE = {
    "algorithm": ["fedavg", "fedprox"],
    "parameters": {
        "relabel.tau": {"uniform": [0.01, 0.2, 0.01]},
        "relabel.start": {"uniform": [0.5, 0.9, 0.1]},
        "relabel.period": {"choice": [0, 1, 2]},
    },
    "trials": 4,
    "seeds": 1,
}


@dataclass(frozen=True)
class FakeResult:
    round: int
    status: str
    metrics: dict[str, float]
    confusion: dict[str, np.ndarray]
    flow: np.ndarray | None
    seconds: float = 0.001
    participants: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class FakeDataset:
    digest: str
    stated: tuple[str, ...] = ()


@dataclass(frozen=True)
class FakeSnapshot:
    base: str
    round: int
    state: int
    status: str
    nbytes: int = 100


class FakeRun:
    """State is a number that every round mixes with what the configuration says about that round."""

    def __init__(self, config: TrialConfig, engine: FakeEngine) -> None:
        self.config, self.engine = config, engine
        self.completed_rounds, self.state, self.status = 0, config.seed * 7919 + 1, "running"
        self.communication = {"down": 10, "up": 10}

    def _base(self) -> str:
        return digest(self.config.base().model_dump(mode="json"))

    def __iter__(self) -> Iterator[FakeResult]:
        rounds, relabel = self.config.federation.rounds, self.config.relabel
        while self.status == "running":
            time.sleep(self.engine.delay)
            self._wait()
            index, fork = self.completed_rounds, self.config.relabel_round
            active = relabel.active(rounds) and index >= fork
            schedule = build_schedule(self.config)
            fresh = active and index in schedule.refreshes
            tau = schedule.budget(schedule.refresh_of(index)) if active else 0.0
            mix = round(tau * 1000) + index + 7 * (relabel.method != "fedrela") if fresh else index
            self.state = (self.state * 1103515245 + 12345 + mix * active + index) % 2**31
            self.completed_rounds += 1
            diverged = active and self.engine.diverges_at is not None and relabel.tau == self.engine.diverges_at
            if active and relabel.tau == self.engine.crashes_at:
                raise ZeroDivisionError("no luck")
            if active and relabel.tau == self.engine.dies_at:
                os.kill(os.getpid(), 9)
            once = self.engine.dies_once
            if active and once is not None and self.completed_rounds == rounds - 1 and not once.exists():
                once.touch()
                os.kill(os.getpid(), 9)
            if self.completed_rounds >= rounds:
                self.status = "completed"
            if diverged:
                self.status = "diverged"
            if self.engine.log is not None:
                with self.engine.log.open("a") as file:
                    file.write(f"{digest(self.config.model_dump(mode='json'))} {self.completed_rounds}\n")
            yield self._result(diverged, fresh)

    def _wait(self) -> None:
        gate = self.engine.gates.get(self.completed_rounds)
        while gate is not None and not gate.exists():
            time.sleep(0.05)

    def _result(self, diverged: bool, fresh: bool) -> FakeResult:
        flow = np.array([[5, 1], [0, 4]]) if fresh else None
        if diverged:
            return FakeResult(self.completed_rounds, "diverged", {"train/lr": 0.1}, {}, flow)
        hit = self.state % 90 + 5
        confusion = np.array([[hit, 100 - hit], [50, 50]])
        parts = {"overall": (hit + 50) / 200, "tail": hit / 100, "head": 0.5}
        metrics = {f"{part}/{name}": value for part in ("test", "val") for name, value in parts.items()}
        if not self.engine.measures_tail:
            metrics = {name: value for name, value in metrics.items() if not name.endswith("tail")}
        metrics["train/loss"] = 1.0 / self.completed_rounds
        return FakeResult(self.completed_rounds, "ok", metrics, {"test": confusion, "val": confusion}, flow)

    def snapshot(self) -> FakeSnapshot:
        return FakeSnapshot(self._base(), self.completed_rounds, self.state, self.status)

    def restore(self, snapshot: FakeSnapshot) -> None:
        if snapshot.base != self._base():
            raise RunError("snapshot of another run")
        self.completed_rounds, self.state, self.status = snapshot.round, snapshot.state, "running"


@dataclass(frozen=True)
class FakeEngine:
    delay: float = 0.0
    diverges_at: float | None = None
    crashes_at: float | None = None
    dies_at: float | None = None
    dies_once: Path | None = None
    """Made by the first process that comes to the last round but one of a relabelled run, which it does not survive."""
    measures_tail: bool = True
    bytes: int = 100
    """Of a snapshot, as forecast."""
    pass_bytes: int = 0
    """Of a kept first relabelling pass, as forecast."""
    model_size: int = 0
    """Of a scored model, as forecast."""
    unfit: tuple[str, ...] = ()
    worker_fault: Exception | None = None
    """Raised by every process but the driver's when it loads data."""
    driver: int = field(default_factory=os.getpid)
    log: Path | None = None
    """Gets a line for every round that is computed by any process."""
    bad_nodes: str | None = None
    """No run starts where this variable is set in the environment."""
    gates: Mapping[int, Path] = field(default_factory=dict)
    """After so many rounds, a run waits until this file is there."""
    gpu_memory: Mapping[str, int] = field(default_factory=dict)
    """As results record it."""
    modules_note: Path | None = None
    version: str = "fake"
    loads: list[str] = field(default_factory=list)

    def dataset(self, config: TrialConfig, data_dir: Path | None, cache_dir: Path | None) -> FakeDataset:
        self.loads.append(config.data.source)
        if self.bad_nodes is not None and self.bad_nodes in os.environ:
            raise OSError("no luck on this node")
        if self.worker_fault is not None and os.getpid() != self.driver:
            raise self.worker_fault
        return FakeDataset(f"data-{config.seed}")

    def check(self, config: TrialConfig, dataset: Any) -> None:
        if config.training.model in self.unfit:
            raise ConfigError(f"{config.training.model} does not fit")

    def measured(self, config: TrialConfig, dataset: Any) -> set[str]:
        return {"overall", "head", "medium", "tail"}

    def partition(self, config: TrialConfig, dataset: Any) -> dict[str, np.ndarray]:
        return {
            "names": np.array(["a", "b"]),
            "groups": np.array(["head", "tail"]),
            "client_counts": np.array([[6, 4]]),
        }

    def state_bytes(self, config: TrialConfig, dataset: Any) -> tuple[int, int]:
        return self.bytes, self.model_size

    def posterior_bytes(self, config: TrialConfig, dataset: Any) -> int:
        return self.pass_bytes

    def facts(self, config: TrialConfig, dataset: Any) -> dict[str, Any]:
        return {}

    def costs(self, config: TrialConfig, dataset: Any, rounds: int) -> dict[str, Any]:
        totals = {"total_down": 20 * rounds, "total_up": 20 * rounds, "relabel_down": 0}
        return {"communication": {"down": 10, "up": 10, "participations": 2 * rounds, **totals}}

    def simulation(self, config: TrialConfig, dataset: Any, device: str, kept: Path | None = None) -> FakeRun:
        return FakeRun(config, self)

    def save(self, path: Path, snapshot: FakeSnapshot) -> None:
        path.write_bytes(pickle.dumps(snapshot))
        path.with_name(path.name + ".digest").write_text("x")

    def save_model(self, path: Path, run: FakeRun) -> None:
        path.write_text(f"{run.completed_rounds} {run.state}")

    def load(self, path: Path) -> FakeSnapshot:
        try:
            snapshot: FakeSnapshot = pickle.loads(path.read_bytes())
        except Exception as error:
            raise StoreError(f"{path} is damaged") from error
        return snapshot

    def branch(self, snapshot: FakeSnapshot, config: TrialConfig) -> FakeSnapshot:
        return snapshot

    @contextmanager
    def process(self, threads: int, gpu_share: float) -> Iterator[None]:
        if self.modules_note is not None:
            self.modules_note.write_text("\n".join(sorted(sys.modules)))
        yield

    def peak_memory(self) -> Mapping[str, int]:
        return self.gpu_memory


def config(**changes: Any) -> TrialConfig:
    """A tiny configuration; changes by dotted names with __ for the dot."""
    dotted = {name.replace("__", "."): value for name, value in changes.items()}
    return TrialConfig().replace({"federation.rounds": 10, "evaluation.selection": "test_slice", **dotted})


def runtime(tmp_path: Path, periods: tuple[int, ...] | None = None, **engine: Any) -> Runtime:
    store, stop = Store(tmp_path / "store"), tmp_path / "stop"
    return Runtime(store, FakeEngine(**engine), rolling_seconds=1e9, stop_file=stop, periods=periods)


def request(out: Path, space: dict[str, Any] | None = None, engine: Any = None, **changes: Any) -> TuneRequest:
    parsed: Space = parse_space({**SPACE, **(space or {})})
    bases = {name: config(federation__algorithm=name) for name in parsed.algorithms}
    settings = {"progress": "quiet", "device": "cpu", "stages": ("trunks", "search"), **changes}
    return TuneRequest(bases, parsed, out, "digits_lt", engine=engine or FakeEngine(), **settings)
