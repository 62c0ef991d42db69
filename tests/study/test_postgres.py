"""Trials in a real PostgreSQL: the search is the one of the journal file, whatever is killed."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest

from fedrela_bench.errors import ConfigError, StoreError
from fedrela_bench.study.ledger import Ledger, open_study
from fedrela_bench.study.samplers import check_storage
from tests.study.drive import PATIENT, launch
from tests.study.fakes import request
from tests.study.postgres import Postgres, require_driver
from tests.study.test_ledger import plan_for, work

SPACE: dict[str, Any] = {
    "algorithm": "fedavg",
    "parameters": {"relabel.tau": {"choice": [0.05, 0.1]}, "relabel.start": {"choice": [0.5, 0.7]}},
}


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """One server for the module."""
    require_driver()
    server = Postgres()
    try:
        server.start()
        yield server
    finally:
        server.remove()


def studies(url: str) -> dict[str, optuna.Study]:
    return {name: optuna.load_study(study_name=name, storage=url) for name in optuna.get_all_study_names(url)}


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_study_that_is_killed_and_resumed_has_its_trials_once(tmp_path: Path, postgres: Postgres) -> None:
    out, log, gate = tmp_path / "study", tmp_path / "log", tmp_path / "gate"
    settings = {"sampler": "grid", "trials": 4, "max_concurrent": 2, "optuna_storage": postgres.url}
    killed = launch(out, SPACE, log, gate=gate, **settings)
    while not list(out.glob("store/cells/*/rounds.jsonl")):
        gate.touch()
        assert killed.poll() is None, killed.communicate()[0]
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    (name,) = studies(postgres.url)
    assert name.startswith("study-") and name.endswith("-study")
    for computed in ("DONE finished 4", "DONE finished 4 0"):
        process = launch(out, SPACE, log, **settings)
        output, _ = process.communicate(timeout=PATIENT)
        assert process.returncode == 0 and computed in output, output
    (study,) = studies(postgres.url).values()
    complete = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    assert {trial.state.name for trial in study.trials} <= {"COMPLETE", "FAIL"}
    assert len({(trial.params["relabel.tau"], trial.params["relabel.start"]) for trial in complete}) == 4
    assert not (out / "optuna.journal").exists()


def test_a_search_in_a_database_is_the_search_in_a_file(tmp_path: Path, postgres: Postgres) -> None:
    asked = {"algorithm": "fedavg"}, {"trials": 6, "sampler": "tpe"}
    told = []
    for place, where in (("file", tmp_path / "optuna.journal"), ("database", postgres.url)):
        plan = plan_for(request(tmp_path / place, asked[0], **asked[1]))
        ledger = Ledger(open_study(where, 2, "tpe", 7, "same"), plan)
        ledger.start()
        work(ledger)
        told.append([(trial.params, trial.values, trial.state.name) for trial in ledger.study.trials])
    assert told[0] == told[1] and len(told[0]) >= 6


def test_a_server_that_was_started_again_goes_on(tmp_path: Path, postgres: Postgres) -> None:
    plan = plan_for(request(tmp_path, {"algorithm": "fedavg"}, trials=4))
    ledger = Ledger(open_study(postgres.url, 2, "tpe", 1, "restarted"), plan)
    ledger.start()
    first = ledger.next_point()
    assert first is not None
    postgres.crash()
    with pytest.raises(ConfigError, match=r"cannot be used \(.*refused.*\); start the server"):
        check_storage(postgres.url)
    postgres.start()
    check_storage(postgres.url)
    ledger.release()
    assert len(work(ledger)) == 4
    again = Ledger(open_study(postgres.url, 2, "tpe", 1, "restarted"), plan)
    again.start()
    assert again.next_point() is None and len(again.finished) == 4


def test_a_database_that_is_not_there_or_not_ones_own_says_what_to_do(postgres: Postgres) -> None:
    from sqlalchemy import create_engine, text

    with pytest.raises(ConfigError, match=r'database "absent" does not exist.*make the database'):
        check_storage(postgres.url.replace("/postgres", "/absent"))
    with create_engine(postgres.url, isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(text("CREATE USER guest"))
        connection.execute(text("CREATE DATABASE theirs"))
    theirs = postgres.url.replace("study@", "guest:secret@").replace("/postgres", "/theirs")
    check_storage(theirs)
    with pytest.raises(StoreError, match=r"guest:\*\*\*@.* \(.*permission denied.*\); let its user make tables"):
        open_study(theirs, 2, "tpe", 1)
