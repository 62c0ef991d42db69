"""MLflow as the user sees it: one parent, one child per run, every point once, every run ended, whatever happened."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrela_bench.config import TrialConfig
from fedrela_bench.errors import ConfigError, StoreError
from fedrela_bench.tracking import tracking_uri, ui_command
from fedrela_bench.tracking.backend import Backend
from fedrela_bench.tracking.journal import Journal
from fedrela_bench.tracking.manifest import Manifest, Record
from fedrela_bench.tracking.mlflow_sink import Sink, sync
from fedrela_bench.tracking.payload import LONG_PARAMS, MAX_PARAM, cut, params_of
from fedrela_bench.tracking.state import is_complete
from fedrela_bench.tracking.ui import check_uri, default_uri

ROUNDS, FORK = 6, 4


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database: making one takes seconds."""
    from mlflow.tracking import MlflowClient

    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path


class Study:
    """A study folder with one baseline and one cell."""

    def __init__(self, out: Path, database: Path) -> None:
        self.out = out
        shutil.copy(database, out / "mlflow.db")
        facts = {"study": "abc", "created": 1000.0, "experiment": "fedrela-bench/digits_lt", "dataset": "digits_lt"}
        identity = {"space": {"algorithms": ["fedavg"]}}
        tags = {"study": "abc", "objectives": "val/overall"}
        values = {**facts, "identity": identity, "parent_tags": tags, "versions": {"torch": "2"}}
        (out / "study.json").write_text(json.dumps(values))
        self.uri = default_uri(out)
        self.manifest = Manifest(out)
        self.records = [self._list("trunk", "t1"), self._list("cell", "c1")]

    def _list(self, kind: str, key: str) -> Record:
        config = TrialConfig().replace({"relabel.tau": 0.05}).model_dump(mode="json")
        fork = {"trunk_key": "t1", "trunk_folder": "store/t1", "fork_round": FORK, "trial": 0} if kind == "cell" else {}
        record = Record(kind, key, f"store/{key}", "fedavg", 1, config, f"{kind} {key}", 1000.0, **fork)
        self.manifest.add(record)
        return record

    def write(self, key: str, first: int, last: int) -> None:
        for number in range(first, last + 1):
            metrics = {"test/overall": number / 10, "val/overall": number / 10, "train/loss": 1.0, "train/lr": 0.1}
            result = {"status": "ok", "metrics": metrics, "seconds": 1.0, "participants": [0], "correct": {}}
            Journal(self.out / "store" / key / "rounds.jsonl").append(
                {"round": number, "timestamp": 2000.0 + number, "result": result}
            )

    def finish(self, key: str, status: str = "completed") -> None:
        folder = self.out / "store" / key
        flow = np.array([[5, 2], [0, 3]])
        np.savez(folder / "relabel_r0005.npz", flow=flow)
        np.savez(folder / "curves.npz", per_class_test=np.array([[0.1, 0.2]]), per_class_rounds=np.array([6]))
        final = {"test/overall": 0.5, "val/overall": 0.4, "test/extra": 1.0}
        sent = {"down": 7, "up": 5, "total_down": 70, "total_up": 50}
        result = {"final": final, "last_round": ROUNDS, "status": status, "owner": {"time": 3000.0}}
        result |= {"communication": sent}
        (folder / "result.json").write_text(json.dumps(result))

    def runs(self) -> dict[str, Any]:
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=self.uri)
        ids = [experiment.experiment_id for experiment in client.search_experiments()]
        found = client.search_runs(ids)
        assert len({run.data.tags["mlflow.runName"] for run in found}) == len(found)
        return {run.data.tags.get("key", "study"): run for run in found}

    def points(self, key: str, metric: str = "test/overall") -> list[tuple[int, float, int]]:
        from mlflow.tracking import MlflowClient

        history = MlflowClient(tracking_uri=self.uri).get_metric_history(self.runs()[key].info.run_id, metric)
        return [(point.step, point.value, point.timestamp) for point in history]

    def artifacts(self, key: str) -> Path:
        return Path(self.runs()[key].info.artifact_uri.removeprefix("file://"))


@pytest.fixture
def study(tmp_path: Path, empty_database: Path) -> Study:
    return Study(tmp_path, empty_database)


def test_a_finished_study(study: Study) -> None:
    study.write("t1", 1, ROUNDS)
    study.write("c1", FORK + 1, ROUNDS)
    for key in ("t1", "c1"):
        study.finish(key)
    sink = Sink(study.out, study.uri)
    assert sink.close("FINISHED")
    runs = study.runs()
    assert set(runs) == {"study", "t1", "c1"}
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert {runs[key].data.tags["mlflow.parentRunId"] for key in ("t1", "c1")} == {runs["study"].info.run_id}
    assert runs["c1"].data.tags["prefix_copied"] == "1..4"
    assert runs["c1"].data.metrics["final/test/overall"] == 0.5
    assert runs["c1"].data.tags["cost.total_up"] == "50"
    assert study.points("c1") == [(n, n / 10, int((2000 + n) * 1000)) for n in range(1, ROUNDS + 1)]
    assert all(len(run.data.metrics) <= 15 for run in runs.values())
    assert runs["c1"].data.params["relabel.tau"] == "0.05"
    assert runs["c1"].info.end_time == 3_000_000
    assert (study.artifacts("c1") / "relabel_flow.csv").read_text() == "round,from,to,count\n5,0,1,2\n"
    assert (study.artifacts("c1") / "per_class.csv").read_text() == "class,test\n0,0.1\n1,0.2\n"
    assert (study.artifacts("study") / "study.json").exists()
    assert is_complete(study.out, study.uri)


def test_resumes_add_neither_runs_nor_points(study: Study) -> None:
    study.write("t1", 1, 3)
    sink = Sink(study.out, study.uri)
    sink.drain()
    assert study.runs()["t1"].info.status == "RUNNING"
    assert Sink(study.out, study.uri).close("KILLED")
    assert {run.info.status for run in study.runs().values()} == {"KILLED"}
    study.write("t1", 4, ROUNDS)
    study.finish("t1")
    (study.out / "tracking.json").unlink()
    assert Sink(study.out, study.uri).close("KILLED")
    study.write("c1", FORK + 1, ROUNDS)
    study.finish("c1")
    for _ in range(2):
        assert Sink(study.out, study.uri).close("FINISHED")
    assert len(study.runs()) == 3
    assert [step for step, _, _ in study.points("c1")] == list(range(1, ROUNDS + 1))
    assert [step for step, _, _ in study.points("t1")] == list(range(1, ROUNDS + 1))
    assert {run.info.status for run in study.runs().values()} == {"FINISHED"}


def test_a_lost_cache_doubles_nothing(study: Study) -> None:
    study.write("t1", 1, 5)
    for _ in range(3):
        Sink(study.out, study.uri).drain()
        (study.out / "tracking.json").unlink()
    assert len(study.points("t1")) == 5
    assert len(study.runs()) == 3


def test_a_failed_run_says_why_and_a_later_result_wins(study: Study) -> None:
    study.write("t1", 1, 2)
    study.manifest.fail("trunk:t1", "no luck")
    Sink(study.out, study.uri).close("FAILED")
    assert study.runs()["t1"].info.status == "FAILED"
    assert study.runs()["t1"].data.tags["error"] == "no luck"
    study.write("t1", 3, ROUNDS)
    study.finish("t1")
    Sink(study.out, study.uri).close("FINISHED")
    assert study.runs()["t1"].info.status == "FINISHED"
    assert len(study.points("t1")) == ROUNDS


def test_a_lost_database_is_filled_again(study: Study, empty_database: Path) -> None:
    study.write("t1", 1, ROUNDS)
    study.finish("t1")
    Sink(study.out, study.uri).close("FINISHED")
    cache = json.loads((study.out / "tracking.json").read_text())
    other = f"sqlite:///{study.out / 'other.db'}"
    (study.out / "tracking.json").write_text(json.dumps({other: cache[study.uri]}))
    assert not is_complete(study.out, other)
    shutil.copy(empty_database, study.out / "other.db")
    assert sync(study.out, other)["runs"] == 2
    study.uri = other
    assert len(study.points("t1")) == ROUNDS


def test_an_unreachable_server_only_warns_and_sync_completes(study: Study) -> None:
    study.write("t1", 1, ROUNDS)
    study.finish("t1")
    warnings: list[str] = []
    sink = Sink(study.out, "http://127.0.0.1:9", warnings.append)
    sink.start()
    assert not sink.close("FINISHED")
    assert len(warnings) == 1 and "`fedrela-bench sync" in warnings[0]
    with pytest.raises(StoreError, match="cannot be written"):
        sync(study.out, "http://127.0.0.1:9")
    assert sync(study.out)["points"] > 0
    assert len(study.points("t1")) == ROUNDS


def test_sync_ends_runs_without_a_result(study: Study) -> None:
    study.write("t1", 1, 2)
    Sink(study.out, study.uri).drain()
    sync(study.out)
    assert study.runs()["t1"].info.status == "KILLED"


@pytest.mark.parametrize("uri", ["file:///a/b", "mlruns", "/a/b", "./x"])
def test_file_stores_are_refused_with_what_to_use(uri: str) -> None:
    with pytest.raises(ConfigError, match=r"use sqlite:///.*mlflow\.db or the http address") as caught:
        check_uri(uri)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("uri", "part"),
    [
        ("", "is empty; leave it out"),
        ("foo://x", "unknown scheme foo; valid: sqlite, postgresql"),
        ("foo+http://x", "unknown scheme foo+http"),
        ("sqlite://", "names no place"),
        ("sqlite:///", "names no place"),
        ("sqlite:mlflow.db", "write sqlite:/// and the path"),
        ("http://", "names no place"),
    ],
)
def test_uris_that_mlflow_cannot_use_say_why(uri: str, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_uri(uri)
    assert part in str(caught.value) and "file store" not in str(caught.value)


@pytest.mark.parametrize("uri", ["sqlite:///a.db", "http://h:5000", "postgresql+psycopg2://u@h/db", "databricks"])
def test_uris_that_mlflow_can_use(uri: str) -> None:
    assert check_uri(uri) == uri


def test_a_new_database_is_made_in_silence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Backend(f"sqlite:///{tmp_path / 'new.db'}", "fedrela-bench/x")
    assert capfd.readouterr() == ("", "")


def test_long_parameters_are_cut_and_defaults_left_out(study: Study) -> None:
    record = study.records[1]
    config = {"federation": {"options": {"note": "x" * 10_000}}, "relabel": record.config["relabel"]}
    params, whole = cut(params_of(Record("cell", "k", "f", "fedavg", 1, config, "n", 0.0)))
    assert len(params["federation.options.note"]) == MAX_PARAM
    assert whole == {"federation.options.note": "x" * 10_000}
    assert "relabel.std_ddof" not in params and params["relabel.start"] == "0.8"


def test_long_parameters_are_an_artifact_from_the_start(study: Study) -> None:
    config = {"federation": {"options": {"note": "x" * 10_000}}}
    study.manifest.add(Record("trunk", "long", "store/long", "fedavg", 2, config, "long", 0.0))
    Sink(study.out, study.uri).drain()
    whole = json.loads((study.artifacts("long") / LONG_PARAMS).read_text())
    assert whole == {"federation.options.note": "x" * 10_000}
    assert study.runs()["long"].data.params["federation.options.note"].endswith("(long_params.json has all)")


@pytest.mark.parametrize("call", range(1, 14))
def test_an_outage_at_any_call_loses_and_doubles_nothing(
    study: Study, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    """The server goes away at the n-th call, comes back later, and everything is there once."""
    from fedrela_bench.tracking import backend

    for key, first in (("t1", 1), ("c1", FORK + 1)):
        study.write(key, first, ROUNDS)
        study.finish(key)
    made: list[int] = []

    class Failing:
        """The client, whose n-th call and the four after it fail."""

        def __init__(self, client: Any) -> None:
            self.client = client

        def __getattr__(self, name: str) -> Any:
            def method(*args: Any, **kwargs: Any) -> Any:
                made.append(1)
                if call <= len(made) < call + 5:
                    raise ConnectionError("gone")
                return getattr(self.client, name)(*args, **kwargs)

            return method

    plain = backend.Backend.__init__

    def init(self: Any, uri: str, experiment: str) -> None:
        plain(self, uri, experiment)
        self.client = Failing(self.client)

    monkeypatch.setattr(backend.Backend, "__init__", init)
    sink = Sink(study.out, study.uri)
    while sink.down is not None or not made:
        sink._attempt(sink.drain)
    assert sink.close("FINISHED")
    assert len(study.runs()) == 3
    assert {run.info.status for run in study.runs().values()} == {"FINISHED"}
    for key in ("t1", "c1"):
        assert [step for step, _, _ in study.points(key)] == list(range(1, ROUNDS + 1))
        assert study.runs()[key].data.params["relabel.tau" if key == "c1" else "federation.algorithm"]


def test_a_run_whose_answer_was_lost_is_not_made_twice(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    study.write("t1", 1, ROUNDS)
    study.finish("t1")
    create, lost = Backend.create, list[int]()

    def losing(self: Backend, tags: Any, created: float) -> str:
        run_id = create(self, tags, created)
        if tags["kind"] == "trunk" and not lost:
            lost.append(1)
            raise ConnectionError("the answer was lost")
        return run_id

    monkeypatch.setattr(Backend, "create", losing)
    sink = Sink(study.out, study.uri)
    assert not sink._attempt(sink.drain)
    assert sink.close("FINISHED")
    assert len(study.runs()) == 3 and len(study.points("t1")) == ROUNDS


def test_a_branched_run_has_the_curve_of_all_it_shares(study: Study) -> None:
    study.write("t1", 1, ROUNDS)
    study.finish("t1")
    config = study.records[1].config
    shared = {"trunk_key": "t1", "trunk_folder": "store/t1", "fork_round": 2, "branch_folder": "store/c1"}
    study.manifest.add(Record("cell", "b1", "store/b1", "fedavg", 1, config, "b1", 0.0, branch_round=4, **shared))
    study.write("c1", 3, 3)
    study.write("b1", 5, ROUNDS)
    study.finish("b1")
    sink = Sink(study.out, study.uri)
    sink.drain()
    assert not study.points("b1"), "the shared rounds are not all there yet"
    study.write("c1", 4, 4)
    sink.drain()
    assert [step for step, _, _ in study.points("b1")] == list(range(1, ROUNDS + 1))
    assert study.runs()["b1"].info.status == "FINISHED"


def test_the_server_command_has_no_job_workers(study: Study) -> None:
    arguments, environment = ui_command(study.out, port=5050)
    assert arguments[1:] == [
        *("-m", "mlflow", "server", "--backend-store-uri", tracking_uri(study.out)),
        *("--host", "127.0.0.1", "--port", "5050", "--workers", "1"),
    ]
    assert environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"
    with pytest.raises(ConfigError, match="open that address"):
        ui_command(study.out, "http://server:5000")
    with pytest.raises(ConfigError, match="not a study folder"):
        tracking_uri(study.out / "elsewhere")


def test_a_database_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    from fedrela_bench.tracking.backend import Backend, prepare_database

    path = tmp_path / "study" / "mlflow.db"
    real = SqlAlchemyStore.__init__

    def killed(store: Any, uri: str, root: str) -> None:
        Path(uri.removeprefix("sqlite:///")).write_bytes(b"half a database")
        raise KeyboardInterrupt

    monkeypatch.setattr(SqlAlchemyStore, "__init__", killed)
    with pytest.raises(KeyboardInterrupt):
        prepare_database(f"sqlite:///{path}")
    assert list(path.parent.iterdir()) == []
    monkeypatch.setattr(SqlAlchemyStore, "__init__", real)
    backend = Backend(f"sqlite:///{path}", "experiment")
    run = backend.create({"study": "s", "kind": "study"}, 1.0)
    prepare_database(f"sqlite:///{path}")
    assert backend.find("s") == {"study": run}
    assert [item.name for item in path.parent.iterdir() if item.name.startswith(".")] == []
