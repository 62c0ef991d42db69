"""A study over an algorithm and a model of the user's own, through Ray; it is told when their code changes."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from fedrela_bench import plugins
from fedrela_bench.algorithms import ALGORITHMS
from fedrela_bench.cli import main
from fedrela_bench.simulation.served import Predictor, load_model
from tests.plugins.texts import FEDLS, NET, write

pytestmark = pytest.mark.cluster
SPACE = """
algorithm: [fedls]
parameters:
  federation.options.smoothing: {choice: [0.0, 0.2]}
  relabel.tau: {choice: [0.05]}
fixed: {relabel.start: 2}
trials: 2
"""
TUNE = (
    *("tune", "--dataset", "digits_lt", "--space", "own.yaml", "--plugin", "fedls.py", "--plugin", "net.py"),
    *("--training.model", "tiny", "--federation.rounds", "3", "--federation.clients", "3"),
    *("--data.imbalance_factor", "10", "--out", "study", "--device", "cpu", "--json", "--max-concurrent", "2"),
)


def test_a_study_over_own_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("fedls.py", FEDLS), ("net.py", NET), ("own.yaml", SPACE)):
        write(tmp_path, name, text)
    monkeypatch.setattr("sys.argv", ["fedrela-bench", *TUNE])
    assert main(TUNE) == 0, capsys.readouterr().err
    told = json.loads(capsys.readouterr().out)
    assert told["status"] == "finished" and len(told["trials"]) == 2

    study = json.loads((tmp_path / "study" / "study.json").read_text())
    assert "--plugin fedls.py --plugin net.py" in study["command"]
    assert [fact["provides"] for fact in study["plugins"]] == [["algorithm fedls"], ["model tiny"]]
    assert set(study["identity"]["plugins"]) == {"fedls", "tiny"}
    results = [json.loads(path.read_text()) for path in (tmp_path / "study" / "store").rglob("result.json")]
    digests = sorted(fact["digest"] for fact in study["plugins"])
    assert len(results) > 2 and all(result["plugins"] == digests for result in results)

    assert main(TUNE) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["counts"]["cells_computed"] == again["counts"]["trunks_computed"] == 0
    assert main(["report", "study"]) == 0
    capsys.readouterr()

    plugins.activate(())
    model = next((tmp_path / "study" / "store").rglob("model.bin"))
    predictor = Predictor(load_model(model))
    assert predictor.predict(np.zeros((2, 8, 8, 1), dtype=np.uint8)).shape == (2,)
    assert "fedls" not in ALGORITHMS

    command = told["best_commands"]["overall"]
    assert command == "fedrela-bench run --config study/best/overall.yaml --plugin fedls.py --plugin net.py"
    assert (tmp_path / "study" / "best" / "overall.yaml").read_text().startswith(f"# {command}\n")
    assert main([*shlex.split(command)[1:], "--json", "--out", "again"]) == 0, capsys.readouterr().err
    repeated = json.loads(capsys.readouterr().out)["metrics"]["last5"]["val/overall"]
    assert repeated in [result["final"]["val/overall"] for result in results]
    plugins.activate(())

    write(tmp_path, "fedls.py", FEDLS + "\n# changed\n")
    assert main(TUNE) == 2
    err = capsys.readouterr().err
    assert "the code of fedls is not what the study in study was begun with" in err and "bring the old code back" in err
