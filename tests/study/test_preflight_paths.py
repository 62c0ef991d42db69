"""Places, seeds and models that a study cannot use are refused together, before anything is written."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from fedrela_bench import TrialConfig
from fedrela_bench.config import TrainingConfig
from fedrela_bench.errors import ConfigError, DataError, StoreError
from fedrela_bench.neutral import Neutral
from fedrela_bench.study.identity import check_identity, register
from fedrela_bench.study.plan import Plan
from fedrela_bench.study.runner import preflight, tune
from fedrela_bench.study.simulator import SimulationEngine
from tests.study.fakes import FakeEngine, config, request


def files(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def refused(folder: Path, out: Path, **changes: Any) -> str:
    before = files(folder)
    for call in (preflight, tune):
        with pytest.raises(ConfigError) as caught:
            call(request(out, **changes))
    assert files(folder) == before
    return str(caught.value)


def test_a_right_request_is_checked_without_writing(tmp_path: Path) -> None:
    checked = preflight(request(tmp_path / "study", seeds=(1, 2)))
    assert checked.gpus == 0 and set(checked.plan.digests) == {
        ("fedavg", 1),
        ("fedavg", 2),
        ("fedprox", 1),
        ("fedprox", 2),
    }
    assert not files(tmp_path)


def test_files_in_the_way(tmp_path: Path) -> None:
    afile = tmp_path / "afile"
    afile.write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert f"--out {afile}: {afile} is a file; choose a folder" in refused(tmp_path, afile)
    assert f"{afile} is a file" in refused(tmp_path, afile / "deeper" / "study")
    assert f"--store {afile}: {afile} is a file" in refused(tmp_path, tmp_path / "study", store=afile)
    assert "is a broken link" in refused(tmp_path, tmp_path / "link")
    assert "not a usable path (File name too long)" in refused(tmp_path, tmp_path / ("x" * 300))
    database = f"sqlite:///{tmp_path / 'no' / 'mlflow.db'}"
    assert f"there is no folder {tmp_path / 'no'}" in refused(tmp_path, tmp_path / "study", tracking_uri=database)
    assert "is a folder; name a file" in refused(tmp_path, tmp_path / "study", tracking_uri=f"sqlite:///{tmp_path}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "cannot be written" in refused(tmp_path, tmp_path / "study")
    tmp_path.chmod(0o700)


def test_folders_of_runs_and_stores_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "rounds.jsonl").write_text("")
    (tmp_path / "store" / "trunks").mkdir(parents=True)
    assert "is the folder of a single run (rounds.jsonl); choose another --out" in refused(tmp_path, tmp_path / "run")
    assert "choose another --store" in refused(tmp_path, tmp_path / "study", store=tmp_path / "run")
    assert "is a store of runs (trunks/)" in refused(tmp_path, tmp_path / "store")
    preflight(request(tmp_path / "study", store=tmp_path / "store"))


def test_another_study_is_refused_with_the_first_ten_differences(tmp_path: Path) -> None:
    register(preflight(request(tmp_path)).plan)
    space = {"parameters": {"relabel.tau": {"choice": [0.1]}}}
    changes = {"training__lr": 0.5, "training__momentum": 0.1, "training__batch_size": 8, "federation__clients": 7}
    bases = {name: config(federation__algorithm=name, **changes) for name in ("fedavg", "fedprox")}
    with pytest.raises(ConfigError) as caught:
        preflight(replace(request(tmp_path, space), bases=bases))
    assert len(caught.value.faults) == 11
    assert "1 more settings differ; choose another --out" in caught.value.faults[-1]


class Later(TrainingConfig):
    warmup: Annotated[int, Neutral(0)] = 0


class LaterConfig(TrialConfig):
    """The configuration of a version that knows one field more."""

    training: Later = Field(default_factory=Later)


def later(plan: Plan, warmup: int) -> Plan:
    bases = {}
    for name, base in plan.bases.items():
        values = base.model_dump(mode="json")
        bases[name] = LaterConfig(**{**values, "training": {**values["training"], "warmup": warmup}})
    return replace(plan, bases=bases)


def test_a_study_goes_on_in_a_version_that_knows_more_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = preflight(request(tmp_path)).plan
    register(plan)
    monkeypatch.setattr("fedrela_bench.study.identity.TrialConfig", LaterConfig)
    check_identity(later(plan, 0))
    with pytest.raises(ConfigError, match=r"bases\.fedavg\.training\.warmup was 0 and is 2"):
        check_identity(later(plan, 2))
    record = json.loads((tmp_path / "study.json").read_text())
    for base in record["identity"]["bases"].values():
        base["training"]["warmup"] = 0
    (tmp_path / "study.json").write_text(json.dumps(record))
    check_identity(plan)
    record["identity"]["bases"] = None
    (tmp_path / "study.json").write_text(json.dumps(record))
    with pytest.raises(StoreError, match="is damaged"):
        check_identity(plan)


def test_seeds_and_counts_out_of_reach(tmp_path: Path) -> None:
    assert "seed 4294967296 must be a whole number from 0 to 4294967295" in refused(
        tmp_path, tmp_path / "study", seeds=(1, 2**32)
    )
    assert "seed -1 must" in refused(tmp_path, tmp_path / "study", seeds=(-1,))
    assert "seed 3 is listed twice" in refused(tmp_path, tmp_path / "study", seeds=(3, 3))
    assert "101 seeds are more than 100" in refused(tmp_path, tmp_path / "study", seeds=tuple(range(101)))
    assert "--seed -1 must" in refused(tmp_path, tmp_path / "study", search_seed=-1)
    assert "--cpus-per-trial 1" in refused(tmp_path, tmp_path / "study", cpus_per_trial=10**400)


def test_faults_of_machine_paths_and_models_come_together(tmp_path: Path) -> None:
    (tmp_path / "afile").write_text("")
    text = refused(
        tmp_path,
        tmp_path / "afile",
        space={"algorithm": "fedavg", "parameters": {"training.model": {"choice": ["lenet", "cnn", "digits"]}}},
        engine=FakeEngine(unfit=("lenet", "cnn")),
        gpus_per_trial=0.34,
        device="cuda",
        trials=0,
    )
    for part in ("is a file", "0.34 fits 2 times", "--trials 0", "lenet does not fit", "cnn does not fit"):
        assert part in text


def test_a_model_that_is_too_big_for_the_images_is_refused_at_once(tmp_path: Path) -> None:
    base = TrialConfig().replace({"training.model": "lenet", "federation.clients": 3})
    asked = replace(
        request(tmp_path / "study", {"algorithm": "fedavg"}, engine=SimulationEngine()), bases={"fedavg": base}
    )
    with pytest.raises(ConfigError, match="lenet"):
        tune(asked)
    assert not files(tmp_path)
    head = base.replace({"training.model": "auto", "relabel.posterior_head": "nope"})
    with pytest.raises(ConfigError, match="unknown head"):
        preflight(replace(asked, bases={"fedavg": head}))


class NoData(FakeEngine):
    def dataset(self, config: TrialConfig, data_dir: Path | None, cache_dir: Path | None) -> Any:
        raise DataError("no images")


def test_missing_data_are_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^no images$"):
        tune(request(tmp_path / "study", engine=NoData()))
    with pytest.raises(ConfigError, match="2 faults"):
        tune(request(tmp_path / "study", engine=NoData(), trials=0))
    assert not files(tmp_path)


def test_commands_can_be_pasted(tmp_path: Path) -> None:
    asked = request(tmp_path / "my study")
    assert asked.resume_command == f"fedrela-bench tune --dataset digits_lt --out '{tmp_path / 'my study'}'"
    assert replace(asked, command="as typed").resume_command == "as typed"


def test_an_empty_tracking_uri_is_not_taken_for_none(tmp_path: Path) -> None:
    assert "the tracking URI is empty" in refused(tmp_path, tmp_path / "study", tracking_uri="")
