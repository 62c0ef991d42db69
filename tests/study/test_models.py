"""Scored models of a study: kept by the first seed's runs, computed again where they are missing, freed in the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from fedrela_bench.study.cell import run_cell, run_model
from fedrela_bench.study.connection import leave, patiently
from fedrela_bench.study.forecast import disk_bytes
from fedrela_bench.study.preflight import preflight
from fedrela_bench.study.results import StudyResult
from fedrela_bench.study.runner import tune
from fedrela_bench.study.store import Store
from fedrela_bench.study.trunk import run_trunk
from tests.study import fakes
from tests.study.fakes import FakeDataset, FakeEngine, FakeRun, config, request, runtime
from tests.study.test_ledger import plan_for

DATA = FakeDataset("data-1")
CELL = config(relabel__tau=0.1, relabel__start=0.6, seed=1)
ONE = {"algorithm": "fedavg", "seeds": 2}


def last_state(asked: Any) -> str:
    run = FakeRun(asked, FakeEngine())
    list(run)
    return f"{run.completed_rounds} {run.state}"


def test_a_finished_run_of_the_chosen_seed_keeps_its_model(tmp_path: Path) -> None:
    environment = replace(runtime(tmp_path), model_seed=1)
    run_cell(CELL, DATA, environment)
    entry = environment.entry(CELL, "data-1")
    assert entry.model.read_text() == last_state(CELL)
    other = CELL.replace({"seed": 2})
    run_cell(other, FakeDataset("data-2"), environment)
    assert not environment.entry(other, "data-2").model.exists()


def test_a_diverged_run_keeps_none(tmp_path: Path) -> None:
    environment = replace(runtime(tmp_path, diverges_at=0.1), model_seed=1)
    assert run_cell(CELL, DATA, environment)["status"] == "diverged"
    assert not environment.entry(CELL, "data-1").model.exists()


def test_a_lost_model_is_computed_from_the_fork_and_the_record_stays(tmp_path: Path) -> None:
    environment = runtime(tmp_path, periods=(0, 2))
    run_trunk(CELL, DATA, environment, [6])
    periodic = CELL.replace({"relabel.period": 2})
    for asked in (CELL, periodic):
        result = run_cell(asked, DATA, environment)
        entry = environment.entry(asked, "data-1")
        lines = entry.journal.path.read_bytes()
        environment.meter.rounds = 0
        run_model(asked, DATA, environment)
        run_model(asked, DATA, environment)
        assert entry.model.read_text() == last_state(asked)
        assert environment.meter.rounds <= 4
        assert entry.journal.path.read_bytes() == lines
        assert Store(environment.store.root).result("cell", entry.key) == result and not environment.store.damaged
        assert not entry.rolling.exists()


def test_a_run_that_is_its_trunk_has_the_trunks_model(tmp_path: Path) -> None:
    environment = runtime(tmp_path)
    base = CELL.replace({"relabel.tau": 0.0})
    run_trunk(base, DATA, environment, [6])
    run_model(base, DATA, environment)
    assert environment.trunk(base, "data-1").model.read_text() == last_state(base.base())


def test_models_are_forecast_and_left_out_where_the_disk_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedrela_bench.study import preflight as module

    small, large = (plan_for(request(tmp_path, ONE, engine=FakeEngine(model_size=size))) for size in (0, 2**20))
    assert disk_bytes(large, 1) - disk_bytes(small, 1) == (4 + 1) * 2**20
    none = plan_for(request(tmp_path, ONE, engine=FakeEngine(model_size=2**20), log_models="none"))
    assert none.runtime.model_seed is None and disk_bytes(none, 1) == disk_bytes(small, 1)
    monkeypatch.setattr(module, "free_bytes", lambda place: 80 * 2**20)
    assert module.fitting(large).runtime.model_seed == 1
    monkeypatch.setattr(module, "free_bytes", lambda place: 52 * 2**20)
    assert module.fitting(large).runtime.model_seed is None


def test_an_unknown_choice_is_refused(tmp_path: Path) -> None:
    from fedrela_bench.errors import ConfigError

    with pytest.raises(ConfigError, match=r"--log-models besst.*did you mean best"):
        preflight(request(tmp_path / "study", log_models="besst"))


def kept(out: Path) -> set[str]:
    return {path.parent.name for path in out.glob("store/*/*/model.bin")}


def wanted(result: StudyResult) -> set[str]:
    rows = [*result.pareto, *(row for row in result.confirmed if row.number is not None)]
    return {row.outcome.keys[0] for row in rows}


@pytest.mark.cluster
@pytest.mark.slow
def test_a_study_keeps_the_models_of_its_front_alone(tmp_path: Path) -> None:
    import ray

    cloudpickle.register_pickle_by_value(fakes)
    settings = {"include_dashboard": False, "log_to_driver": False, "object_store_memory": 100 * 2**20}
    patiently(lambda: ray.init("local", num_cpus=2, **settings))
    try:
        bare = tune(request(tmp_path, ONE, sampler="random", trials=6, log_models="none"))
        assert not kept(tmp_path)
        first = tune(request(tmp_path, ONE, sampler="random", trials=6))
        assert first.counts["cells_computed"] == 0 and not first.warnings
        assert {row.label for row in first.pareto} == {row.label for row in bare.pareto}
        best = {row.outcome.keys[0] for row in first.pareto}
        assert kept(tmp_path) and kept(tmp_path) <= best
        rounds = first.counts["rounds_computed"]
        assert 0 < rounds <= 3 * 5, "no more than the tails of what is recommended"
        larger = tune(request(tmp_path, ONE, sampler="random", trials=9))
        assert kept(tmp_path) <= wanted(larger)
        again = tune(request(tmp_path, ONE, sampler="random", trials=9))
        assert again.counts["rounds_computed"] == 0
    finally:
        leave()
