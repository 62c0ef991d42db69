"""`fedrela-bench bench`: what it takes, prints, writes and refuses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fedrela_bench.bench import runner
from fedrela_bench.bench.check import read_baseline
from fedrela_bench.bench.results import SCHEMA
from fedrela_bench.cli import main
from tests.bench.makers import case, result

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def doctored(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Every measurement gives made-up ratios; the names asked for are noted."""
    asked: list[list[str]] = []

    def run(names: Sequence[str], short: bool, *_: object, **__: object) -> dict[str, Any]:
        asked.append(list(names))
        return result(*(case(f"{name} short" if short else name) for name in names))

    monkeypatch.setattr(runner, "run", run)
    return asked


def refused(capsys: Capture, *arguments: str) -> str:
    assert main(["bench", *arguments]) == 2
    return capsys.readouterr().err


def test_every_fault_is_told_at_once(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    wrong = ["fmm", "digits", "digits", "--rounds", "0", "--workers", "1,x", "--amp", "fp8", "--device", "tpu"]
    wrong += ["--tolerance", "10", "--out", str(tmp_path / "file"), "--check", str(tmp_path / "none.json")]
    wrong += ["--update-baseline", str(tmp_path), "--data-dir", str(tmp_path / "nothing")]
    said = refused(capsys, *wrong)
    assert said.startswith("error: 11 faults")
    for part in (
        "unknown workload fmm; did you mean fm?",
        "digits is named twice",
        "--rounds 0",
        "--workers 1,x",
        "--amp fp8",
        "--device tpu: unknown device; choose",
        "--tolerance 10: is a fraction above 0 and below 1; did you mean 0.1?",
        "file: is a file; name a folder",
        "none.json: No such file",
        "is a folder; name a file in it",
        "nothing: does not exist",
    ):
        assert part in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--workers", "0"], "numbers of processes from 1"),
        (["--workers", "2,2"], "numbers of processes from 1"),
        (["--workers", ""], "--workers has no value"),
        (["--amp", "bf16,bf16"], "give none, bf16, or none,bf16"),
        (["--device", "auto"], "say what is timed, cpu or cuda"),
        (["--rounds", "many"], "--rounds many"),
        (["--tolerance", "nan"], "not a finite number"),
        (["--roundz", "3"], "did you mean --rounds?"),
    ],
)
def test_wrong_values_are_refused(arguments: list[str], said: str, capsys: Capture) -> None:
    assert said in refused(capsys, "digits", *arguments)


def test_workloads_are_listed(capsys: Capture) -> None:
    assert main(["bench", "--list"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()][:4] == ["fm", "digits", "relabel", "memory"]


def test_results_are_printed_and_written_whole(doctored: list[list[str]], capsys: Capture, tmp_path: Path) -> None:
    assert main(["bench", "digits", "--short", "--out", str(tmp_path / "new" / "folder")]) == 0
    out = capsys.readouterr().out
    folder = tmp_path / "new" / "folder"
    assert sorted(item.name for item in folder.iterdir()) == ["bench.json", "bench.txt"]
    assert (folder / "bench.txt").read_text() == out
    document = json.loads((folder / "bench.json").read_text())
    assert document["schema"] == SCHEMA and document["cases"][0]["key"] == "digits short"
    assert doctored == [["digits"]]


def test_json_is_one_object_on_stdout(doctored: list[list[str]], capsys: Capture) -> None:
    assert main(["bench", "--json"]) == 0
    assert [entry["key"] for entry in json.loads(capsys.readouterr().out)["cases"]] == [
        "fm",
        "digits",
        "relabel",
        "memory",
    ]


def test_check_passes_what_is_as_fast_and_fails_what_is_not(
    doctored: list[list[str]], capsys: Capture, tmp_path: Path
) -> None:
    path = tmp_path / "baseline.json"
    assert main(["bench", "fm", "digits", "--update-baseline", str(path)]) == 0
    assert main(["bench", "fm", "digits", "--check", str(path)]) == 0
    assert doctored == [["fm", "digits"]] * 2
    values = read_baseline(path)
    values["cases"]["fm"]["ours/naive"] = 0.50
    path.write_text(json.dumps(values))
    capsys.readouterr()
    assert main(["bench", "fm", "digits", "--check", str(path)]) == 1
    out = capsys.readouterr()
    assert f"error: worse than {path} by more than 10 %:\n  fm: ours/naive was 0.500 and is 0.580 (+16 %)" in out.err
    assert "fm seems worse than the baseline; it is measured again" in out.err
    assert doctored[2:] == [["fm", "digits"], ["fm"], ["fm"]]
    assert "naive research loop" in out.out
    assert main(["bench", "fm", "--check", str(path), "--tolerance", "0.2"]) == 0


def test_a_baseline_cannot_be_checked_and_replaced_at_once(
    doctored: list[list[str]], capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "fm", "--update-baseline", "base.json"]) == 0
    before = Path("base.json").read_bytes()
    said = refused(capsys, "fm", "--check", "base.json", "--update-baseline", str(tmp_path / "base.json"))
    assert "--check and --update-baseline name the same base.json" in said and "check first, then update" in said
    assert Path("base.json").read_bytes() == before and doctored == [["fm"]]


def test_a_baseline_without_the_workload_is_refused_before_anything_runs(
    doctored: list[list[str]], capsys: Capture, tmp_path: Path
) -> None:
    path = tmp_path / "baseline.json"
    assert main(["bench", "fm", "--update-baseline", str(path)]) == 0
    said = refused(capsys, "fm", "--short", "--check", str(path))
    assert f"holds fm, but not fm short; measure them with --update-baseline {path}" in said
    assert doctored == [["fm"]]


def test_a_comparison_of_nothing_fails(doctored: list[list[str]], capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps({"schema": SCHEMA, "cases": {"fm": {"ours w2/naive": 0.3}}}))
    assert main(["bench", "fm", "--check", str(path)]) == 1
    assert "fm: the baseline holds none of the ratios measured" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_refused_before_anything_runs(
    doctored: list[list[str]], capsys: Capture, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    assert "file is a file; name a folder" in refused(capsys, "fm", "--out", str(tmp_path / "file" / "new"))
    assert not doctored


def test_the_short_form_is_ahead_of_the_naive_loop(capsys: Capture) -> None:
    """What CI runs: real times, ratios only, wide margins."""
    assert main(["bench", "fm", "--short", "--rounds", "1", "--workers", "1,2", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["cases"]
    ratios = {name: ratio["median"] for name, ratio in entry["ratios"].items()}
    assert ratios["ours/naive"] < 0.8
    assert 0.1 < ratios["ours w2/naive"] < 1.5
    assert ratios["ours/floor"] > 0.5
    assert 0.7 < ratios["round/bare"] < 1.4
    assert entry["targets"] == {}


def test_the_committed_baseline_can_be_used() -> None:
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "baseline.json"
    cases = read_baseline(path)["cases"]
    names = {"fm", "digits", "relabel", "memory"}
    assert names | {f"{name} short" for name in names} <= set(cases)
    assert cases["fm"]["ours/naive"] < 0.7
    assert cases["memory"]["memory"] <= 1.05
    assert cases["relabel"]["relabel/round"] <= 1 / 3
