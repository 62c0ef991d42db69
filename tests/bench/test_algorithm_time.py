"""The script that times algorithms takes the user's own, and says what is wrong before it trains anything."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from fedrela_bench import plugins

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "algorithm_time.py"
OWN = """
from fedrela_bench.algorithms import Algorithm, register

@register
class Timed(Algorithm):
    "FedAvg under another name."

    name = "timed_one"
    citation = "here"
    purpose = "to be timed"
"""


@pytest.fixture
def script() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("algorithm_time", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    plugins.activate(())


def test_an_algorithm_of_ones_own_is_timed_beside_fedavg(script: ModuleType, tmp_path: Path) -> None:
    own = tmp_path / "own_timed.py"
    own.write_text(OWN)
    assert script.arguments(["timed_one", "--plugin", str(own)]).algorithm == ["fedavg", "timed_one"]
    taken = script.seconds(1, ["fedavg", "timed_one"])
    assert {name: len(times) for name, times in taken.items()} == {"fedavg": 1, "timed_one": 1}
    assert 0.2 < script.ratios(taken)["timed_one"] < 5


def test_every_algorithm_is_timed_where_none_is_named(script: ModuleType) -> None:
    assert {"fedavg", "moon", "fedyoyo"} <= set(script.arguments([]).algorithm)


def test_wrong_names_end_with_what_to_do(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        script.arguments(["fedproxx", "timed_one", "--rounds", "0"])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "unknown algorithm fedproxx; did you mean fedprox? (one of your own: --plugin FILE)" in told
    assert "unknown algorithm timed_one" in told and "--rounds 0: give at least 1" in told


def test_the_ratio_is_the_median_of_those_of_each_repetition(script: ModuleType) -> None:
    taken = {"fedavg": [1.0, 2.0, 4.0], "slow": [3.0, 4.0, 4.0]}
    assert script.ratios(taken) == {"fedavg": 1.0, "slow": 2.0}
