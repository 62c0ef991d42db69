"""Search spaces: what a user writes is what is searched, and every fault is said at once."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrela_bench.algorithms import ALGORITHMS
from fedrela_bench.config import TrialConfig
from fedrela_bench.errors import ConfigError
from fedrela_bench.study.space import Space, find_space, list_spaces, load_space, parse_space

BASES = {name: TrialConfig() for name in ALGORITHMS}


def space(**parameters: object) -> Space:
    named = {name.replace("__", "."): form for name, form in parameters.items()}
    return parse_space({"algorithm": ["fedavg", "fedetf"], "parameters": named})


def test_all_faults_come_in_one_message() -> None:
    wrong = {
        "algorithm": [],
        "paramaters": {},
        "trials": 0,
        "seeds": "many",
        "objectives": ["overal"],
        "fixed": {"training.lr": -1, "federaton.rounds": 3},
        "parameters": {
            "relabel.tua": {"uniform": [0.01, 0.2]},
            "relabel.tau": {"uniform": [1, 20]},
            "relabel.start": {"uniform": [0.5, 0.9]},
            "relabel.period": {"int": [5, 0]},
            "training.lr": {"loguniform": [0, 1]},
            "training.momentum": {"choice": []},
            "seed": {"int": [1, 3]},
            "data.alpha": {"uniform": [0.1, 1.0]},
            "training.batch_size": [8, 16],
        },
    }
    with pytest.raises(ConfigError) as caught:
        parse_space(wrong, name="mine")
    text = str(caught.value)
    for part in (
        "algorithm must be",
        "unknown key paramaters; did you mean parameters?",
        "trials = 0",
        "seeds = 'many'",
        "unknown objective overal; did you mean overall?",
        "training.lr = -1",
        "unknown field federaton.rounds",
        "unknown field relabel.tua",
        "did you mean 0.2?",
        "relabel.start needs a step",
        "relabel.period: low 5 is not below high 0",
        "training.lr: loguniform needs a low bound above 0",
        "training.momentum: choice needs a list",
        "list the seeds under `seeds`",
        "data.alpha cannot be searched",
        "training.batch_size = [8, 16]: write one of",
    ):
        assert part in text
    assert all(fault.startswith("mine: ") for fault in caught.value.faults)


def test_bounds_are_inclusive_and_grid_values_exact() -> None:
    parsed = space(relabel__tau={"uniform": [0.01, 0.2], "step": 0.01}, relabel__period={"int": [0, 5]})
    tau, period = parsed.parameters
    assert tau.grid() == tuple(round(k / 100, 2) for k in range(1, 21))
    assert period.grid() == (0, 1, 2, 3, 4, 5)
    assert parsed.size() == 2 * 20 * 6


def test_optuna_proposes_exact_grid_values_for_every_algorithm() -> None:
    parsed = space(relabel__tau={"uniform": [0.01, 0.2, 0.01]}, relabel__start={"choice": [0.5, 0.8]})
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    points = [parsed(study.ask()) for _ in range(60)]
    assert {point["algorithm"] for point in points} == {"fedavg", "fedetf"}
    assert {point["relabel.tau"] for point in points} <= {round(k / 100, 2) for k in range(1, 21)}
    asked = study.trials[0].params
    assert parsed.point(asked) == points[0]


def test_numbers_in_scientific_notation_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("# try it\nalgorithm: fedavg\nparameters:\n  training.lr: {loguniform: [1e-4, 1e-1]}\n")
    parsed = load_space(path)
    assert parsed.parameters[0].values == (1e-4, 1e-1)
    assert parsed.header == "try it"
    assert parsed.size() is None


def test_every_shipped_space_is_right_and_begins_with_its_command() -> None:
    paths = list_spaces()
    assert {path.stem for path in paths} >= {"digits_lt", "digits_step", "cifar100_lt", "fashion_mnist_step", "default"}
    for path in paths:
        parsed = load_space(path)
        assert parsed.header.startswith("fedrela-bench tune --dataset")
        assert all(parsed.config(BASES, {**p, "algorithm": p.get("algorithm", "fedavg")}, 1) for p in parsed.defaults())


def test_a_dataset_without_a_space_uses_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("folder_balanced", "cifar100_balanced", "table_visits-2024_natural", "parquet:/data/x_lt"):
        assert find_space(name).stem == "default"
    assert load_space("cifar10_step").name == "default"
    with pytest.raises(ConfigError, match="unknown search space cifar10_step"):
        load_space("cifar10_step", fallback=False)


def test_only_a_datasets_name_falls_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits_lt").mkdir()
    (tmp_path / "plain").write_text("algorithm: fedavg")
    assert find_space("digits_lt").stem == find_space("digits_lt.yaml").stem == "digits_lt"
    assert find_space("plain") == Path("plain")
    for name, part in {
        "nope": "unknown search space nope; valid: cifar100_lt, cifar10_lt, default, digits_lt, digits_step, "
        "fashion_mnist_lt, fashion_mnist_step, paper_table14, paper_table2; of base algorithms: balanced_softmax,",
        "digits_ltt": "did you mean digits_lt? (or the path of a YAML file)",
        "digits": "did you mean digits_lt?",
        "nope_lt": "unknown search space nope_lt",
        "nope.yaml": "no search space at nope.yaml",
        "nowhere/mine.yaml": "no search space at nowhere/mine.yaml",
        "nowhere/digits_lt": "no search space at nowhere/digits_lt",
        "folder:": "unknown search space folder:",
        str(tmp_path): f"search space {tmp_path} is a folder; give a YAML file",
    }.items():
        with pytest.raises(ConfigError) as caught:
            load_space(name)
        assert part in str(caught.value), name


def test_seeds_are_bounded() -> None:
    for seeds in (101, 10**12, [2**32], list(range(200))):
        with pytest.raises(ConfigError, match=r"whole numbers below 2\*\*32, 100 at most"):
            parse_space({"algorithm": "fedavg", "parameters": {"relabel.tau": {"choice": [0.1]}}, "seeds": seeds})


def test_the_papers_default_is_first_unless_the_space_cannot_express_it() -> None:
    inside = space(relabel__tau={"uniform": [0.01, 0.2, 0.01]}, relabel__start={"uniform": [0.5, 0.9, 0.1]})
    assert inside.defaults() == [
        {"algorithm": name, "relabel.tau": 0.05, "relabel.start": 0.8} for name in ("fedavg", "fedetf")
    ]
    assert space(relabel__start={"choice": [0.5, 0.6]}).defaults()[0] == {"algorithm": "fedavg"}


def test_fork_rounds_are_those_of_the_grid_below_the_last_round() -> None:
    base = TrialConfig().replace({"federation.rounds": 20})
    assert space(relabel__start={"uniform": [0.5, 1.0, 0.1]}).fork_rounds(base) == [10, 12, 14, 16, 18]
    assert space(relabel__tau={"choice": [0.1]}).fork_rounds(base) == [16]


def test_a_finite_space_is_enumerated_without_repeats() -> None:
    parsed = space(relabel__tau={"choice": [0.05, 0.1]}, relabel__period={"int": [0, 4, 2]})
    points = list(parsed.points(np.random.default_rng(0)))
    assert len(points) == parsed.size() == len({tuple(point.items()) for point in points})


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_every_drawn_point_is_inside_and_configures_a_trial(seed: int) -> None:
    parsed = space(
        relabel__tau={"uniform": [0.01, 0.2, 0.01]},
        training__lr={"loguniform": [1e-3, 1e-1]},
        relabel__start={"uniform": [0.5, 0.9, 0.1]},
    )
    point = parsed.sample(np.random.default_rng(seed))
    assert all(parameter.contains(point[parameter.name]) for parameter in parsed.parameters)
    config = parsed.config(BASES, point, seed=3)
    assert (config.seed, config.relabel.tau, config.training.lr) == (3, point["relabel.tau"], point["training.lr"])


def test_a_space_pickles_plainly() -> None:
    parsed = load_space("digits_lt")
    assert pickle.loads(pickle.dumps(parsed)) == parsed


def test_reading_a_space_needs_neither_ray_nor_torch() -> None:
    code = (
        "import sys; from fedrela_bench.study.space import load_space; load_space('digits_lt');"
        "print([m for m in ('ray', 'torch', 'optuna', 'mlflow') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("form", "fault"),
    [
        ({"uniform": [math.nan, 0.2, 0.01]}, "all finite numbers"),
        ({"uniform": [0.01, math.inf, 0.01]}, "all finite numbers"),
        ({"uniform": [0.01, 0.2, math.nan]}, "all finite numbers"),
        ({"uniform": [0.01, 0.2], "step": math.nan}, "all finite numbers"),
        ({"int": [0, 10**400]}, "all finite numbers"),
        ({"uniform": [0.01, 0.2, 1e-12]}, "more than 100000 values; write a larger step"),
        ({"int": [0, 10**12]}, "steps of 1 give more than 100000 values"),
    ],
)
def test_bounds_that_no_grid_can_have_are_faults(form: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        space(relabel__tau=form)
