"""The GPU check: what it calls equal, how it keeps to its time, and what it writes, on a CPU."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from fedrela_bench.algorithms import ALGORITHMS, check_algorithm
from fedrela_bench.bench.gpu import equality, federation, memory, repeat, runner, syncs
from fedrela_bench.bench.gpu.budget import Budget
from fedrela_bench.bench.gpu.federation import Case
from fedrela_bench.bench.gpu.steps import Settings
from fedrela_bench.bench.gpu.work import FORMATS, NAMES, Work
from fedrela_bench.errors import RunError
from fedrela_bench.simulation import local

ROOT = Path(__file__).resolve().parents[2]


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_check", ROOT / "benchmarks" / "gpu_check.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


main: Callable[[list[str]], int] = _script().main


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two algorithms, two rounds."""
    for module in (equality, repeat, syncs):
        monkeypatch.setattr(module, "cases", lambda tiny: [Case("fedavg", rounds=2), Case("scaffold", rounds=2)])


def _read(out: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((out / "gpu_check.json").read_text())
    return document


# the whole script ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("few")
def test_a_tiny_run_on_the_cpu_writes_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--device", "cpu", "--tiny", "--minutes", "5", "--out", str(tmp_path)]) == 0
    document = _read(tmp_path)
    assert {"schema", "command", "device", "tiny", "seconds", "machine", "finished", "steps"} == document.keys()
    assert document["finished"] and document["schema"] == runner.SCHEMA
    outcomes = {step["name"]: step["status"] for step in document["steps"]}
    works = [f"{name} {form}" for form in FORMATS for name in NAMES]
    checks = {"equality": "passed", "waits": "passed", "repeat": "passed", "memory": "not applicable"}
    assert outcomes == checks | dict.fromkeys(works, "done")
    for step in document["steps"]:
        assert {"name", "purpose", "status", "seconds", "allowed_seconds", "error", "results"} == step.keys()
        assert step["error"] is None and step["seconds"] >= 0
        if step["name"] in works:
            _check_times(step["results"])
    assert document["steps"][0]["results"]["cases"]["scaffold"]["relabelled"] > 0
    text = (tmp_path / "gpu_check.txt").read_text()
    assert text.strip() == capsys.readouterr().out.strip()
    assert all(name in text for name in outcomes) and max(map(len, text.splitlines())) <= 110


def _check_times(found: dict[str, Any]) -> None:
    assert not found["extrapolated"] and len(found["rounds"]) == 1
    assert found["extrapolated_seconds"] > found["training_seconds"] > 0
    assert found["images_per_second"] > 0 and found["evaluation_seconds"] > 0
    assert found["peak_allocated_mib"] is None
    assert found["clients"] == 4 and found["steps"] > 4
    profile = found["profile"]
    assert 0 < len(profile["top"]) <= 15 and profile["device_busy"] is None
    assert any("conv" in item["name"] for item in profile["top"])
    assert sum(item["share"] for item in profile["top"]) <= 1 + 1e-9
    if found["workload"] == "cifar100_lt":
        assert found["published_seconds"] is None  # Tiny sizes compare with nothing.
        assert found["algorithm"] == ("fedloge" if "fedloge" in ALGORITHMS else "fedavg")


def test_faults_of_the_options_are_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.touch()
    words = ["--device", "cpu", "--minutes", "0", "--out", str(file), "--only", "equalty"]
    assert main(words) == 2
    told = capsys.readouterr().err
    for fault in ("--minutes 0", "name a folder", "add --tiny", "did you mean equality?"):
        assert fault in told, told
    assert main(["--device", "tpu", "--out", str(tmp_path)]) == 2
    if not torch.cuda.is_available():
        assert main(["--out", str(tmp_path)]) == 2
        assert "device cuda cannot be used here" in capsys.readouterr().err


def test_workloads_are_the_published_sizes() -> None:
    config = Work("cifar100_lt", "tf32").config(tiny=False)
    assert (config.federation.clients, config.training.batch_size, config.training.model) == (10, 8, "resnet34")
    assert config.training.tf32 and config.training.amp == "none" and config.training.local_epochs == 5
    if "fedloge" in ALGORITHMS:
        assert (config.training.lr, config.training.momentum, config.training.weight_decay) == (0.03, 0.5, 0.0)
    config = Work("cifar10_lt", "bf16").config(tiny=False)
    assert (config.federation.clients, config.training.batch_size, config.training.model) == (40, 8, "resnet18")
    assert config.training.amp == "bf16"
    dataset = Work("cifar10_lt", "bf16").dataset(config, tiny=False)
    assert (len(dataset.labels), len(dataset.test_labels), dataset.augment) == (12_406, 10_000, "crop_flip")
    assert dataset.class_counts[[0, -1]].tolist() == [5_000, 50]


def test_quick_options_are_valid() -> None:
    for name, options in federation.QUICK.items():
        if name in ALGORITHMS:
            assert check_algorithm(name, options) == []


# equality ------------------------------------------------------------------------------------------------------------


def _outcome() -> equality.Outcome:
    return equality.outcome(Case("fedavg", rounds=2), "float64", "cpu")


def _with(outcome: equality.Outcome, **fields: Any) -> equality.Outcome:
    return dataclasses.replace(outcome, snapshot=dataclasses.replace(outcome.snapshot, **fields))


def test_a_device_that_computes_something_else_fails_the_check(
    few: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    true, ran = equality.outcome, list[str]()

    def on_a_broken_device(case: Case, dtype: str, device: str) -> equality.Outcome:
        found = true(case, dtype, device)
        ran.append(case.key)
        there = len(ran) % 2 == 0
        return _with(found, params=found.snapshot.params * (1 + 1e-8)) if there and case.key == "fedavg" else found

    monkeypatch.setattr(equality, "outcome", on_a_broken_device)
    assert main(["--device", "cpu", "--tiny", "--minutes", "5", "--only", "equality", "--out", str(tmp_path)]) == 1
    (step,) = _read(tmp_path)["steps"]
    cases = step["results"]["cases"]
    assert step["status"] == "failed"
    assert not cases["fedavg"]["equal"] and 5e-9 < cases["fedavg"]["parameters"] < 2e-8
    assert cases["scaffold"]["equal"] and cases["scaffold"]["parameters"] == 0
    told = capsys.readouterr().out
    assert "fedavg differs: parameters 1.0e-08" in told and "scaffold differs" not in told


def test_what_counts_as_equal() -> None:
    here = _outcome()
    state = here.snapshot
    moved = state.labels.clone()
    moved[0] = (moved[0] + 1) % 4
    assert equality.compare(here, _with(here, params=state.params + 1e-13))["equal"]
    assert not equality.compare(here, _with(here, params=state.params + 1e-6))["equal"]
    assert not equality.compare(here, _with(here, params=state.params * torch.nan))["equal"]
    assert not equality.compare(here, _with(here, buffers=state.buffers + 1e-6))["equal"]
    assert not equality.compare(here, _with(here, counters=[counter + 1 for counter in state.counters]))["equal"]
    found = equality.compare(here, _with(here, labels=moved))
    assert not found["equal"] and found["labels"] == 1
    assert equality.compare(here, _with(here, server_state={"x": torch.ones(2)}))["kept"] == float("inf")


def test_losses_may_round_and_accuracies_may_not() -> None:
    here = [{"test/overall": 0.5, "train/loss": 2.0}, {"test/overall": 0.5, "train/loss": 1.0}]
    rounded = [{"test/overall": 0.5, "train/loss": 2.0 + 1e-12}, {"test/overall": 0.5, "train/loss": 1.0}]
    assert equality.differing(here, rounded) == []
    assert equality.differing(here, [here[0], {"test/overall": 0.525, "train/loss": 1.1}]) == [
        "test/overall in round 2",
        "train/loss in round 2",
    ]
    assert equality.differing(here, [here[0], {"train/loss": 1.0}]) == ["test/overall in round 2"]
    assert equality.differing(here, here[:1]) == ["2 rounds against 1"]


def test_a_single_bit_counts_for_repetition() -> None:
    first = equality.outcome(Case("fedavg", rounds=1), "float32", "cpu")
    params = first.snapshot.params.clone()
    params[3] = torch.nextafter(params[3], torch.tensor(9.0))
    assert repeat.changed_bits(first, first)["same"]
    found = repeat.changed_bits(first, _with(first, params=params))
    assert not found["same"] and found["parameters"] == 1


# waits ---------------------------------------------------------------------------------------------------------------


def test_waits_for_a_gpu_are_found_with_their_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    mode = ["default"]
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda value: mode.__setitem__(0, value))
    assert syncs.device_waits(Case("fedavg"), "cpu") == []
    true = local.class_counts

    def reading(*arguments: Any) -> Any:
        if mode[0] == "error":
            raise RuntimeError(syncs.MARK)
        if mode[0] == "warn":
            warnings.warn(syncs.MARK, stacklevel=2)
        return true(*arguments)

    monkeypatch.setattr(local, "class_counts", reading)
    (wait,) = syncs.device_waits(Case("fedavg"), "cpu")
    assert wait.place.startswith("fedrela_bench/simulation/local.py:") and "class_counts(" in wait.line
    assert mode == ["default"]


def test_other_errors_are_no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda value: None)

    def failing() -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(syncs, "ready_block", lambda case, device: failing)
    with pytest.raises(RuntimeError, match="out of memory"):
        syncs.device_waits(Case("fedavg"), "cpu")


def test_a_detector_that_hears_nothing_fails_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncs, "detects", lambda device: False)
    results: dict[str, Any] = {}
    assert syncs.run(Settings("cuda", tiny=True), Budget(10), results) == "failed"
    assert "means nothing" in results["fault"]


# memory --------------------------------------------------------------------------------------------------------------


class FakeGpu:
    """1000 MiB of which a process may hold a share."""

    total_memory = 1000 << 20

    def __init__(self, monkeypatch: pytest.MonkeyPatch, obeys: bool = True) -> None:
        self.share, self.obeys = 1.0, obeys
        monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", self.cap)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: self)
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 100 << 20)
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
        monkeypatch.setattr(memory, "take", self.take)

    def cap(self, share: float, device: torch.device | None) -> None:
        self.share = share

    def take(self, size: int, device: torch.device) -> None:
        if self.obeys and size + (100 << 20) > self.share * self.total_memory:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")


@pytest.mark.parametrize("obeys", [True, False])
def test_the_cap_must_hold_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch, obeys: bool) -> None:
    gpu, results = FakeGpu(monkeypatch, obeys), dict[str, Any]()
    true = Case.simulation
    monkeypatch.setattr(Case, "simulation", lambda case, dtype, device: true(case, dtype, "cpu"))
    assert memory.run(Settings("cuda", tiny=True), Budget(60), results) == ("passed" if obeys else "failed")
    assert gpu.share == 1.0 and results["share"] == pytest.approx(0.356)
    if obeys:
        assert "356 MiB" in results["message"] and "--gpus-per-trial" in results["message"]


def test_the_cap_is_lifted_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, device = FakeGpu(monkeypatch), torch.device("cuda")
    with pytest.raises(RunError, match=r"25\.0%"), memory.memory_share(0.25, device):
        memory.take(200 << 20, device)
    assert gpu.share == 1.0
    with memory.memory_share(0.25, device):
        assert gpu.share == 0.25
        memory.take(100 << 20, device)
    assert gpu.share == 1.0


def test_the_code_of_the_page_runs() -> None:
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "gpu.md").read_text(), re.S):
        exec(compile(block, "gpu.md", "exec"), {})


def test_the_page_names_every_step_and_option() -> None:
    page = (ROOT / "docs" / "gpu.md").read_text()
    for step in ("equality", "waits", "repeat", "memory", *NAMES):
        assert f"`{step}`" in page, step
    for option in ("--device", "--minutes", "--only", "--tiny", "--out", "training.tf32", "training.amp"):
        assert option in page, option
