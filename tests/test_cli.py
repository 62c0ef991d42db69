"""The command line: what it takes, what it prints, what wrong input is told, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrela_bench.cli import main
from fedrela_bench.config import parse
from fedrela_bench.defaults import resolve
from fedrela_bench.yaml_io import load_yaml

PROGRAM = [sys.executable, "-c", "import sys; from fedrela_bench.cli import main; sys.exit(main())"]
SHORT = ["--federation.rounds", "3", "--federation.clients=4", "--relabel.start", "2", "--relabel.tau=0.3"]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or fills the user's cache."""
    folder = tmp_path_factory.getbasetemp() / "cli-cache"
    monkeypatch.setenv("FEDRELA_CACHE", str(folder))


def call(*arguments: str) -> int:
    return main([str(argument) for argument in arguments])


def refused(capsys: Capture, *arguments: str) -> str:
    """The message of a command line that must be refused with exit code 2."""
    assert call(*arguments) == 2
    out = capsys.readouterr()
    assert out.err.startswith("error: ")
    assert "Traceback" not in out.err
    return out.err


# starting ------------------------------------------------------------------------------------------------------------


def test_help_is_fast_and_loads_nothing_heavy() -> None:
    code = (
        "import sys; from fedrela_bench.cli import main; code = main(['--help']);"
        "heavy = {'torch', 'ray', 'mlflow', 'optuna', 'pandas', 'matplotlib', 'sklearn'} & set(sys.modules);"
        "sys.exit(code or sorted(heavy) or 0)"
    )
    seconds = []
    for _ in range(3):
        before = os.times()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        after = os.times()
        seconds.append(after.children_user + after.children_system - before.children_user - before.children_system)
        assert (done.returncode, done.stderr) == (0, "")
    assert "tune" in done.stdout
    assert min(seconds) < 1.0


@pytest.mark.parametrize("verb", ["run", "tune", "report", "ui", "sync", "gc", "doctor", "bench", "data show"])
def test_every_verb_has_help(verb: str, capsys: Capture) -> None:
    assert call(*verb.split(), "--help") == 0
    assert f"fedrela-bench {verb}" in capsys.readouterr().out


def test_groups_alone_show_their_help(capsys: Capture) -> None:
    for arguments in ([], ["data"], ["spaces"], ["algorithms"]):
        assert call(*arguments) == 0
        assert "Commands:" in capsys.readouterr().out


# wrong input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["runn"], ["unknown command runn; did you mean run?"]),
        (["data", "shw"], ["unknown command shw; did you mean show?"]),
        (["run", "--lr", "0.1"], ["unknown option --lr; did you mean --training.lr?"]),
        (["run", "--datset", "digits_lt"], ["unknown option --datset; did you mean --dataset?"]),
        (["run", "--training.lrr", "1"], ["unknown field --training.lrr; did you mean training.lr?"]),
        (["run", "--trainig.lr", "1"], ["unknown field --trainig.lr; did you mean training.lr?"]),
        (["run", "--training.lr"], ["--training.lr has no value; write --training.lr VALUE"]),
        (["run", "--training.lr="], ["--training.lr has no value"]),
        (["run", "--seed"], ["--seed has no value; write --seed N"]),
        (["run", "--seed", "1", "--seed", "2"], ["--seed is given twice; keep one"]),
        (["run", "--relabel.tau", "0.1", "--relabel.tau=0.2"], ["--relabel.tau is given twice; keep one"]),
        (["run", "--seed", "one"], ["--seed", "valid integer"]),
        (["run", "extra"], ["unexpected extra argument"]),
        (["run", "--config", ""], ["--config has no value; write --config FILE"]),
        (["run", "--data.minority", "[0,2"], ["error: --data.minority: ", "not valid YAML"]),
        (["run", "--algorithm", "fedavg", "--federation.algorithm", "fedprox"], ["contradict each other; keep one"]),
        (["run", "--dataset", "digits_lt", "--data.source", "cifar10"], ["contradict each other; keep one"]),
        (["data", "show", "--dataset", "digits_lt", "--data.profile", "step"], ["contradict each other; keep one"]),
        (["tune", "--dataset", "digits_lt", "--data.profile", "step"], ["contradict each other; keep one"]),
        (["tune", "--selection", "oracle", "--evaluation.selection", "test_slice"], ["contradict each other"]),
        (["tune", "--evaluation.selection", "none"], ["a study needs images that select; give test_slice or oracle"]),
        (["tune", "--relabel.tau", "0.1"], ["--relabel.tau 0.1: the space searches it", "leave it out"]),
        (["tune", "--seeds", "3000000000"], ["--seeds 3000000000: at most 1000 seeds"]),
        (["tune", "--gpus-per-trial", "nan"], ["--gpus-per-trial nan: is not a finite number"]),
        (["tune", "--dry-run", "--gpus-per-trial", "0.34"], ["fits 2 times on a GPU"]),
        (["tune", "--dry-run", "--gpus-per-trial", "-1"], ["--gpus-per-trial"]),
        (["tune", "--dry-run", "--cpus-per-trial", "4096"], ["asks for 4096 CPUs"]),
        (["tune", "--dry-run", "--dataset", "folder:/nope"], ["/nope, which is not a folder"]),
        (["tune", "--dry-run", "--out", "afile"], ["afile is a file"]),
        (["data", "show", "--out", "."], ["--out . is a folder; name a file, such as clients.png"]),
        (["data", "show", "--out", "x.xyz"], ["the map is a PNG; name it x.png"]),
        (["data", "show", "--out", "afile/x.png"], ["afile is a file, not a folder"]),
        (["report", ""], ["an empty name"]),
        (["ui", ""], ["name is empty"]),
        (["sync", ""], ["name is empty"]),
        (["run", "--dataset", "cifar11_lt"], ["unknown dataset 'cifar11_lt'; did you mean cifar10_lt?"]),
        (
            ["run", "--print-config", "--algorithm", "smote", "--training.shuffle", "false"],
            ["training.shuffle = False: smote draws the samples of an epoch; leave it out"],
        ),
        (["tune", "--stage", "base"], ["give --algorithm with one of balanced_softmax, climb,", "or --space with one"]),
        (["tune", "--stage", "base", "--algorithm", "moon,fedprox"], ["--stage base tunes an algorithm's own options"]),
        (["tune", "--stage", "base", "--algorithm", "mon"], ["unknown algorithm --algorithm mon; did you mean moon?"]),
        (
            ["tune", "--stage", "base", "--space", "fedprox", "--algorithm", "moon"],
            ["--space fedprox searches the options of fedprox, not those of --algorithm moon; give --space moon "],
        ),
        (
            ["tune", "--stage", "base", "--space", "fedprox", "--lr-drop", "0.1", "--confirm-top", "3"],
            ["--stage base has no relabelled runs and confirms nothing; leave out --lr-drop, --confirm-top"],
        ),
        (
            ["tune", "--stage", "base", "--space", "moon", "--relabel.tau", "0.1"],
            ["--relabel.tau: --stage base has no"],
        ),
        (["run", "--algorithm", "fedavgg"], ["'fedavgg'; did you mean fedavg?"]),
        (["run", "--training.model", "resnet17"], ["'resnet17'; did you mean resnet18?"]),
        (["run", "--relabel.tau", "5"], ["relabel.tau = 5", "did you mean 0.05?"]),
        (["run", "--data.imbalance_factor", "0.01"], ["did you mean 100?"]),
        (["run", "--data.minority", "[0, 2"], ["--data.minority", "not valid YAML"]),
        (["run", "--training.lr", "fast"], ["training.lr = 'fast'", "must be a number"]),
        (["run", "--federation.options.mu", "1"], ["federation.options.mu", "fedavg"]),
        (["run", "--config", "nowhere.yaml"], ["nowhere.yaml: no such file"]),
        (["run", "--profile", "huge"], ["--profile huge", "cpu (small, fast) or paper"]),
        (["run", "--device", "tpu"], ["--device tpu", "auto, cpu or cuda"]),
        (["run", "--dataset", "folder:nowhere"], ["nowhere"]),
        (["run", "--data-dir", "/nowhere", "--dataset", "cifar10_lt"], ["/nowhere does not exist"]),
        (["tune", "--seeds", "0"], ["--seeds 0", "at least one seed"]),
        (["tune", "--seeds", "1,1"], ["--seeds 1,1", "none twice"]),
        (["tune", "--seeds", "some"], ["--seeds some", "give a number of seeds"]),
        (["tune", "--selection", "val"], ["--selection val", "test_slice"]),
        (["tune", "--space", "no/where.yaml"], ["no/where.yaml"]),
        (["tune", "--algorithm", "fedavg,fedpro", "--dataset", "digits_lt"], ["'fedpro'; did you mean fedprox?"]),
        (["tune", "--federation.algorithm", "fedavg"], ["give --algorithm"]),
        (["tune", "--sampler", "best"], ["sampler"]),
        (["tune", "--trials", "0"], ["--trials"]),
        (["report", "no/study"], ["no/study: no such study folder"]),
        (["report", "paper_tabel14"], ["unknown report spec paper_tabel14; did you mean paper_table14?"]),
        (["report", "paper_table14"], ["add --study DIR"]),
        (["report", ".", "--format", "docx"], ["--format docx", "md, csv, tex"]),
        (["report", "."], ["not a study folder"]),
        (["ui", "."], ["not a study folder"]),
        (["algorithms", "show", "fedavgg"], ["unknown algorithm fedavgg; did you mean fedavg?"]),
        (["data", "get", "cifar"], ["unknown dataset 'cifar'"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_input(arguments: list[str], words: list[str], capsys: Capture, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "afile").touch()
    message = refused(capsys, *arguments)
    for word in words:
        assert word in message


def test_all_faults_of_a_line_are_told_at_once(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("training:\n  momentum: 2\n")
    message = refused(
        capsys,
        *("run", "--lr", "1", "--training.epochs", "2", "--seed", "1", "--seed", "2", "--relabel.tau", "7"),
        *("--config", str(file), "--dataset", "cifar11_lt"),
    )
    assert message.startswith("error: 6 faults:")
    assert f"{file}, line 2: training.momentum = 2" in message
    for number in range(1, 7):
        assert f"\n  {number}. " in message


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("tune --trials 0 --seeds x --gpus-per-trial 0.34 --sampler foo --training.lr -1 --device tpu", 6),
        ("tune --trials 0 --sampler foo --tracking-uri file:///x --cpus-per-trial 0 --seed -1", 5),
        ("tune --space no/where.yaml --sampler foo --seeds 0", 3),
        ("run --seed x --threads 0 --training.lr -1 --device tpu --out", 5),
        ("data show --seed x --profile huge --out x.xyz --data.alpha 0", 4),
    ],
)
def test_every_kind_of_fault_joins_the_others(line: str, count: int, capsys: Capture, tmp_path: Path) -> None:
    assert refused(capsys, *line.split()).startswith(f"error: {count} faults:")


def test_named_options_join_the_faults_of_the_configuration(capsys: Capture) -> None:
    message = refused(capsys, "run", "--device", "tpu", "--profile", "x", "--training.lr", "-1")
    assert message.startswith("error: 3 faults:")


def test_an_unexpected_error_has_no_traceback_unless_asked_for(capsys: Capture, monkeypatch: Any) -> None:
    def fail(*given: Any, **named: Any) -> None:
        raise ZeroDivisionError("seven")

    monkeypatch.setattr("fedrela_bench.cli.common.resolve", fail)
    assert call("run", "--print-config") == 1
    plain = capsys.readouterr().err
    assert plain == "error: unexpected ZeroDivisionError: seven; the same command with --debug shows where\n"
    assert call("run", "--debug", "--print-config") == 1
    assert "Traceback" in capsys.readouterr().err


# run -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--dataset", "cifar100_lt", "--algorithm", "fedetf", "--profile", "paper", "--seed", "7"],
        ["--dataset", "fashion_mnist_step", "--relabel.preset", "author", "--training.lr", "1e-3"],
        ["--algorithm", "fedprox", "--federation.options.mu", "1e-4", "--data.minority", "[1, 3]"],
    ],
)
def test_the_printed_config_feeds_back(arguments: list[str], capsys: Capture, tmp_path: Path) -> None:
    assert call("run", *arguments, "--print-config") == 0
    first = capsys.readouterr()
    file = tmp_path / "config.yaml"
    file.write_text(first.out)
    parse(load_yaml(file))
    assert call("run", "--config", str(file), "--print-config") == 0
    again = capsys.readouterr()
    assert again.out == first.out
    assert "profile: " in first.err
    assert "defaults not used" in again.err


def test_a_run_says_what_it_does(capsys: Capture) -> None:
    assert call("run", *SHORT) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("profile: ")
    assert any(re.match(r"data: digits_lt, \d+ training images of 8x8x1 in 10 classes", line) for line in lines)
    assert any(re.match(r"clients: 4, \d+ empty", line) for line in lines)
    rounds = [line for line in lines if line.startswith("round ")]
    assert len(rounds) == 3
    assert all(len(line) <= 80 for line in rounds)
    assert sum(bool(re.match(r"relabelled in round 3: \d+ of \d+ samples", line)) for line in lines) == 1
    assert lines[-3].split()[-4:] == ["overall", "head", "medium", "tail"]
    assert lines[-2].startswith("mean of last 3 evaluated ")
    assert lines[-1].startswith("last evaluated round")


def test_json_is_one_object_on_stdout(capsys: Capture) -> None:
    assert call("run", "--json", *SHORT) == 0
    captured = capsys.readouterr()
    values = json.loads(captured.out)
    assert values["status"] == "completed"
    assert set(values["metrics"]) == {"last", "last5"}
    assert parse(values["config"]).federation.rounds == 3
    assert "round 3/3" in captured.err


def test_the_run_folder(capsys: Capture, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert call("run", *SHORT, "--out", str(out)) == 0
    capsys.readouterr()
    assert {path.name for path in out.iterdir()} >= {
        "config.yaml",
        "rounds.jsonl",
        "result.json",
        "confusion.npz",
        "last.pt",
    }
    overrides = {"federation.rounds": 3, "federation.clients": 4, "relabel.start": 2, "relabel.tau": 0.3}
    assert parse(load_yaml(out / "config.yaml")) == resolve(overrides=overrides).config
    lines = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3]
    result = json.loads((out / "result.json").read_text())
    last = lines[-1]["metrics"]["test/overall"]
    assert result["metrics"]["last"]["test/overall"] == last
    mean = sum(line["metrics"]["test/overall"] for line in lines) / 3
    assert result["metrics"]["last5"]["test/overall"] == pytest.approx(mean)
    with np.load(out / "confusion.npz") as arrays:
        assert np.trace(arrays["test"]) / arrays["test"].sum() == pytest.approx(last)
        assert np.diag(arrays["test"]).tolist() == lines[-1]["correct"]["test"]
        assert arrays["flow"].sum() == sum(arrays["flow"].sum(axis=1))
    before = (out / "rounds.jsonl").read_bytes()
    assert call("run", *SHORT, "--out", str(out)) == 0
    assert "holds this run already" in capsys.readouterr().out
    assert (out / "rounds.jsonl").read_bytes() == before
    message = refused(capsys, "run", *SHORT, "--training.lr", "0.01", "--out", str(out))
    assert "holds another run (training.lr 0.05 there, 0.01 here); choose another --out" in message


def test_a_folder_with_results_but_no_config_is_refused(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "rounds.jsonl").write_text("")
    assert "holds rounds.jsonl but no config.yaml" in refused(capsys, "run", *SHORT, "--out", str(tmp_path))


def test_a_diverged_run_says_so_and_fails(capsys: Capture, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert call("run", *SHORT, "--training.lr", "1e30", "--out", str(out)) == 1
    captured = capsys.readouterr()
    assert "error: the run diverged" in captured.err
    assert "lower --training.lr" in captured.err
    assert json.loads((out / "result.json").read_text())["status"] == "diverged"


def _without_seconds(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    for line in lines:
        del line["seconds"], line["metrics"]["time/round_seconds"]
    return lines


def test_an_interrupted_run_goes_on_from_its_snapshot(capsys: Capture, tmp_path: Path, monkeypatch: Any) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert call("run", *SHORT, "--out", str(whole)) == 0
    from fedrela_bench.cli.run_folder import RunFolder

    append = RunFolder.append

    def interrupted(self: RunFolder, result: Any) -> None:
        if result.round == 3:
            raise KeyboardInterrupt
        append(self, result)

    monkeypatch.setattr(RunFolder, "append", interrupted)
    assert call("run", *SHORT, "--out", str(parts)) == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert len(_without_seconds(parts)) == 2
    monkeypatch.setattr(RunFolder, "append", append)
    assert call("run", *SHORT, "--out", str(parts)) == 0
    assert "continuing after round 2" in capsys.readouterr().out
    assert _without_seconds(parts) == _without_seconds(whole)
    with np.load(whole / "confusion.npz") as left, np.load(parts / "confusion.npz") as right:
        assert all((left[name] == right[name]).all() for name in left.files)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_leave_the_finished_rounds(number: signal.Signals, code: int, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ["run", "--federation.rounds", "5000", "--out", str(out)]
    process = subprocess.Popen(
        [*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("round    3/"):  # a round is shown when it is kept
            break
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in errors
    assert errors.endswith(f"error: {'interrupted' if code == 130 else 'terminated'}\n")
    assert f"continue: fedrela-bench run --federation.rounds 5000 --out {out}\n" in errors
    said = re.search(r"keeps rounds 1 to (\d+), the same command goes on from there", errors)
    assert said is not None
    from fedrela_bench.simulation.snapshot import load_snapshot

    assert load_snapshot(out / "last.pt").round == int(said[1])
    assert 3 <= int(said[1]) <= len((out / "rounds.jsonl").read_text().splitlines())
    assert not (out / "result.json").exists()


@pytest.mark.parametrize("out", [True, False])
def test_a_run_that_is_stopped_in_its_first_round_says_so(
    out: bool, capsys: Capture, tmp_path: Path, monkeypatch: Any
) -> None:
    def stopped(self: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedrela_bench.simulation.Simulation.run_round", stopped)
    assert call("run", *SHORT, *(["--out", str(tmp_path / "run")] if out else [])) == 130
    errors = capsys.readouterr().err
    words = (
        "stopped before the end of round 1; the same command starts anew" if out else "nothing is kept without --out"
    )
    assert words in errors


def test_a_large_state_is_copied_only_now_and_then(monkeypatch: Any) -> None:
    from types import SimpleNamespace

    from fedrela_bench.cli.keeper import SMALL_BYTES, Keeper

    clock = [0.0]
    monkeypatch.setattr("fedrela_bench.cli.keeper.time", SimpleNamespace(perf_counter=lambda: clock[0]))
    written: list[int] = []
    copied: list[int] = []
    simulation: Any = SimpleNamespace(completed_rounds=0)

    def snapshot() -> Any:
        clock[0] += 1.0  # a copy takes a second
        copied.append(simulation.completed_rounds)
        return SimpleNamespace(round=simulation.completed_rounds, nbytes=SMALL_BYTES + 1)

    simulation.snapshot = snapshot
    folder: Any = SimpleNamespace(save_snapshot=lambda state: written.append(state.round))
    keeper = Keeper(folder, simulation)
    for _ in range(10):
        clock[0] += 6.0
        simulation.completed_rounds += 1
        keeper.round_done()
    assert copied == [1, 5, 9]
    assert written == [9]
    assert keeper.stopped().endswith("keeps rounds 1 to 9, the same command goes on from there")
    keeper.end()
    assert written == [9, 10]


def test_a_full_disk_at_the_stop_is_told(capsys: Capture, tmp_path: Path, monkeypatch: Any) -> None:
    from fedrela_bench.cli.run_folder import RunFolder
    from fedrela_bench.errors import StoreError

    def full(self: Any, *given: Any) -> None:
        raise StoreError("disk full")

    def stopped(*given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RunFolder, "save_snapshot", full)
    monkeypatch.setattr(RunFolder, "finish", stopped)
    monkeypatch.setattr("fedrela_bench.cli.keeper.Keeper.end", lambda self: None)
    assert call("run", *SHORT, "--out", str(tmp_path / "run")) == 130
    errors = capsys.readouterr().err
    assert "stopped after round 3; its state could not be kept: disk full" in errors
    assert "goes on" not in errors


@pytest.fixture
def stopped_run(tmp_path: Path, capsys: Capture, monkeypatch: Any) -> Path:
    """The folder of a run that was stopped after two of three rounds."""
    from fedrela_bench.cli.run_folder import RunFolder

    append = RunFolder.append

    def interrupted(self: RunFolder, result: Any) -> None:
        if result.round == 3:
            raise KeyboardInterrupt
        append(self, result)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "append", interrupted)
        assert call("run", *SHORT, "--out", str(tmp_path / "run")) == 130
    capsys.readouterr()
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "rounds.jsonl",
            b"{",
            ["rounds.jsonl is damaged: line 1 is not round 1 of 2", "last.pt to start this run anew"],
        ),
        ("rounds.jsonl", b"\xff\xfe", ["rounds.jsonl is damaged: line 1"]),
        ("rounds.jsonl", b"", ["rounds.jsonl is damaged: line 1"]),
        ("last.pt", b"", ["this run cannot go on", "damaged", "last.pt to start this run anew"]),
        ("last.pt", b"x", ["this run cannot go on", "damaged"]),
        ("result.json", b"[]", ["result.json is damaged (it holds a list, not a mapping); delete it"]),
        ("result.json", b"{}", ["result.json is damaged (status, rounds, metrics, data_digest missing); delete it"]),
        ("result.json", b"\xff", ["result.json is damaged"]),
    ],
)
def test_a_damaged_run_folder_says_what_to_do_and_stays_as_it_is(
    name: str, content: bytes, words: list[str], stopped_run: Path, capsys: Capture
) -> None:
    (stopped_run / name).write_bytes(content)
    before = {path.name: path.read_bytes() for path in stopped_run.iterdir()}
    assert call("run", *SHORT, "--out", str(stopped_run)) == 1
    captured = capsys.readouterr()
    assert "unexpected" not in captured.err
    assert "holds this run already" not in captured.out
    assert all(word in captured.err for word in words)
    assert {path.name: path.read_bytes() for path in stopped_run.iterdir()} == before


def test_an_empty_config_as_a_full_disk_leaves_it(stopped_run: Path, capsys: Capture, tmp_path: Path) -> None:
    (stopped_run / "config.yaml").write_text("")
    message = refused(capsys, "run", *SHORT, "--out", str(stopped_run))
    assert "holds rounds.jsonl but an empty config.yaml" in message
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    (fresh / "config.yaml").write_text("")
    assert call("run", *SHORT, "--out", str(fresh)) == 0
    (stopped_run / "config.yaml").write_text("training: {lr: fast}")
    assert "holds no run to go on with" in refused(capsys, "run", *SHORT, "--out", str(stopped_run))


def test_a_run_that_cannot_relabel_says_so(capsys: Capture) -> None:
    assert call("run", "--relabel.tau", "0.05", "--relabel.start", "1.0", "--print-config") == 0
    assert "note: relabel.tau = 0.05 has no effect: T = 80 of 80 rounds" in capsys.readouterr().err


IDLE = "note: relabel.tau is 0: nothing is relabelled; give --relabel.tau 0.05"


@pytest.mark.parametrize(
    "given",
    [
        "--relabel.method random",
        "--relabel.schedule linear",
        "--relabel.start 3 --relabel.period 2",
        "--relabel.method random --relabel.options.match rate --relabel.tau 0",
    ],
)
def test_relabelling_that_is_asked_for_without_a_budget_is_told(given: str, capsys: Capture) -> None:
    assert call("run", *given.split(), "--print-config") == 0
    out, err = capsys.readouterr()
    assert IDLE in err and given.split()[0].removeprefix("--") in err and "note" not in out


@pytest.mark.parametrize(
    "given",
    [
        "",
        "--relabel.tau 0",
        "--relabel.tau 0.1 --relabel.method random",
        "--relabel.start 3 --relabel.post_relabel_lr_scale 0.1",
    ],
)
def test_a_plain_baseline_and_the_control_arm_are_no_mistake(given: str, capsys: Capture) -> None:
    assert call("run", *given.split(), "--print-config") == 0
    assert "nothing is relabelled" not in capsys.readouterr().err


# tune, report and the rest -------------------------------------------------------------------------------------------


@pytest.fixture
def space(tmp_path: Path) -> Path:
    file = tmp_path / "space.yaml"
    file.write_text(
        "algorithm: [fedavg, fedetf]\n"
        "parameters: {relabel.tau: {choice: [0.05, 0.1]}, relabel.start: {choice: [0.4, 0.8]}}\n"
        "trials: 4\nseeds: [1, 2]\nfixed: {federation.rounds: 20, training.batch_size: 8}\n"
    )
    return file


def test_a_dry_run_counts_and_starts_nothing(space: Path, capsys: Capture, tmp_path: Path) -> None:
    out = tmp_path / "study"
    arguments = ["tune", "--space", str(space), "--dry-run", "--out", str(out)]
    assert call(*arguments) == 0
    text = capsys.readouterr().out
    assert "baselines: 4 full runs (fedavg, fedetf x seeds 1, 2)" in text
    assert "trials: 4 configurations x 2 seeds = 8 forks" in text
    assert re.search(r"confirmation: [4-6] configurations x 2 seeds, about \d(\.\d)? full runs more", text)
    assert re.search(r"cost: [67]\.\d full runs, [67]\.\d if only baselines were shared, 12 if nothing was", text)
    assert re.search(r"disk: at most \d+ MiB", text)
    assert not out.exists()
    assert call(*arguments, "--json", "--seeds", "3", "--trials", "10", "--algorithm", "fedavg") == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["seeds"], plan["baselines"], plan["cells"], plan["full_runs"]) == ([1, 2, 3], 3, 12, 7.8)


class FakeResult:
    exit_code = 0
    status, trials = "finished", ()

    def to_json(self) -> dict[str, Any]:
        return {"status": "finished"}


def test_tune_hands_the_request_over(space: Path, capsys: Capture, tmp_path: Path, monkeypatch: Any) -> None:
    seen: list[Any] = []

    def fake(request: Any) -> FakeResult:
        seen.append(request)
        return FakeResult()

    monkeypatch.setattr("fedrela_bench.study.runner.tune", fake)
    arguments = ["tune", "--space", str(space), "--seeds", "3,5", "--json", "--trials", "7", "--sampler", "random"]
    arguments += ["--selection", "oracle", "--training.lr", "0.5", "--max-concurrent", "2", "--seed", "9"]
    assert call(*arguments, "--algorithm", "fedavg", "--algorithm", "fedprox") == 0
    assert json.loads(capsys.readouterr().out) == {"status": "finished"}
    request = seen[0]
    assert (request.seeds, request.trials, request.sampler, request.search_seed) == ((3, 5), 7, "random", 9)
    assert request.stages == ("trunks", "search", "confirm", "report")
    assert (request.out, request.dataset, request.max_concurrent) == (Path("studies/digits_lt"), "digits_lt", 2)
    assert list(request.bases) == ["fedavg", "fedprox"]
    base = request.bases["fedprox"]
    assert (base.training.lr, base.training.batch_size, base.federation.rounds) == (0.5, 8, 20)
    assert (base.evaluation.selection, base.federation.algorithm) == ("oracle", "fedprox")


def test_tune_takes_stages_and_their_budgets(space: Path, tmp_path: Path, monkeypatch: Any) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("fedrela_bench.study.runner.tune", lambda request: seen.append(request) or FakeResult())
    arguments = ["tune", "--space", str(space), "--json", "--stage", "trunks,search", "--stage", "confirm", "--race"]
    arguments += ["--confirm-seeds", "5", "--confirm-top", "2", "--lr-drop", "0.1", "--futility", "4,0.002"]
    arguments += ["--max-failures", "3", "--optuna-storage", f"sqlite:///{tmp_path}/o.db", "--snapshot-rounds", "2"]
    assert call(*arguments) == 0
    request = seen[0]
    assert (request.stages, request.race) == (("trunks", "search", "confirm"), True)
    assert (request.confirm_seeds, request.confirm_top, request.lr_drop) == ((1, 2, 3, 4, 5), 2, 0.1)
    assert (request.futility.rounds, request.futility.delta, request.max_failures) == (4, 0.002, 3)
    assert (request.optuna_storage, request.rolling_rounds) == (f"sqlite:///{tmp_path}/o.db", 2)


def test_one_of_a_thing_is_written_so(space: Path, capsys: Capture, tmp_path: Path) -> None:
    arguments = ["tune", "--space", str(space), "--dry-run", "--out", str(tmp_path / "study"), "--seeds", "1"]
    assert call(*arguments, "--algorithm", "fedavg", "--trials", "1", "--confirm-top", "1") == 0
    text = capsys.readouterr().out
    assert "baselines: 1 full run (fedavg x seed 1)" in text
    assert "trials: 1 configuration x 1 seed = 1 fork" in text
    assert re.search(r"confirmation: [12] configurations? x 1 seed, about ", text)
    assert not re.search(r"\b1 (full runs|seeds|configurations|forks)\b", text)


def test_base_algorithms_are_tuned_in_their_own_space_and_folder(tmp_path: Path, monkeypatch: Any) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("fedrela_bench.study.runner.tune", lambda request: seen.append(request) or FakeResult())
    assert call("tune", "--json", "--stage", "base", "--algorithm", "moon") == 0
    assert call("tune", "--json", "--stage", "base", "--space", "fedprox", "--dataset", "digits_step") == 0
    assert call("tune", "--json") == 0
    names = [(request.space.name, str(request.out), list(request.bases)) for request in seen]
    assert names[:2] == [
        ("moon", "studies/digits_lt_base_moon", ["moon"]),
        ("fedprox", "studies/digits_step_base_fedprox", ["fedprox"]),
    ]
    assert names[2][:2] == ("digits_lt", "studies/digits_lt")


def test_a_dry_run_counts_the_chosen_stages_only(space: Path, capsys: Capture, tmp_path: Path) -> None:
    arguments = ["tune", "--space", str(space), "--dry-run", "--json", "--out", str(tmp_path / "study")]
    plans = {}
    for stages in ("trunks", "trunks,search"):
        assert call(*arguments, "--stage", stages) == 0
        plans[stages] = json.loads(capsys.readouterr().out)
    assert plans["trunks"]["cells"] == plans["trunks"]["trials"] == 0
    assert plans["trunks"]["full_runs"] == plans["trunks"]["baselines"]
    assert plans["trunks,search"]["cells"] > 0
    assert plans["trunks,search"]["full_runs"] > plans["trunks"]["full_runs"]


def test_a_dry_run_of_base_algorithms_counts_full_runs(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "base.yaml"
    file.write_text(
        "algorithm: [fedavg, fedprox]\n"
        "parameters:\n"
        "  training.lr: {loguniform: [0.01, 0.5]}\n"
        "  federation.options.mu: {loguniform: [0.001, 1.0], when: {algorithm: fedprox}}\n"
        "trials: 5\n"
    )
    assert call("tune", "--space", str(file), "--stage", "base", "--dry-run", "--out", str(tmp_path / "s")) == 0
    text = capsys.readouterr().out
    assert "trials: 5 configurations of each algorithm x 1 seed = 10 full runs" in text
    assert "5 trials; seed 1" in text and "confirmation:" not in text
    assert "cost: 10.0 full runs" in text and "baselines:" not in text
    assert "federation.options.mu: 0.001 to 1 (continuous), when algorithm is fedprox" in text


def test_wrong_stages_and_rules_are_all_named(space: Path, capsys: Capture, tmp_path: Path) -> None:
    arguments = ["tune", "--space", str(space), "--out", str(tmp_path / "s"), "--stage", "serch", "--futility", "x"]
    assert call(*arguments, "--lr-drop", "2", "--max-failures", "-1", "--optuna-storage", "o.log") == 2
    text = capsys.readouterr().err
    for part in (
        "unknown stage --stage serch; did you mean search?",
        "--futility x: write rounds after the fork and the least gain as a fraction",
        "--lr-drop 2 must be above 0 and below 1",
        "--max-failures -1 must be at least 0",
        "--optuna-storage o.log: write sqlite:///FILE",
    ):
        assert part in text
    assert call("tune", "--space", str(space), "--out", str(tmp_path / "s"), "--stage", "base") == 2
    assert "--stage base tunes without relabelling, but the space searches relabel.tau" in capsys.readouterr().err


def test_tune_notes_what_the_search_replaces(space: Path, capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    assert call("run", "--print-config") == 0
    file.write_text(capsys.readouterr().out)
    never = tmp_path / "never.yaml"
    never.write_text(space.read_text().replace("[0.4, 0.8]", "[1.0]"))
    base = ["tune", "--dry-run", "--out", str(tmp_path / "study")]
    assert call(*base, "--space", str(never), "--config", str(file)) == 0
    text = capsys.readouterr().out
    assert f"note: {file}: relabel.tau, relabel.start not used, the space searches them" in text
    assert f"note: {file}: evaluation.selection = none becomes test_slice" in text
    assert "note: relabel.tau = 0.1 has no effect: T = 80 of 80 rounds" in text
    assert call(*base, "--space", str(space), "--relabel.preset", "author") == 0
    assert "note: " not in capsys.readouterr().out


def test_data_get_fails_where_nothing_can_be_kept(capsys: Capture, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FEDRELA_CACHE", str(tmp_path / "file" / "cache"))
    assert call("data", "get", "digits") == 1
    captured = capsys.readouterr()
    assert "note: decoded images could not be cached" in captured.err
    assert "not kept" in captured.err
    assert "ready" not in captured.out
    monkeypatch.setenv("FEDRELA_CACHE", str(tmp_path / "cache"))
    assert call("data", "get", "digits") == 0
    assert "digits: ready" in capsys.readouterr().out


def test_a_picture_that_cannot_be_written_is_wrong_input(capsys: Capture, tmp_path: Path, monkeypatch: Any) -> None:
    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedrela_bench.reporting.figures.draw_client_map", full)
    assert "No space left on device" in refused(capsys, "data", "show", "--out", str(tmp_path / "a.png"))


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "fedrela_bench", "--version"], capture_output=True, text=True)
    from fedrela_bench import __version__

    assert (done.returncode, done.stdout) == (0, f"fedrela-bench {__version__}\n")


def test_the_version(capsys: Capture) -> None:
    from fedrela_bench import __version__

    assert call("--version") == 0
    assert capsys.readouterr().out == f"fedrela-bench {__version__}\n"


def test_data_show_prints_and_draws(capsys: Capture, tmp_path: Path) -> None:
    picture = tmp_path / "map.png"
    assert call("data", "show", "--dataset", "digits_step", "--data.minority", "[1]", "--out", str(picture)) == 0
    text = capsys.readouterr().out
    assert re.search(r"minority +1 classes", text)
    assert "empty clients: " in text
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_algorithms_and_spaces(space: Path, capsys: Capture, tmp_path: Path) -> None:
    assert call("algorithms", "list") == 0
    assert "fedprox" in capsys.readouterr().out
    assert call("algorithms", "show", "fedprox") == 0
    assert "--federation.options.mu 0.01" in capsys.readouterr().out
    assert call("spaces", "check", str(space)) == 0
    assert call("spaces", "show", str(space)) == 0
    assert "8 points; 4 trials; seeds 1, 2" in capsys.readouterr().out
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("algorithm: fedavg\nparameters: {relabel.tua: {choice: [1]}}\n")
    assert "relabel.tau" in refused(capsys, "spaces", "check", str(space), str(wrong))


def test_every_shipped_space_is_right(capsys: Capture) -> None:
    assert call("spaces", "check") == 0
    assert call("spaces", "list") == 0
    assert "digits_lt" in capsys.readouterr().out


def test_the_ui_starts_without_job_workers(capsys: Capture, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "study.json").write_text(json.dumps({"tracking_uri": f"sqlite:///{tmp_path / 'mlflow.db'}"}))
    seen: dict[str, Any] = {}

    class Server:
        def __init__(self, arguments: list[str], env: dict[str, str]) -> None:
            seen.update(arguments=arguments, env=env)

        def wait(self) -> int:
            return 0

        def terminate(self) -> None:
            seen["ended"] = True

    monkeypatch.setattr("fedrela_bench.cli.report.subprocess.Popen", Server)
    assert call("ui", str(tmp_path), "--port", "5123") == 0
    assert "http://127.0.0.1:5123" in capsys.readouterr().out
    assert seen["env"]["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"
    assert "5123" in seen["arguments"]
    assert seen["ended"]


def test_workers_share_the_clients_of_a_run_and_change_no_number(tmp_path: Path) -> None:
    results = []
    for workers in ("1", "2"):
        out = tmp_path / workers
        assert call("run", "--dataset", "digits_lt", *SHORT, "--workers", workers, "--out", str(out)) == 0
        results.append(json.loads((out / "result.json").read_text()))
    assert results[0]["metrics"] == results[1]["metrics"]
    assert [result["workers"] for result in results] == [1, 2]


def test_workers_are_counted_from_one(capsys: Capture) -> None:
    assert "workers" in refused(capsys, "run", "--dataset", "digits_lt", "--workers", "0")
