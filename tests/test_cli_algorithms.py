"""`algorithms list|show` tells the truth about every algorithm, and every algorithm has a space to be tuned in."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrela_bench.algorithms import ALGORITHMS, Algorithm, check_algorithm, register
from fedrela_bench.algorithms.base import ModelSize
from fedrela_bench.cli import main
from fedrela_bench.cli.algorithm_facts import EVALUATED, KNOWN, MONOMIALS, SYMBOLS, formula_of, in_order, values_of
from fedrela_bench.config import TrialConfig, parse
from fedrela_bench.data import load_dataset
from fedrela_bench.errors import ConfigError
from fedrela_bench.simulation import Simulation
from fedrela_bench.study.space import load_space
from fedrela_bench.study.spacefind import algorithm_space
from fedrela_bench.yaml_io import parse_yaml
from tests.docs.lines import faults as faults_of_line
from tests.kits import names

Capture = pytest.CaptureFixture[str]
WIDTH = 80


def told(capsys: Capture, *arguments: str) -> str:
    assert main(["algorithms", *arguments]) == 0
    return capsys.readouterr().out


def facts(capsys: Capture, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told(capsys, "show", *arguments, "--json"))
    return found


@pytest.mark.parametrize(
    ("given_values", "missing"),
    [
        ({"citation": "c", "purpose": "p"}, "no name;"),
        ({"name": "x"}, "no citation and no purpose;"),
        ({"name": 3, "citation": "c", "purpose": "p"}, "no name;"),
    ],
)
def test_a_class_that_does_not_say_what_it_is_is_not_registered(given_values: dict[str, Any], missing: str) -> None:
    before = dict(ALGORITHMS)
    with pytest.raises(ConfigError) as caught:
        register(type("Mine", (Algorithm,), given_values))
    assert "algorithm class Mine has " + missing in str(caught.value)
    assert 'add class attributes such as name: ClassVar[str] = "mine"' in str(caught.value)
    assert before == ALGORITHMS


# list ----------------------------------------------------------------------------------------------------------------


def test_the_list_names_everything_in_80_columns(capsys: Capture) -> None:
    text = told(capsys, "list")
    assert max(map(len, text.splitlines())) <= WIDTH
    flat = " ".join(text.split())
    for name in names():
        kind = ALGORITHMS[name]
        assert re.search(rf"^  {name} ", text, re.MULTILINE)
        assert kind.purpose in flat and kind.citation in flat
    assert text.index("evaluated with FedReLa") < text.index("  fedavg ") < text.index("related and competing")


def test_evaluated_algorithms_come_first_in_the_papers_order(capsys: Capture) -> None:
    rows = json.loads(told(capsys, "list", "--json"))["algorithms"]
    ours = [row["name"] for row in rows]
    assert ours == in_order(list(ALGORITHMS))
    assert tuple(ours[: len(EVALUATED)]) == EVALUATED
    assert {row["name"] for row in rows if row["family"] == "evaluated"} == set(EVALUATED)
    assert all(row["purpose"] and row["citation"] for row in rows)


# show ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names())
def test_every_algorithm_is_shown_in_80_columns(name: str, capsys: Capture) -> None:
    lines = told(capsys, "show", name).splitlines()
    assert all(len(line) <= WIDTH for line in lines if not line.startswith(("example", "authors ran")))
    text = " ".join(" ".join(lines).split())
    kind = ALGORITHMS[name]
    for part in (kind.purpose, kind.citation, kind.differences, *kind.posterior_heads):
        assert " ".join(part.split()) in text


@pytest.mark.parametrize("name", names())
def test_every_option_has_a_default_values_and_a_meaning(name: str, capsys: Capture) -> None:
    shown = facts(capsys, name)
    fields = ALGORITHMS[name].OptionsModel.model_fields
    assert [option["name"] for option in shown["options"]] == list(fields)
    for option in shown["options"]:
        assert option["default"] == fields[option["name"]].default
        assert option["values"] not in ("", "value") and len(option["about"]) > 10


@pytest.mark.parametrize("name", names())
def test_the_example_is_a_right_command(name: str, capsys: Capture) -> None:
    command = shlex.split(facts(capsys, name)["example"])
    assert command[0] == "fedrela-bench"
    assert main([*command[1:], "--print-config"]) == 0
    assert f"algorithm: {name}" in capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name in names() if ALGORITHMS[name].published])
def test_the_authors_settings_are_a_right_command(name: str, capsys: Capture) -> None:
    command, published = shlex.split(facts(capsys, name)["published"]), dict(ALGORITHMS[name].published)
    assert f"authors ran  {shlex.join(command)}" in told(capsys, "show", name).splitlines()
    assert main([*command[1:], "--print-config"]) == 0
    config = parse(parse_yaml(capsys.readouterr().out, "printed"))
    found: dict[str, Any] = {
        key: reduce(lambda values, part: values[part], key.split("."), config.model_dump()) for key in published
    }
    assert found == published


def test_methods_whose_settings_are_known_say_them(capsys: Capture) -> None:
    known = {name for name in names() if ALGORITHMS[name].published}
    assert {"fednova", "moon", "climb", "fedetf", "fedloge", "fedyoyo", "feddyn", "creff"} <= known
    assert facts(capsys, "fedavg")["published"] is None and "authors ran" not in told(capsys, "show", "fedavg")


def test_floats_are_those_of_a_simulation(capsys: Capture) -> None:
    for name in ("fedavg", "fedetf_dotreg", "moon", "scaffold", "creff"):
        shown = facts(capsys, name)
        config = TrialConfig(federation={"algorithm": name, "clients": 5}, training={"model": shown["model"]})
        simulation = Simulation(config, load_dataset(config))
        assert simulation.communication == {"down": shown["down"]["floats"], "up": shown["up"]["floats"]}
        size = simulation.model.size(simulation.model.net.backbone.feature_dim, 10)
        assert simulation.algorithm.client_state_floats(size) == shown["state"]["floats"]


def test_options_and_datasets_change_the_floats(capsys: Capture) -> None:
    assert facts(capsys, "climb")["state"] == {"formula": "0", "floats": 0}
    primal_dual = facts(capsys, "climb", "--federation.options.learner", "fedpd")
    assert primal_dual["down"]["formula"] == "P + 1"
    large = facts(capsys, "fedavg", "--dataset", "cifar100_lt", "--profile", "paper")
    assert (large["model"], large["down"]["formula"]) == ("resnet34", "P")
    assert large["down"]["floats"] > 21_000_000
    assert facts(capsys, "creff", "--dataset", "cifar100_lt")["up"]["formula"] == "P + dC^2 + C^2"


def test_shapes_of_named_sources_are_those_of_their_images() -> None:
    dataset = load_dataset(TrialConfig())
    assert KNOWN["digits"] == (dataset.input_shape, dataset.num_classes)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["moonn"], "unknown algorithm moonn; did you mean moon?"),
        (["fedprox", "--federation.options.muu", "1"], "did you mean mu?"),
        (["fedprox", "--federation.options.mu", "-1"], "greater than or equal to 0"),
        (["fedavg", "--dataset", "cifar11_lt"], "did you mean cifar10_lt?"),
        (["fedavg", "--profile", "huge"], "cpu (small, fast) or paper"),
        (["fedavg", "--jsn"], "did you mean --json?"),
    ],
)
def test_wrong_input_names_the_nearest(arguments: list[str], words: str, capsys: Capture) -> None:
    assert main(["algorithms", "show", *arguments]) == 2
    assert words in capsys.readouterr().err


# formulas ------------------------------------------------------------------------------------------------------------

SIZE = ModelSize(shared=1234, private=56, features=7, classes=8, buffers=9)
TERMS: dict[str, Callable[[ModelSize], int]] = {
    "": lambda s: 1,
    "C": lambda s: s.classes,
    "CC": lambda s: s.classes**2,
    "d": lambda s: s.features,
    "dC": lambda s: s.features * s.classes,
    "dCC": lambda s: s.features * s.classes**2,
    "b": lambda s: s.buffers,
    "p": lambda s: s.private,
    "P": lambda s: s.shared,
}


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.sampled_from(MONOMIALS), st.integers(-40, 40), max_size=5))
def test_a_formula_is_read_off_exactly(factors: dict[str, int]) -> None:
    def count(size: ModelSize) -> int:
        return sum(factor * TERMS[monomial](size) for monomial, factor in factors.items())

    text = formula_of(count, SIZE)
    assert text is not None
    spelt = re.sub(r"(?<=[0-9PpbdC])(?=[PpbdC])", "*", text).replace("^", "**")
    values = {symbol: getattr(SIZE, name) for name, symbol in SYMBOLS.items()}
    assert eval(spelt, {}, values) == count(SIZE)


def test_what_is_no_polynomial_has_no_formula() -> None:
    assert formula_of(lambda size: size.shared // 3, SIZE) is None
    assert formula_of(lambda size: min(size.shared, 100), SIZE) is None
    assert formula_of(lambda size: 2 * size.shared + size.features * size.classes + 1, SIZE) == "2P + dC + 1"


def test_ranges_are_spelt_with_open_and_closed_ends() -> None:
    assert values_of({"type": "number", "minimum": 0, "exclusiveMaximum": 1}) == "number in [0, 1)"
    assert values_of({"type": "integer", "exclusiveMinimum": 0}) == "whole number in (0, inf)"
    assert values_of({"anyOf": [{"const": "auto"}, {"type": "number"}]}) == "auto or number"
    assert values_of({"enum": ["a", "b"]}) == "a | b"
    assert values_of({"type": "boolean"}) == "true | false"


# search spaces -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names())
def test_every_algorithm_has_a_checked_space_of_its_own(name: str, capsys: Capture) -> None:
    path = algorithm_space(name)
    assert path is not None, f"write search_spaces/algorithms/{name}.yaml"
    assert main(["spaces", "check", name]) == 0
    assert capsys.readouterr().out == f"{name}: right\n"
    space = load_space(name)
    assert space.algorithms == (name,)
    searched = [parameter.name for parameter in space.parameters]
    assert "training.lr" in searched
    options = [searched_name for searched_name in searched if searched_name != "training.lr"]
    assert all(option.startswith("federation.options.") for option in options)
    assert bool(options) == bool(ALGORITHMS[name].OptionsModel.model_fields)
    assert (space.trials, len(space.seeds)) == (load_space("digits_lt").trials, 1), "as many as FedReLa's own search"
    for parameter in space.parameters:
        if parameter.name in options:
            ends = [check_algorithm(name, {parameter.name.rpartition(".")[2]: value}) for value in parameter.values]
            assert ends == [[]] * len(ends)
    assert facts(capsys, name)["space"] == name


@pytest.mark.parametrize("name", names())
def test_a_space_begins_with_the_command_that_uses_it(name: str) -> None:
    space = load_space(name)
    first, _, rest = space.header.partition("\n")
    words = shlex.split(first)
    assert words[:2] == ["fedrela-bench", "tune"] and words[words.index("--space") + 1] == name
    assert not faults_of_line(words[1:])
    assert f"{space.trials} configurations" in " ".join(rest.split())


def test_spaces_of_algorithms_are_listed_after_those_of_datasets(capsys: Capture) -> None:
    assert main(["spaces", "list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert set(names()) <= set(listed)
    assert listed.index("digits_lt") < min(listed.index(name) for name in names())


def test_a_misspelt_space_of_an_algorithm_is_told_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_space("fedprox").algorithms == ("fedprox",)
    with pytest.raises(ConfigError, match="did you mean fedprox"):
        load_space("fedprx")
