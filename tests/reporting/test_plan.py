"""What a report needs: read from its spec, compared with the store, counted, and refused where it cannot work."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fedrela_bench.cli import main
from fedrela_bench.cli.wanted import Ask, Job, jobs_of
from fedrela_bench.cli.wantedplan import plan_json, plan_lines
from fedrela_bench.cli.wantedrun import check_jobs
from fedrela_bench.errors import BenchError, ConfigError, DataError
from fedrela_bench.reporting.spec import ReportSpec, load_spec
from fedrela_bench.study.cell import run_cell
from fedrela_bench.study.plan import Plan
from fedrela_bench.study.preflight import make_plan
from fedrela_bench.study.request import TuneRequest
from fedrela_bench.study.trunk import run_trunk
from fedrela_bench.study.wanted import ArmState, arm_states, points_of, request_of
from tests.study import fakes
from tests.study.fakes import FakeDataset, FakeEngine

Capture = pytest.CaptureFixture[str]
SPEC = """\
title: Digits over skew
settings:
  - {group: α = 0.3, dataset: digits_lt, config: {data.alpha: 0.3}, algorithms: {fedprox: {config: {training.lr: 0.2}}}}
  - {group: α = 10, dataset: digits_lt, config: {data.alpha: 10}, cpu: {training.lr: 0.3}}
metrics: [overall]
rows:
  - {name: FedAvg, runs: {kind: trunk, federation.algorithm: fedavg}}
  - {name: ours, runs: {kind: cell, federation.algorithm: fedavg, relabel.tau: 0.05, relabel.start: 0.5}}
runs:
  algorithms: {fedavg: , fedprox: {config: {federation.options.mu: 0.5}}}
  config: {federation.rounds: 10, federation.clients: 3, training.lr: 0.1}
  paper: {federation.rounds: 20}
  relabel: [{relabel.start: 0.5}, {relabel.tau: 0.1}]
  seeds: [1, 2]
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees studies of the folder it is started in."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    file = tmp_path / "skew.yaml"
    file.write_text(SPEC, encoding="utf-8")
    return file


def spec_of(file: Path) -> ReportSpec:
    return load_spec(file)[0]


def jobs(file: Path, out: Path, size: Any = "cpu", engine: Any = None, **ask: Any) -> list[Job]:
    machine = {"device": "cpu", "engine": engine or FakeEngine()}
    return jobs_of(spec_of(file), file.stem, Ask(out, size, machine=machine, **ask))


# from the spec to configurations -------------------------------------------------------------------------------------


def test_later_layers_of_a_spec_are_stronger(spec_file: Path, tmp_path: Path) -> None:
    skewed, even = jobs(spec_file, tmp_path / "out")
    assert skewed.request is not None and even.request is not None
    rates = {
        (job.name, name): base.training.lr
        for job in (skewed, even)
        if job.request is not None
        for name, base in job.request.bases.items()
    }
    assert rates == {
        ("α = 0.3", "fedavg"): 0.1,
        ("α = 0.3", "fedprox"): 0.2,
        ("α = 10", "fedavg"): 0.3,
        ("α = 10", "fedprox"): 0.3,
    }
    base = skewed.request.bases["fedprox"]
    assert (base.federation.options, base.data.alpha, base.federation.rounds) == ({"mu": 0.5}, 0.3, 10)
    paper = jobs(spec_file, tmp_path / "out", "paper")[1].request
    assert paper is not None
    assert (paper.bases["fedavg"].federation.rounds, paper.bases["fedavg"].training.lr) == (20, 0.1)


def test_the_command_line_is_strongest_but_leaves_the_settings_alone(spec_file: Path, tmp_path: Path) -> None:
    found = jobs(spec_file, tmp_path, overrides={"federation.rounds": 4, "training.batch_size": 8}, seeds=(5,))
    request = found[0].request
    assert request is not None
    assert (request.bases["fedavg"].federation.rounds, request.final_seeds) == (4, (5,))
    with pytest.raises(ConfigError) as caught:
        jobs(spec_file, tmp_path, overrides={"data.alpha": 1, "relabel.tau": 0.2, "federation.algorithm": "moon"})
    assert len(caught.value.faults) == 3
    assert caught.value.faults[0].startswith("--data.alpha 1: this report sets it")


def test_points_say_what_the_paper_has_where_a_spec_is_silent() -> None:
    points = points_of(["fedavg"], [{"relabel.tau": 0.1}, {}])
    assert points == (
        {"algorithm": "fedavg", "relabel.tau": 0.1, "relabel.start": 0.8, "relabel.period": 0},
        {"algorithm": "fedavg", "relabel.tau": 0.05, "relabel.start": 0.8, "relabel.period": 0},
    )


def test_nothing_is_selected_so_all_test_images_report(spec_file: Path, tmp_path: Path) -> None:
    request = jobs(spec_file, tmp_path)[0].request
    assert request is not None
    assert request.objectives == ("test/overall",)
    assert {base.evaluation.selection for base in request.selecting().values()} == {"none"}


def test_more_seeds_or_kinds_of_relabelling_are_the_same_study(tmp_path: Path) -> None:
    from fedrela_bench.study.identity import identity

    small, large = (plan(tmp_path, relabel, seeds) for relabel, seeds in (([{}], (1,)), ([{}, TAU], (1, 2, 3))))
    assert identity(small) == identity(large)
    other = plan(tmp_path, [{}], (1,), federation__rounds=20)
    assert identity(small) != identity(other)


# what is there -------------------------------------------------------------------------------------------------------

TAU = {"relabel.tau": 0.1}


def plan(out: Path, relabel: Sequence[dict[str, Any]], seeds: tuple[int, ...], **changes: Any) -> Plan:
    bases = {"fedavg": fakes.config(evaluation__selection="none", **changes)}
    request = request_of("test", "digits_lt", bases, relabel, seeds, out, engine=FakeEngine(), device="cpu")
    return make_plan(request, request.selecting(), "cpu")


def states(found: Plan) -> list[tuple[list[str], float]]:
    return [([run.state for run in arm.runs], round(arm.cost, 6)) for arm in arm_states(found)]


def test_missing_runs_cost_their_rounds_and_forks_only_what_is_behind_the_fork(tmp_path: Path) -> None:
    found = plan(tmp_path, [{}, TAU, {"relabel.start": 0.5}], (1, 2))
    missing = ["missing", "missing"]
    assert states(found) == [(missing, 2.0), (missing, 0.4), (missing, 0.4), (missing, 1.0)]


def test_what_the_store_has_costs_nothing(tmp_path: Path) -> None:
    found = plan(tmp_path, [{}, TAU], (1, 2))
    trunk = next(trunk for trunk in found.trunks((1,), (8,)))
    run_trunk(trunk.config, FakeDataset("data-1"), found.runtime, (8,))
    run_cell(found.config(found.request.points[0], 1), FakeDataset("data-1"), found.runtime)  # type: ignore[index]
    assert states(found) == [(["there", "missing"], 1.0), (["there", "missing"], 0.2), (["missing"] * 2, 0.4)]


def test_a_state_that_was_not_kept_is_paid_for_once(tmp_path: Path) -> None:
    found = plan(tmp_path, [{}, TAU, {"relabel.start": 0.5}], (1,))
    run_trunk(found.trunks((1,), ())[0].config, FakeDataset("data-1"), found.runtime)
    # Rounds 1 to 8 again, and the 2 behind; then the next fork at 8 has its state, the one at 5 does not.
    assert states(found) == [(["there"], 0.0), (["missing"], 1.0), (["missing"], 0.2), (["missing"], 1.0)]


def test_a_begun_run_costs_what_is_left(tmp_path: Path) -> None:
    found = plan(tmp_path, [{}], (1,))
    trunk = found.trunks((1,), ())[0]
    trunk.entry.begin({})
    for at in range(1, 5):
        trunk.entry.journal.append({"round": at})
    assert states(found) == [(["begun"], 0.6), (["missing"], 0.2)]


def test_periodic_runs_share_the_rounds_until_their_second_relabelling(tmp_path: Path) -> None:
    relabel = [{"relabel.start": 0.5, "relabel.period": period} for period in (0, 2, 4)]
    found = plan(tmp_path, relabel, (1,))
    assert found.runtime.periods == (0, 2, 4)
    assert states(found) == [(["missing"], 1.0), (["missing"], 0.5), (["missing"], 0.3), (["missing"], 0.1)]
    alone = plan(tmp_path, relabel[1:2], (1,))
    assert states(alone) == [(["missing"], 1.0), (["missing"], 0.5)]


def test_a_damaged_result_counts_as_missing_and_nothing_is_written(tmp_path: Path) -> None:
    found = plan(tmp_path, [], (1,))
    trunk = found.trunks((1,), ())[0]
    run_trunk(trunk.config, FakeDataset("data-1"), found.runtime)
    (trunk.entry.folder / "curves.npz").write_bytes(b"x")
    before = sorted(tmp_path.rglob("*"))
    assert states(found)[0][0] == ["begun"]
    assert sorted(tmp_path.rglob("*")) == before


def test_settings_share_one_store(spec_file: Path, tmp_path: Path) -> None:
    requests = [job.request for job in jobs(spec_file, tmp_path / "out")]
    folders = {request.out for request in requests if request is not None}
    assert folders == {tmp_path / "out" / "alpha_0_3", tmp_path / "out" / "alpha_10"}
    assert {request.store_dir for request in requests if request is not None} == {
        (tmp_path / "out" / "store").resolve()
    }


# what is said --------------------------------------------------------------------------------------------------------


class NoImages(FakeEngine):
    def dataset(self, *given: Any) -> FakeDataset:
        raise DataError("no images of digits; give --data-dir DIR")


def test_a_plan_in_words_and_as_values(spec_file: Path, tmp_path: Path) -> None:
    found = jobs(spec_file, tmp_path / "out")
    lines = list(plan_lines("Title", "skew", found, Ask(tmp_path / "out", "cpu"), "time: unknown"))
    assert max(map(len, lines[1:])) <= 80 + len(str(tmp_path))
    text = "\n".join(lines)
    assert "α = 0.3 (digits_lt)" in text
    assert "missing: 8 baselines and 16 runs forked from them, 13.60 full runs" in text
    assert "nothing was started (--plan)" in lines[-1]
    values = json.loads(json.dumps(plan_json("skew", found, Ask(tmp_path / "out", "cpu"), None)))
    assert (values["missing"], values["full_runs"], values["hours"]) == (24, 13.6, None)
    arms = values["settings"][0]["arms"]
    assert [(arm["kind"], arm["algorithm"], arm["missing"]) for arm in arms] == [
        (kind, algorithm, 2) for algorithm in ("fedavg", "fedprox") for kind in ("trunk", "cell", "cell")
    ]
    assert arms[1]["relabel"] == {"relabel.tau": 0.05, "relabel.start": 0.5, "relabel.period": 0}
    assert arms[1]["runs"][0]["state"] == "missing" and arms[1]["runs"][0]["cost"] == 0.5


def test_settings_without_images_are_counted_and_told(spec_file: Path, tmp_path: Path) -> None:
    found = jobs(spec_file, tmp_path / "out", engine=NoImages())
    assert [job.faults for job in found] == [["no images of digits; give --data-dir DIR"]] * 2
    assert [job.missing for job in found] == [12, 12]
    text = "\n".join(plan_lines("Title", "skew", found, Ask(tmp_path, "cpu"), ""))
    assert text.count("cannot be computed here: no images of digits") == 2
    assert "cannot be computed here: 2 of 2 settings" in text
    assert "report skew --published" in text
    with pytest.raises(BenchError, match=r"α = 0\.3: no images of digits"):
        check_jobs(found)


def test_a_setting_that_cannot_be_computed_names_the_way_out(spec_file: Path, tmp_path: Path) -> None:
    whole = jobs(spec_file, tmp_path / "out")
    check_jobs(whole)
    whole[1].faults.append("no images")
    with pytest.raises(DataError, match="α = 10: no images; --setting NAME chooses settings that can be computed"):
        check_jobs(whole)
    assert DataError.exit_code == 2


def test_arms_as_values_are_plain() -> None:
    arm = ArmState("fedavg tau=0.1", "fedavg", {"algorithm": "fedavg", "relabel.tau": 0.1}, ())
    assert arm.to_json() == {
        "name": "fedavg tau=0.1",
        "kind": "cell",
        "algorithm": "fedavg",
        "relabel": {"relabel.tau": 0.1},
        "runs": [],
        "missing": 0,
        "full_runs": 0,
    }


# the command line ----------------------------------------------------------------------------------------------------


def refused(capsys: Capture, *arguments: str) -> str:
    assert main([*arguments]) == 2
    return capsys.readouterr().err


def test_the_plan_of_real_images_starts_nothing(
    spec_file: Path, tmp_path: Path, capsys: Capture, monkeypatch: Any
) -> None:
    monkeypatch.setenv("FEDRELA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("fedrela_bench.cli.wantedplan.BUDGET", -1.0)
    out = tmp_path / "out"
    assert main(["report", str(spec_file), "--plan", "--out", str(out), "--json", "--setting", "alpha 10"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert [setting["name"] for setting in values["settings"]] == ["α = 10"]
    assert (values["missing"], values["full_runs"], values["hours"]) == (12, 6.8, None)
    assert not out.exists()


def test_hours_are_timed_here(spec_file: Path, tmp_path: Path, capsys: Capture, monkeypatch: Any) -> None:
    monkeypatch.setenv("FEDRELA_CACHE", str(tmp_path / "cache"))
    arguments = ["report", str(spec_file), "--plan", "--out", str(tmp_path / "out"), "--seeds", "1", "--profile", "cpu"]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "time: about" in text and "side by side (pieces were timed here)" in text
    assert "1 missing" not in text and "0 of 1 there" in text


def test_specs_are_listed(capsys: Capture) -> None:
    for arguments in (["report", "--list"], ["report", "list"]):
        assert main(arguments) == 0
        lines = capsys.readouterr().out.splitlines()
        names = [line.split()[0] for line in lines]
        assert names.index("paper_table2") < names.index("paper_table10")
        assert {"study", "algorithms", "own_dataset", "sensitivity"} <= set(names)
    assert main(["report", "--list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["paper_table2"].startswith("Table 2")


def test_published_numbers_need_no_study(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    assert main(["report", "paper_table3", "--published", "--out", str(out), "--format", "md"]) == 0
    assert "38.78" in (out / "paper_table3.md").read_text(encoding="utf-8")
    assert "published ones alone" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["paper_table2", "--plan", "--run"], "give one of them"),
        (["paper_table2", "--plan", "--study", "x"], "leave out --study and --spec"),
        (["paper_table2", "--published", "--plan"], "--published shows no runs"),
        (["paper_table2", "--study", "x", "--seeds", "3"], "--seeds is about runs to compute; add --plan or --run"),
        (["paper_table2", "--training.lr", "1"], "--training.lr is about runs to compute"),
        (["paper_table2"], "add --study DIR"),
        (["study", "--plan"], "study names no runs to compute"),
        (["paper_table2", "--plan", "--setting", "CIFAR-10"], "unknown setting --setting CIFAR-10"),
        (["paper_table2", "--plan", "--dataset", "digits_lt"], "every setting of this spec says its dataset"),
        (["own_dataset", "--plan"], "give --dataset NAME, such as folder:PATH"),
        (["paper_table2", "--plan", "--data.alpha", "1"], "--data.alpha 1: this report sets it"),
        (["paper_table2", "--show", "gains"], "unknown part --show gains; did you mean gain?"),
        (["--plan"], "was given no spec"),
        (["paper_table2", "--plan", "--profile", "tpu", "--seeds", "x"], "--profile tpu"),
    ],
)
def test_what_cannot_be_meant_is_told(arguments: list[str], words: str, capsys: Capture) -> None:
    assert words in refused(capsys, "report", *arguments)


def test_own_images_take_the_dataset_from_the_command_line(tmp_path: Path) -> None:
    spec = load_spec("own_dataset")[0]
    found = jobs_of(spec, "own_dataset", Ask(tmp_path, "cpu", dataset="digits_lt", machine={"engine": FakeEngine()}))
    assert [(job.dataset, job.out) for job in found] == [("digits_lt", tmp_path / "digits_lt")]
    assert found[0].cost == pytest.approx(14.4)


def test_a_request_for_named_runs_proposes_nothing(spec_file: Path, tmp_path: Path) -> None:
    request = jobs(spec_file, tmp_path)[0].request
    assert isinstance(request, TuneRequest)
    assert request.stages == ("confirm",) and request.faults() == []
    assert request.target == 4
