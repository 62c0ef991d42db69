"""The store: forks equal full runs, kills lose at most an interval, damage is noticed and repaired."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedrela_bench.errors import StoreError
from fedrela_bench.study.cell import run_cell
from fedrela_bench.study.compute import POSTERIORS
from fedrela_bench.study.engine import Runtime, Stopped
from fedrela_bench.study.files import read_sealed, write_atomic, write_sealed
from fedrela_bench.study.lineage import curve_of
from fedrela_bench.study.store import Entry
from fedrela_bench.study.trunk import run_trunk
from tests.study.fakes import FakeDataset, FakeRun, config, runtime

DATA = FakeDataset("data-1")
CELL = config(relabel__tau=0.1, relabel__start=0.6, relabel__period=2)


def full_run(environment: Runtime) -> list[float]:
    return [result.metrics["val/tail"] for result in FakeRun(CELL, environment.engine)]  # type: ignore[arg-type]


def curve(environment: Runtime) -> list[float]:
    return [line["result"]["metrics"]["val/tail"] for line in curve_of(environment.lineage(CELL, "data-1"))]


def test_a_fork_from_the_store_is_the_full_run(tmp_path: Path) -> None:
    environment = runtime(tmp_path)
    run_trunk(CELL, DATA, environment, [5, 6])
    result = run_cell(CELL, DATA, environment)
    assert curve(environment) == full_run(environment)
    assert (result["status"], result["fork_round"], result["computed_rounds"], result["last_round"]) == (
        "completed",
        6,
        4,
        10,
    )
    assert result["final"]["val/tail"] == pytest.approx(np.mean(full_run(environment)[-5:]))


def test_a_cell_trains_its_prefix_when_there_is_no_trunk(tmp_path: Path) -> None:
    environment = runtime(tmp_path)
    run_cell(CELL, DATA, environment)
    assert curve(environment) == full_run(environment)
    assert environment.store.result("trunk", environment.trunk(CELL, "data-1").key) is None
    assert run_trunk(CELL, DATA, environment, [6])["last_round"] == 10


def test_finished_work_is_answered_without_computing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = runtime(tmp_path)
    first = run_cell(CELL, DATA, environment)
    monkeypatch.setattr(FakeRun, "__iter__", lambda self: pytest.fail("computed again"))
    assert run_cell(CELL, DATA, environment) == first


def test_a_cell_that_changes_nothing_is_its_trunk(tmp_path: Path) -> None:
    environment = runtime(tmp_path)
    off = config(relabel__tau=0.0)
    assert run_cell(off, DATA, environment)["key"] == run_trunk(off, DATA, environment)["key"]


@pytest.mark.parametrize("kill_at", [1, 3, 5, 6, 7, 9])
def test_a_kill_at_any_round_loses_nothing_that_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill_at: int
) -> None:
    class Killed(BaseException):
        pass

    environment = runtime(tmp_path)
    rounds = FakeRun.__iter__

    def dying(self: FakeRun):  # type: ignore[no-untyped-def]
        for result in rounds(self):
            if result.round > kill_at:
                raise Killed
            yield result

    monkeypatch.setattr(FakeRun, "__iter__", dying)
    with pytest.raises(Killed):
        run_cell(CELL, DATA, environment)
    before = curve(environment)
    monkeypatch.setattr(FakeRun, "__iter__", rounds)
    run_cell(CELL, DATA, environment)
    assert len(before) == kill_at
    assert curve(environment) == full_run(environment)
    lines = environment.entry(CELL, "data-1").journal.lines()
    assert [line["round"] for line in lines] == [7, 8, 9, 10]


def test_a_stop_request_keeps_the_state_of_the_last_round(tmp_path: Path) -> None:
    environment = runtime(tmp_path, delay=0.0)
    run_trunk(CELL, DATA, environment, [6])
    stop = tmp_path / "stop"
    rounds = FakeRun.__iter__

    def stopping(self: FakeRun):  # type: ignore[no-untyped-def]
        for result in rounds(self):
            if result.round == 8:
                stop.touch()
            yield result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeRun, "__iter__", stopping)
        with pytest.raises(Stopped):
            run_cell(CELL, DATA, environment)
    entry = environment.entry(CELL, "data-1")
    assert environment.engine.load(entry.rolling).round == 8
    stop.unlink()
    run_cell(CELL, DATA, environment)
    assert curve(environment) == full_run(environment)
    assert not entry.rolling.exists()


def test_damaged_results_are_computed_again_and_reported(tmp_path: Path) -> None:
    environment = runtime(tmp_path)
    first = run_cell(CELL, DATA, environment)
    path = environment.entry(CELL, "data-1").folder / "rounds.jsonl"
    path.write_text(path.read_text().replace("0.", "1.", 1))
    assert environment.store.result("cell", first["key"]) is None
    assert "is damaged" in environment.store.damaged[0]
    assert run_cell(CELL, DATA, environment)["final"] == first["final"]
    assert curve(environment) == full_run(environment)


def test_a_damaged_snapshot_is_replaced(tmp_path: Path) -> None:
    environment = runtime(tmp_path)
    run_trunk(CELL, DATA, environment, [5, 6])
    environment.trunk(CELL, "data-1").snapshot(6).write_bytes(b"nonsense")
    run_cell(CELL, DATA, environment)
    assert curve(environment) == full_run(environment)
    assert "is damaged" in environment.store.damaged[0]


def test_a_larger_grid_adds_snapshots_without_a_second_curve(tmp_path: Path) -> None:
    environment = runtime(tmp_path)
    first = run_trunk(CELL, DATA, environment, [6])
    assert run_trunk(CELL, DATA, environment, [4, 6, 8]) == first
    entry = environment.trunk(CELL, "data-1")
    assert entry.snapshot_rounds() == [4, 6, 8]
    assert len(entry.journal.lines()) == 10


def test_a_base_that_ended_before_the_fork_ends_the_cell_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = runtime(tmp_path)
    rounds = FakeRun.__iter__

    def ending(self: FakeRun):  # type: ignore[no-untyped-def]
        for result in rounds(self):
            if result.round == 4:
                self.status = "stopped"
            yield result

    monkeypatch.setattr(FakeRun, "__iter__", ending)
    trunk = run_trunk(CELL, DATA, environment, [6])
    cell = run_cell(CELL, DATA, environment)
    assert (cell["status"], cell["last_round"], cell["computed_rounds"]) == ("stopped", 4, 0)
    assert cell["final"] == trunk["final"]


def test_files_of_a_cell(tmp_path: Path) -> None:
    environment = runtime(tmp_path)
    run_cell(CELL, DATA, environment)
    folder = environment.entry(CELL, "data-1").folder
    with np.load(folder / "curves.npz") as arrays:
        assert arrays["per_class_rounds"].tolist() == [7, 8, 9, 10]
        assert arrays["per_class_test"].shape == (4, 2)
        assert arrays["confusion_val"].shape == (2, 2)
    assert sorted(path.name for path in folder.glob("relabel_*")) == ["relabel_r0007.npz", "relabel_r0009.npz"]
    assert json.loads((folder / "config.json").read_text())["relabel"]["tau"] == 0.1


def test_a_failed_write_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    write_sealed(path, {"a": 1})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreError, match="No space left on device; free space"):
        write_atomic(path, "new")
    assert read_sealed(path) == {"a": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.parametrize(("rounds", "most"), [(1, 1), (2, 2), (3, 3)])
def test_a_killed_cell_goes_on_inside_and_repeats_at_most_an_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int, most: int
) -> None:
    class Killed(BaseException):
        pass

    long = config(relabel__tau=0.1, relabel__start=2)
    environment = replace(runtime(tmp_path), rolling_rounds=rounds)
    run_trunk(long, DATA, environment, [2])
    iterate = FakeRun.__iter__

    def dying(self: FakeRun):  # type: ignore[no-untyped-def]
        for result in iterate(self):
            yield result
            if result.round == 8:
                raise Killed

    monkeypatch.setattr(FakeRun, "__iter__", dying)
    with pytest.raises(Killed):
        run_cell(long, DATA, environment)
    monkeypatch.setattr(FakeRun, "__iter__", iterate)
    environment.meter.rounds = 0
    run_cell(long, DATA, environment)
    assert 2 <= environment.meter.rounds <= 2 + most
    assert not environment.entry(long, "data-1").rolling.exists()


def test_a_damaged_trunk_is_computed_again_without_what_its_forks_shared(tmp_path: Path) -> None:
    environment = runtime(tmp_path)
    first = run_trunk(CELL, DATA, environment)
    folder = environment.trunk(CELL, "data-1").folder
    (folder / POSTERIORS).mkdir()
    (folder / POSTERIORS / "pass.npz").write_bytes(b"damaged, too")
    (folder / "curves.npz").write_bytes(b"damaged")
    again = run_trunk(CELL, DATA, environment)
    assert again["final"] == first["final"]
    assert len(environment.store.damaged) == 1 and not (folder / POSTERIORS).exists()


def test_what_another_process_mended_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = runtime(tmp_path)
    whole, answers = run_cell(CELL, DATA, environment), list[object]()
    store, mended = environment.store, Entry.result

    def damaged_once(entry: Entry) -> object:
        answers.append(entry)
        if len(answers) == 1:
            raise StoreError("seen before the other process was done")
        return mended(entry)

    monkeypatch.setattr(Entry, "result", damaged_once)
    assert store.result("cell", whole["key"]) == whole
    assert store.damaged == []
